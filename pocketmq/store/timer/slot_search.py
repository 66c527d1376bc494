"""Searches the whole timer log for the units of a slot whose chain is damaged.

It takes 20 ms for a million units.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pocketmq.store.timer.timer_log import MOST_MAGIC, NOWHERE, UNIT_SIZE, TimerLog, TimerUnit
from pocketmq.store.timer.unit_array import UnitArray, unit_array


def units_of_slot(log: TimerLog, slot: int, precision: int) -> list[TimerUnit]:
    """Return the units of a slot (Unix ms), the newest first, with nothing before them."""
    found: list[TimerUnit] = []
    for units in _whole_units(log):
        times = units["entered"].astype(np.int64) + units["delay"]
        for unit in units[times // precision * precision == slot]:
            entered = int(unit["entered"])
            found.append(
                TimerUnit(
                    NOWHERE,
                    int(unit["magic"]),
                    entered,
                    entered + int(unit["delay"]),
                    int(unit["physical"]),
                    int(unit["length"]),
                )
            )
    found.reverse()
    return found


def without_unit(
    log: TimerLog, physical: npt.NDArray[np.int64], damaged: int
) -> npt.NDArray[np.int64]:
    """Return those of some messages, given by their physical offsets, that have no unit, or only
    the one at the position `damaged`."""
    for units in _whole_units(log, damaged):
        physical = physical[np.isin(physical, units["physical"], invert=True)]
    return physical


def _whole_units(log: TimerLog, damaged: int = NOWHERE) -> Iterator[UnitArray]:
    for file in log.files:
        units = unit_array(file.view, log.units_in(file))
        magic = units["magic"]
        whole = (units["size"] == UNIT_SIZE) & (magic > 0) & (magic <= MOST_MAGIC)
        whole &= units["length"] > 0
        if file.base_offset <= damaged < file.base_offset + len(units) * UNIT_SIZE:
            whole[(damaged - file.base_offset) // UNIT_SIZE] = False
        yield units[whole]
