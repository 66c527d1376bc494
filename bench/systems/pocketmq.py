"""Our broker under the loads, by the generator in bench/loadgen."""

from __future__ import annotations

from pathlib import Path

from bench import contenders
from bench.generator import LoadGenerator

from .loads import CONNECTIONS, IN_FLIGHT, SIZE, Load, Run

BATCH = 32


class Pocketmq:
    """Our name server and broker, with ASYNC_FLUSH."""

    name = "pocketmq"

    def __init__(self, directory: Path) -> None:
        """Build the generator and start both servers. Raises Unavailable without Go."""
        self._generator = LoadGenerator.build(directory)
        self._contender = contenders.start_ours(directory)

    def run(self, load: Load, count: int, turn: int) -> Run:
        connections, depth = (1, 1) if load is Load.ONE else (CONNECTIONS, IN_FLIGHT)
        line = self._generator.run(
            self._contender.broker.address, f"{load.name.lower()}-{turn}", "send",
            "-conns", str(connections), "-inflight", str(depth), "-n", str(count),
            "-size", str(SIZE), "-batch", str(BATCH if load is Load.BATCH else 1),
        )  # fmt: skip
        return Run(float(line["per_second"]), float(line["p50_us"]))

    def stop(self) -> None:
        self._contender.stop()
