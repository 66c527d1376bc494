"""The brokers that are measured, as running processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.harness import official, ours
from tests.interop.harness.official import Server

from .bytecode import compile_package
from .generator import LoadGenerator
from .processes import resident_megabytes

# An idle broker settles for this long before its memory is read, seconds.
SETTLE = 2.0

# The size of the segment files, for both: RocketMQ's default.
SEGMENT = 1 << 30

OURS = "pocketmq"
OFFICIAL = f"official {official.VERSION}"


@dataclass
class Figures:
    """Whatever is measured, and its figures so far."""

    name: str
    figures: dict[str, list[float]] = field(default_factory=dict, kw_only=True)

    def add(self, key: str, value: float) -> None:
        self.figures.setdefault(key, []).append(float(value))

    def middle(self, key: str) -> float | None:
        """The middle of the values measured for a key (the lower one of an even count)."""
        values = sorted(self.figures.get(key, ()))
        return values[(len(values) - 1) // 2] if values else None


@dataclass
class Contender(Figures):
    """A broker under measurement with its own name server; `start` starts the broker again."""

    namesrv: Server
    start: Callable[[], Server]
    refused: int = field(default=0, kw_only=True)  # messages answered with an error

    def __post_init__(self) -> None:
        self.broker = self._started()

    def restart(self) -> None:
        """Stop the broker, and start it on its store."""
        self.broker.process.terminate()
        self.broker = self._started()

    def _started(self) -> Server:
        broker = self.start()
        self.add("start", broker.process.waited)
        return broker

    def measure_idle(self) -> None:
        """Let the broker settle, and read what memory it has."""
        time.sleep(SETTLE)
        self.add("idle_rss", resident_megabytes(self.broker.process.pid))

    def stop(self) -> None:
        self.broker.process.kill()
        self.namesrv.process.kill()


def start_ours(directory: Path, settings: Mapping[str, object] = {}) -> Contender:
    """Our name server and broker."""
    compile_package()
    namesrv = ours.start_name_server(directory)
    return Contender(
        OURS,
        namesrv,
        lambda: ours.start_broker(
            directory, namesrv.address, settings={"mappedFileSizeCommitLog": SEGMENT, **settings}
        ),
    )


def start_official(directory: Path, settings: Mapping[str, object] = {}) -> Contender:
    """The official pair, with the heap that its documentation of small machines suggests."""
    namesrv = official.start_name_server(directory, flags=("-Xmx256m",))
    return Contender(
        OFFICIAL,
        namesrv,
        lambda: official.start_broker(
            directory,
            namesrv.address,
            settings={"mappedFileSizeCommitLog": SEGMENT, **settings},
            flags=("-Xmx1g", "-XX:MaxDirectMemorySize=2g"),
        ),
    )


def warm_up(contender: Contender, generator: LoadGenerator, messages: int) -> None:
    """Let a just-in-time compiler see the path of a send before anything counts."""
    arguments = ("send", "-conns", "4", "-inflight", "64")
    generator.run(contender.broker.address, "warm", *arguments, "-n", str(messages))
    for load in ("-binary",), ("-batch", "32"):
        generator.run(contender.broker.address, "warm", *arguments, *load, "-n", str(messages // 5))
    generator.run(contender.broker.address, "warm", "pull", "-conns", "4")
    name = contender.broker.broker_name
    generator.run(contender.broker.address, "warm", "pop", "-conns", "4", "-broker", name)
