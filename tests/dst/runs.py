"""Runs of plans, each in a process forked from one that has imported everything."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import pkgutil
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Final

from tests.fast_files import memory_directory

from .bugs import BUGS, plant
from .engine import patches
from .engine.scheduler import scheduler
from .plan import Plan
from .simulation import Outcome, Simulation

CPU_PER_SECOND: Final = 4.0
"""Processor time that a second of a plan may take, at least a hundred times what it needs."""
LEAST_CPU: Final = 120.0
PACKAGES: Final = (
    "pocketmq.broker", "pocketmq.client", "pocketmq.message", "pocketmq.namesrv",
    "pocketmq.remoting", "pocketmq.store",
)  # fmt: skip
"""What runs in the simulation. All of it is imported before it begins: later, it would take a
second in each run."""
LEFT_OUT: Final = ("tracing",)  # starts threads of its own


def prepare() -> None:
    """Import everything, once."""
    patches.adapt()
    for package in PACKAGES:
        paths = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(paths, f"{package}."):
            last = module.name.rpartition(".")[2]
            if not last.startswith("_") and last not in LEFT_OUT:
                importlib.import_module(module.name)
    importlib.import_module("numpy")
    gc.collect()
    gc.freeze()


def run(plan: Plan, trace: Path | None = None, *, bug: str = "", perturb: int = 0) -> Outcome:
    """Run a plan; `perturb` shifts what its objects' addresses will be."""
    directory = tempfile.mkdtemp(prefix="pocketmq-dst-", dir=memory_directory())
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        junk = [bytearray(48 + n % 400) for n in range(perturb)][::3]
        try:
            if bug:
                plant(BUGS[bug])
            outcome = _run(plan, trace and trace.absolute(), Path(directory))
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(outcome, pipe)
        except BaseException:
            traceback.print_exc()
        del junk
        sys.stdout.flush()
        os._exit(0)  # nothing of what was simulated is to be closed
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    shutil.rmtree(directory)
    if not told:
        return Outcome(plan, [f"the process ended with status {status}"])
    returned: Outcome = pickle.loads(told)
    return returned


def _run(plan: Plan, trace: Path | None, directory: Path) -> Outcome:
    scheduler.begin(plan.seed)
    os.chdir(directory)  # answers name files: they are to be the same in each run
    simulation = Simulation(plan, scheduler, Path("run"))
    budget = max(LEAST_CPU, CPU_PER_SECOND * plan.seconds)
    if trace is None:
        return simulation.run(budget)
    with trace.open("w") as file:
        scheduler.on_step = lambda step: file.write(f"{line(step)}\n")
        return simulation.run(budget)


def line(step: tuple[object, ...]) -> str:
    """A step of the trace as text."""
    at, *what = step
    assert isinstance(at, int)
    return f"{at / 1e9:.9f} {' '.join(map(str, what))}"
