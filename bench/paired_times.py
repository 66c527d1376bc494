"""Measures contenders in turn, and prints their times with the ratio of two of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def times_in_turn(
    contenders: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """The seconds of so many runs of each contender, after one that warms up.

    They take turns, A B A B: what the machine does meanwhile then touches all of them alike.
    """
    times: dict[str, list[float]] = {contender: [] for contender in contenders}
    for turn in range(rounds + 1):
        for contender, run in contenders.items():
            started = time.perf_counter()
            run()
            if turn:
                times[contender].append(time.perf_counter() - started)
    return times


def times_of_reads(
    contenders: Mapping[str, Callable[[], DataFrame]], rounds: int
) -> dict[str, list[float]]:
    """The same of contenders that Spark reads from end to end."""

    def read(load: Callable[[], DataFrame]) -> None:
        load().write.format("noop").mode("overwrite").save()

    reads = {contender: partial(read, load) for contender, load in contenders.items()}
    return times_in_turn(reads, rounds)


def ratios(times: Mapping[str, Sequence[float]]) -> list[float]:
    """The rate of the second of two contenders by that of the first, of each turn."""
    first, second = times.values()
    return [a / b for a, b in zip(first, second, strict=True)]


def report(
    times: Mapping[str, Sequence[float]], count: int, unit: str, target: float | None = None
) -> float:
    """Print the rates of two contenders; return the second's by the first's.

    Args:
        times: seconds by contender, the first one the measure of the other; taken in turn.
        count: what each of them did in that time, counted in `unit`.
        target: the least that the ratio should be, if there is one.
    """
    for name, taken in times.items():
        median = statistics.median(taken)
        print(
            f"  {name:10} {median:6.2f} s (best {min(taken):.2f})  "
            f"{count / median / 1e3:6.1f} thousand {unit}/s"
        )
    first, second = times.values()
    ratio = statistics.median(ratios(times))
    best = min(first) / min(second)
    wanted = "" if target is None else f", target {target}"
    print(f"  ratio      {ratio:.2f} (of the best {best:.2f}){wanted}", flush=True)
    return ratio
