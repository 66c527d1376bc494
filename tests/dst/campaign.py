"""The command line, and many runs: each in a process forked from one that has imported all."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import logging
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Final

import msgspec

from tests.fast_files import memory_directory

from . import plan as plans
from .bugs import BUGS
from .engine import patches
from .engine.scheduler import scheduler
from .plan import Plan
from .simulation import Outcome, Simulation

SECONDS: Final = 30.0
CPU_PER_SECOND: Final = 4.0
"""Processor time that a second of a plan may take, at least a hundred times what it needs."""
LEAST_CPU: Final = 120.0
PACKAGES: Final = (
    "pocketmq.broker", "pocketmq.client", "pocketmq.message", "pocketmq.namesrv",
    "pocketmq.remoting", "pocketmq.store",
)  # fmt: skip
"""What runs in the simulation. All of it is imported before it begins: later, and in each run
anew, it would take a second."""
SEEDS_APART: Final = 1_000_000
LEFT_OUT: Final = ("tracing",)  # starts threads of its own
MOST_SHOWN: Final = 15


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dst")
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("more", type=int, nargs="*", help="other seeds to run")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of faults, virtual")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from `seed` on")
    parser.add_argument("--cpu", type=float, help="stop after so much processor time, seconds")
    parser.add_argument("--double", type=int, help="run each so-many-th seed twice and compare")
    parser.add_argument("--perturb", type=int, default=0, help="shift all addresses")
    parser.add_argument("--plan", type=Path, help="a plan to run, in place of the seed's")
    parser.add_argument("--show-plan", action="store_true")
    parser.add_argument("--bug", choices=BUGS, help="a bug that `__main__` has planted")
    parser.add_argument("--bugs", help="find each of these bugs (a;b;c), or all")
    parser.add_argument("--processes", type=int, default=1, help="at the same time")
    parser.add_argument("--trace", type=Path, help="a file for all steps")
    parser.add_argument("--log", default="CRITICAL", help="level of what the product logs")
    parser.add_argument("--go-on", action="store_true", help="after a seed that fails")
    options = parser.parse_args()
    logging.basicConfig(level=options.log, format="%(message)s")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Format())
    if options.bugs:
        return _find_bugs(options)
    if options.processes > 1:
        return _side_by_side(options)
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
    return _run_all(options)


def _run_all(options: argparse.Namespace) -> int:
    seeds = virtual = cpu = 0.0
    failed: list[int] = []
    for seed in itertools.count(options.seed):
        if seeds == options.seeds:
            break
        plan = plans.draw(seed, options.seconds)
        if options.bug and options.seeds > 1 and not BUGS[options.bug].fits(plan):
            continue
        if options.plan:
            plan = msgspec.json.decode(options.plan.read_bytes(), type=Plan)
        if options.show_plan:
            print(msgspec.json.format(msgspec.json.encode(plan)).decode())
        outcome = in_child(plan, options.trace, perturb=options.perturb)
        if options.double and seed % options.double == 0:
            again = in_child(plan, None, perturb=seed % 5000 + 1)
            cpu += again.cpu
            if again.digest != outcome.digest:
                outcome.wrong.append("two runs of this seed differ")
        seeds += 1
        virtual += outcome.virtual
        cpu += outcome.cpu
        if outcome.wrong:
            failed.append(seed)
            _show(outcome, options)
            if not options.go_on:
                break
        elif options.seeds == 1:
            print(
                f"seed {seed}: {plan.cluster}, {', '.join(plan.flows)}; {outcome.sent} sent, "
                f"{outcome.delivered} delivered, digest {outcome.digest & (2**64 - 1):016x}"
            )
        if options.cpu and cpu >= options.cpu:
            break
    print(
        f"{seeds:.0f} seeds, {virtual:.0f} virtual s in {cpu:.1f} s of processor time "
        f"({virtual / max(cpu, 1e-9):.1f} a second); failed: {failed or 'none'}",
        flush=True,
    )
    return 1 if failed else 0


def _find_bugs(options: argparse.Namespace) -> int:
    """Plant one bug after the other, each in a process that has imported nothing yet."""
    missed = []
    for name in BUGS if options.bugs == "all" else options.bugs.split(";"):
        command = [sys.executable, "-m", "tests.dst", str(options.seed), "--bug", name]
        command += ["--seeds", str(options.seeds), "--seconds", str(options.seconds)]
        began = patches.real_time()
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = run.stdout.splitlines()
        checks = tuple(f"  {check} " for check in BUGS[name].checks.split())
        found = [line.strip() for line in lines if line.startswith(checks)]
        if not found:
            missed.append(name)
        told = found[0] if found else "not found: " + "; ".join(lines[:3]) + run.stderr[-500:]
        print(f"{name}: {told}")
        print(f"    {lines[-1] if lines else ''}, {patches.real_time() - began:.0f} s", flush=True)
    return 1 if missed else 0


def _side_by_side(options: argparse.Namespace) -> int:
    """Processes with seeds of their own."""
    command = [sys.executable, "-m", "tests.dst", *sys.argv[1:]]
    place = command.index(str(options.seed), 3)
    processes = []
    for number in range(options.processes):
        command[place] = str(options.seed + number * SEEDS_APART)
        processes.append(subprocess.Popen([*command, "--processes", "1"]))
    return max(process.wait() for process in processes)


def in_child(plan: Plan, trace: Path | None, *, perturb: int = 0) -> Outcome:
    """Run a plan in a forked process; `perturb` shifts what its objects' addresses will be."""
    directory = tempfile.mkdtemp(prefix="pocketmq-dst-", dir=memory_directory())
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        junk = [bytearray(48 + n % 400) for n in range(perturb)][::3]
        try:
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
        scheduler.on_step = lambda step: file.write(f"{_line(step)}\n")
        return simulation.run(budget)


def _line(step: tuple[object, ...]) -> str:
    at, *what = step
    assert isinstance(at, int)
    return f"{at / 1e9:.9f} {' '.join(map(str, what))}"


def _show(outcome: Outcome, options: argparse.Namespace) -> None:
    plan = outcome.plan
    if options.seeds == 1:
        print(*(_line(step) for step in outcome.steps), sep="\n")
        print(*outcome.blocked, sep="\n")
    print(f"seed {plan.seed}, {plan.cluster}, {', '.join(plan.flows)}:")
    for fault in plan.faults:
        print(f"  {fault}")
    print(*(f"  {text}" for text in outcome.wrong[:MOST_SHOWN]), sep="\n")
    if len(outcome.wrong) > MOST_SHOWN:
        print(f"  and {len(outcome.wrong) - MOST_SHOWN} more")
    bug = f" --bug {options.bug}" if options.bug else ""
    print(f"again: python -m tests.dst {plan.seed} --seconds {options.seconds:g}{bug}", flush=True)


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        machine = scheduler.machine
        text = f"{scheduler.now / 1e9:.6f} {machine} {record.levelname} {super().format(record)}"
        return text
