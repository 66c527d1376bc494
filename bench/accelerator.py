"""`python -m bench.accelerator`: what the accelerator brings.

Two brokers, one with it and one without, get the same loads in turn. The ratios are of the first
one's figures to the second's; CPU is what the broker's process takes for a message.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from rich.console import Console
from rich.table import Table

from pocketmq._accelerator import PURE_PYTHON, accelerator_state

from .contenders import Contender, start_ours
from .generator import LoadGenerator
from .processes import cpu_seconds
from .work_directory import work_directory

ROUNDS = 5
MANY = ("-conns", "4", "-inflight", "64")
LOADS = {
    "single sends, 1 KiB": (*MANY, "-n", "400000"),
    "binary headers": (*MANY, "-n", "400000", "-binary"),
    "100 B": (*MANY, "-n", "400000", "-size", "100"),
    "16 KiB": (*MANY, "-n", "64000", "-size", "16384"),
    "256 topics × 8 queues": (*MANY, "-n", "200000", "-topics", "256", "-queues", "8"),
    "one at a time": ("-conns", "1", "-inflight", "1", "-n", "20000"),
    "64 clients, one at a time each": ("-conns", "64", "-inflight", "1", "-n", "100000"),
    "batches of 32": (*MANY, "-n", "1280000", "-batch", "32"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.accelerator", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    rounds = parser.parse_args().rounds
    if accelerator_state() != "compiled":
        print("no benchmark: the accelerator is not built (make accelerator)")
        return 1
    table = Table("", "rate", "CPU", "µs CPU with", "without")
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        generator = LoadGenerator.build(directory)
        contenders = []
        for name in ("with", "without"):
            (directory / name).mkdir()
            with pure_python(name == "without"):
                contenders.append(start_ours(directory / name))
            cleanup.callback(contenders[-1].stop)
        for title, load in LOADS.items():
            for turn in range(rounds):
                for contender in contenders:
                    measure(contender, generator, title, load, turn)
            compiled, python = contenders
            rates, costs = (
                [median(each.figures[f"{title} {key}"]) for each in (compiled, python)]
                for key in ("rate", "cpu")
            )
            table.add_row(
                title, f"{rates[0] / rates[1]:.2f}", f"{costs[0] / costs[1]:.2f}",
                f"{costs[0]:.2f}", f"{costs[1]:.2f}",
            )  # fmt: skip
    Console().print(table)
    return 0


@contextmanager
def pure_python(wanted: bool) -> Iterator[None]:
    """Start processes without the accelerator meanwhile, if that is wanted."""
    before = os.environ.pop(PURE_PYTHON, None)
    if wanted:
        os.environ[PURE_PYTHON] = "1"
    try:
        yield
    finally:
        os.environ.pop(PURE_PYTHON, None)
        if before is not None:
            os.environ[PURE_PYTHON] = before


def measure(
    contender: Contender, generator: LoadGenerator, title: str, load: tuple[str, ...], turn: int
) -> None:
    """Run a load; note messages a second, and the broker's microseconds of CPU time for one."""
    broker = contender.broker
    before = cpu_seconds(broker.process.pid)
    line = generator.run(broker.address, f"accelerator-{turn}-{len(load)}", "send", *load)
    spent = cpu_seconds(broker.process.pid) - before
    contender.add(f"{title} rate", line["per_second"])
    contender.add(f"{title} cpu", spent / line["messages"] * 1e6)


if __name__ == "__main__":
    raise SystemExit(main())
