"""Prints the times of contenders that were measured in turn, and the ratio of two of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


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
    ratio = statistics.median(a / b for a, b in zip(first, second, strict=True))
    best = min(first) / min(second)
    wanted = "" if target is None else f", target {target}"
    print(f"  ratio      {ratio:.2f} (of the best {best:.2f}){wanted}", flush=True)
    return ratio
