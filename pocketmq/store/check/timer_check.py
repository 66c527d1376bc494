"""Compares the timer log, the timer wheel and their checkpoint with each other and with the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.log_check import LogFile
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import StoreError
from pocketmq.store.timer.timer_checkpoint import TimerCheckpoint
from pocketmq.store.timer.timer_log import DELETE, MOST_MAGIC, NOWHERE, UNIT_SIZE, TimerLog
from pocketmq.store.timer.timer_wheel import TimerWheel
from pocketmq.store.timer.unit_array import UNIT_DTYPE, unit_array

_FUTURE_MS: Final = 24 * 3600 * 1000
"""How far clocks may differ."""


class TimerProblem(NamedTuple):
    """What is wrong with a file of the timers. They are derived from the log: a repair builds them
    again."""

    path: Path
    reason: str


class TimerCheck:
    """The timers of one store.

    Attributes:
        files: those that exist.
        waiting: the number of pending messages.
        problems: what is wrong.
    """

    def __init__(
        self,
        config: StoreConfig,
        log_files: Sequence[LogFile],
        queue_end: int,
        now: int,
        *,
        crashed: bool,
    ) -> None:
        """`log_files` are those of the commit log, `queue_end` is the end of the timer topic's
        queue, `now` is the time in ms. `crashed`: a start restores what was not flushed."""
        root = config.root
        directory = root / "timerlog"
        logs = sorted(directory.iterdir()) if directory.is_dir() else []
        fixed = (root / "timerwheel", root / "config" / "timercheck")
        self.files = [path for path in (*fixed, *logs) if path.is_file()]
        self.waiting = 0
        self.problems: list[TimerProblem] = []
        self._root = root
        self._config = config
        self._log_files = log_files
        self._crashed = crashed
        if not self.files:
            return
        files = DryFiles()
        checkpoint = TimerCheckpoint(files, fixed[1])
        units = TimerLog(files, directory, config.mapped_file_size_timer_log)
        wheel = TimerWheel(files, fixed[0], config.timer_precision)
        try:
            checkpoint.open()
            units.open(checkpoint.log_flushed, lambda _: True)
            wheel.open()
            self._check_checkpoint(checkpoint, units, queue_end, now)
            self._check_units(checkpoint, units, wheel)
        except StoreError as error:
            path = getattr(error, "path", root)
            self.problems.append(TimerProblem(path, str(error).removeprefix(f"{path} ")))
        finally:
            checkpoint.close()
            units.close()
            wheel.close()

    def _check_checkpoint(
        self, checkpoint: TimerCheckpoint, units: TimerLog, queue_end: int, now: int
    ) -> None:
        path = self._root / "config" / "timercheck"
        if not path.exists():
            self.problems.append(TimerProblem(path, "the file is missing"))
        if checkpoint.log_flushed and not (self._root / "timerwheel").exists():
            self.problems.append(TimerProblem(self._root / "timerwheel", "the file is missing"))
        for name, value, least, most in (
            ("read time", checkpoint.read_time, 0, now + _FUTURE_MS),
            ("queue offset", checkpoint.queue_offset, 0, queue_end),
        ):
            if not least <= value <= most:
                reason = f"its {name} is {value}, but that is between {least} and {most}"
                self.problems.append(TimerProblem(path, reason))

    def _check_units(self, checkpoint: TimerCheckpoint, units: TimerLog, wheel: TimerWheel) -> None:
        found = [(position, rows) for position, rows in _all_units(units) if len(rows)]
        positions = np.concatenate(
            [np.zeros(0, np.int64)]
            + [position + np.arange(len(rows)) * UNIT_SIZE for position, rows in found]
        )
        rows = np.concatenate([np.zeros(0, UNIT_DTYPE)] + [rows for _, rows in found])
        precision = self._config.timer_precision
        slots = (rows["entered"] + rows["delay"]) // precision
        readable = (
            (rows["size"] == UNIT_SIZE)
            & (rows["magic"] > 0)
            & (rows["magic"] <= MOST_MAGIC)
            & (rows["length"] > 0)
        )
        unreadable = np.count_nonzero(~readable)
        if unreadable:
            reason = f"{unreadable} units cannot be read"
            self.problems.append(TimerProblem(self._root / "timerlog", reason))
        # Where the units of a slot are: the wheel knows the last one of a chain, each unit the one
        # before it. Units delivered before the clock was set back are in no chain.
        self.waiting = 0
        chained = []
        wrong = 0
        occupied = wheel.occupied(checkpoint.read_time)
        if self._crashed and any(slot.last >= units.end for _, slot in occupied):
            self.waiting = sum(slot.messages for _, slot in occupied)
            return  # the wheel is ahead of the log: a start rebuilds it
        # After a crash, a start links these to their slots.
        flushed = checkpoint.log_flushed if self._crashed else units.end
        unlinked = np.unique(slots[positions >= flushed])
        for time, slot in occupied:
            if time // precision in unlinked:
                self.waiting += max(slot.messages, 0)
                continue
            of_slot = np.flatnonzero(slots == time // precision)
            chain = list(_chain(positions, rows, of_slot, slot.last))
            whole = (
                bool(chain)
                and rows["previous"][chain[-1]] == NOWHERE
                and positions[chain[-1]] == slot.first
                and slot.messages == sum(-1 if rows["magic"][n] & DELETE else 1 for n in chain)
            )
            wrong += not whole
            chained += chain
            self.waiting += max(slot.messages, 0)
        waits = (slots * precision >= max(checkpoint.read_time, 0)) & ~np.isin(slots, unlinked)
        unknown = np.setdiff1d(np.flatnonzero(waits), chained)
        wheel_path = self._root / "timerwheel"
        if wrong:
            reason = f"{wrong} slots do not lead to their messages in the timer log"
            self.problems.append(TimerProblem(wheel_path, reason))
        if len(unknown):
            reason = f"{len(unknown)} messages that wait are in no slot"
            self.problems.append(TimerProblem(wheel_path, reason))
        lost = len(chained) - self._with_records(rows[np.array(chained, np.int64)])
        if lost:
            reason = f"{lost} of {len(chained)} messages that wait are not in the commit log"
            self.problems.append(TimerProblem(self._root / "timerlog", reason))

    def _with_records(self, units: npt.NDArray[Any]) -> int:
        """Return how many of these units point at a record of the commit log."""
        good = 0
        for file in self._log_files:
            if file.size < MIN_RECORD:
                continue
            physical = units["physical"].astype(np.int64)
            at = physical - file.base
            inside = (at >= 0) & (at <= file.size - MIN_RECORD)
            if not inside.any():
                continue
            mapped = DryFiles().open(file.path, file.base, file.size)
            try:
                at = at[inside]
                size = np.ndarray((file.size - 3,), ">i4", mapped.view, 0, (1,))[at]
                magic = np.ndarray((file.size - 3,), ">u4", mapped.view, 0, (1,))[at + 4]
                own = np.ndarray((file.size - 7,), ">i8", mapped.view, 0, (1,))[at + 28]
                fits = ((magic == MAGIC_V1) | (magic == MAGIC_V2)) & (own == physical[inside])
                good += int(np.count_nonzero(fits & (size == units["length"][inside])))
            finally:
                mapped.close()
        begin = self._log_files[0].base if self._log_files else 0
        expired = (units["physical"] >= 0) & (units["physical"] < begin)
        return good + int(np.count_nonzero(expired))


def _all_units(log: TimerLog) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Return the position of the first unit of each file, and its units."""
    for file in log.files:
        count = log.units_in(file)
        yield file.base_offset, unit_array(file.view, count).copy()


def _chain(
    positions: npt.NDArray[Any], rows: npt.NDArray[Any], of_slot: npt.NDArray[Any], last: int
) -> Iterator[int]:
    """Return the numbers of the units of one slot, the newest first, as far as the links lead."""
    numbers = {int(positions[n]): int(n) for n in of_slot}
    position = last
    while position in numbers:
        number = numbers[position]
        yield number
        previous = int(rows["previous"][number])
        if previous >= position:
            return
        position = previous
