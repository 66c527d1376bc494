"""Whether a unit of the timer log is the one that its message got.

Units have no checksum. Those not flushed before a crash are compared with the commit log, so that
damage delays no message: it enters again.
"""

from __future__ import annotations

from pocketmq.message import properties as names
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.timer.timer_log import DELETE, TimerUnit


def fits_its_message(unit: TimerUnit, log: CommitLog, latest: int) -> bool:
    """Return whether `log` has the message, and the unit has it delivered at its time or stored
    again before; `latest` (ms) is when the newest unit can have entered."""
    if unit.entered > latest:
        return False
    if 0 <= unit.physical_offset < log.min_offset:
        return True  # it has expired
    try:
        record = decode(log.record_at(unit.physical_offset), check_crc=False)
    except (RecordNotFound, RecordError):
        return False
    if record.size != unit.size or record.topic != TIMER_TOPIC:
        return False
    properties = record.properties
    if bool(unit.magic & DELETE) != (names.TIMER_DEL_UNIQKEY in properties):
        return False
    time = _time_of(record)
    # A late message entered a slot after its own.
    return unit.slot <= time or time < unit.entered


def _time_of(record: Record) -> int:
    """Return when a timed message is due; -1 if it does not say so."""
    text = record.properties.get(names.TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
