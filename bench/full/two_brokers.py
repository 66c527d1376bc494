"""`pocketmq serve --brokers 2` against one broker, with as much of a processor for each.

With four processors or more, each broker has one to itself, and the load generators have the
others. With fewer there is nowhere else for the load: each broker shares its processor with a
generator of its own, one broker as well as two.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.bytecode import compile_package
from bench.clean_slate import clean_slate
from bench.contenders import OURS, SEGMENT, Figures
from bench.measures import Better, Measure
from tests.interop.harness.official import PROJECT, write_properties
from tests.interop.harness.ports import free_block, free_port
from tests.interop.harness.process import Process

from .workload import MANY, Session, Workload, count

PORT_STEP = 10  # between the brokers of one `pocketmq serve`
#: The ports of two brokers, with those beside each that they use as well.
SPAN = tuple(step + beside for step in (0, PORT_STEP) for beside in (-2, 0, 1))


class _Served:
    """A running `pocketmq serve`; each of its brokers is bound to a processor of its own."""

    def __init__(self, directory: Path, brokers: int) -> None:
        compile_package()
        home = directory / f"served-{brokers}"
        port = free_block(SPAN)
        config = write_properties(home / "broker.conf", {"mappedFileSizeCommitLog": SEGMENT})
        self.process = Process(
            f"pocketmq serve --brokers {brokers}",
            [
                sys.executable, "-m", "pocketmq", "serve", "-c", config,
                "--brokers", str(brokers), "--store", home / "store",
                "--namesrv-port", str(free_port()), "--listen-port", str(port),
                "--no-grpc", "--no-dashboard",
            ],
            log=home / "output.log", cwd=PROJECT,
        )  # fmt: skip
        self.process.wait_for("name server listening", 60)
        self.addresses = [f"127.0.0.1:{port + PORT_STEP * number}" for number in range(brokers)]
        pids = [self.process.pid] if brokers == 1 else _children(self.process.pid)
        if len(pids) != brokers:
            raise RuntimeError(f"{brokers} brokers in {len(pids)} processes")
        for processor, pid in zip(sorted(os.sched_getaffinity(0)), pids, strict=False):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {processor})


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _run(session: Session) -> Sequence[Figures]:
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise RuntimeError("two brokers need two processors")
    apart = len(processors) >= 4
    session.note(
        "two brokers: a processor for each, and the load generators on the others"
        if apart
        else "two brokers: each shares a processor with its load generator, and so does the one"
    )
    arguments = ("send", *MANY, "-n", count(200_000, session.scale, 4))
    found = Figures(OURS)

    def load(address: str, number: int, turn: int) -> float:
        # Processes inherit what this thread is bound to.
        os.sched_setaffinity(0, processors[2:] if apart else {processors[number]})
        return float(session.generator.run(address, f"two-{turn}", *arguments)["per_second"])

    def measure(served: _Served, turn: int) -> float:
        clean_slate(session.scale, session.directory)
        with ThreadPoolExecutor(len(served.addresses)) as threads:
            loads = [
                threads.submit(load, address, number, turn)
                for number, address in enumerate(served.addresses)
            ]
            return sum(each.result() for each in loads)

    one = _Served(session.directory, 1)
    two = _Served(session.directory, 2)
    try:
        for turn in range(session.rounds):
            alone, both = measure(one, turn), measure(two, turn)
            found.add("one_broker", alone)
            found.add("two_brokers", both)
            found.add("two_by_one", both / alone)
    finally:
        for served in one, two:
            served.process.terminate()
    return (found,)


TWO_BROKERS = Workload(
    "two-brokers",
    (
        Measure("one_broker", "serve, one broker", "msg/s", Better.HIGHER),
        Measure("two_brokers", "serve --brokers 2, both together", "msg/s", Better.HIGHER),
        Measure("two_by_one", "two brokers ÷ one", "×", Better.HIGHER, 1.6, relative=False),
    ),
    _run,
)
