"""The progress of timed messages, as masters report it to their slaves."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, Self

from msgspec import field

from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.errors import BodyError

_FIELDS: Final = Struct(">7q")


class TimerCheckpointBody(NamedTuple):
    """GET_TIMER_CHECK_POINT: 56 bytes, not JSON.

    Attributes:
        read_time: messages of all slots before this time (Unix ms) are delivered.
        log_flushed: position in the timer log.
        queue_offset: messages of the timer topic before this queue offset are entered.
        master_queue_offset: the same of the master that the answering broker copies.
    """

    read_time: int
    log_flushed: int
    queue_offset: int
    master_queue_offset: int
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the 56 bytes."""
        return _FIELDS.pack(*self)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read them. Raises BodyError."""
        if len(data) < _FIELDS.size:
            raise BodyError(f"a timer checkpoint of {len(data)} bytes, not {_FIELDS.size}")
        return cls(*_FIELDS.unpack_from(data))


class TimerMetric(Body):
    """The number of pending timed messages of a topic."""

    count: int = 0
    time_stamp: int = 0


class TimerMetricsSerializeWrapper(Body):
    """GET_TIMER_METRICS: by topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, TimerMetric] = field(default_factory=dict)
