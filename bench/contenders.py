"""The brokers that are measured, as running processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.harness import official, ours
from tests.interop.harness.official import Server

from .generator import LoadGenerator

# An idle broker settles for this long before its memory is read, seconds.
SETTLE = 2.0

# The size of the segment files, for both: RocketMQ's default.
SEGMENT = 1 << 30


@dataclass
class Figures:
    """Whatever is measured, and its figures so far."""

    name: str
    figures: dict[str, list[float]] = field(default_factory=dict, kw_only=True)

    def add(self, key: str, value: float) -> None:
        self.figures.setdefault(key, []).append(value)

    def middle(self, key: str) -> float | None:
        """The middle of the values measured for a key (the lower one of an even count)."""
        values = sorted(self.figures.get(key, ()))
        return values[(len(values) - 1) // 2] if values else None


@dataclass
class Contender(Figures):
    """A broker under measurement with its own name server."""

    namesrv: Server
    broker: Server
    refused: int = field(default=0, kw_only=True)  # messages answered with an error

    def stop(self) -> None:
        self.broker.process.kill()
        self.namesrv.process.kill()


def resident_megabytes(pid: int) -> float:
    """VmRSS of a process in MB of 10^6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"no VmRSS of process {pid}")


def start_ours(directory: Path) -> Contender:
    """Our name server and broker."""
    namesrv = ours.start_name_server(directory)

    def start() -> Server:
        return ours.start_broker(
            directory, namesrv.address, settings={"mappedFileSizeCommitLog": SEGMENT}
        )

    contender = _measured_start("pocketmq", namesrv, start)
    for _ in range(2):  # A start takes a moment; one alone would say little.
        contender.broker.process.terminate()
        contender.broker = start()
        contender.add("start", contender.broker.process.waited)
    return contender


def start_official(directory: Path) -> Contender:
    """The official pair, with the heap that its documentation of small machines suggests."""
    namesrv = official.start_name_server(directory)
    return _measured_start(
        "official 5.3.3",
        namesrv,
        lambda: official.start_broker(
            directory,
            namesrv.address,
            settings={"mappedFileSizeCommitLog": SEGMENT},
            memory=("-Xmx1g", "-XX:MaxDirectMemorySize=2g"),
        ),
    )


def _measured_start(name: str, namesrv: Server, start: Callable[[], Server]) -> Contender:
    broker = start()
    contender = Contender(name, namesrv, broker)
    contender.add("start", broker.process.waited)
    time.sleep(SETTLE)
    contender.add("idle_rss", resident_megabytes(broker.process.pid))
    return contender


def warm_up(contender: Contender, generator: LoadGenerator, messages: int) -> None:
    """Let a just-in-time compiler see the path of a send before anything counts."""
    arguments = ("send", "-conns", "4", "-inflight", "64")
    generator.run(contender.broker.address, "warm", *arguments, "-n", str(messages))
    for load in ("-binary",), ("-batch", "32"):
        generator.run(contender.broker.address, "warm", *arguments, *load, "-n", str(messages // 5))
    generator.run(contender.broker.address, "warm", "pull", "-conns", "4")
    name = contender.broker.broker_name
    generator.run(contender.broker.address, "warm", "pop", "-conns", "4", "-broker", name)
