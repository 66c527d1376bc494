"""The results of putting and getting messages. Status names are RocketMQ's."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec


class PutStatus(Enum):
    """The outcome of a put."""

    PUT_OK = "PUT_OK"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    """The body, the properties or the whole record exceeds a limit."""
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """The store cannot write: disk full, a failed flush, or not open; or the queue of the message
    cannot get a file."""
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    """It is for a light queue that does not exist, and there are as many as allowed."""
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    """Too few replicas keep up with the log."""


class PutResult(msgspec.Struct, gc=False):
    """Where a message, or a batch of them, was stored.

    Attributes:
        physical_offset: of the (first) record in the commit log, bytes.
        queue_offset: of the (first) message in its queue; those of a batch follow each other.
        end_offset: physical offset after the last record: what `when_flushed` waits for.
        store_timestamp: Unix milliseconds, the same for all of a batch.
        physical_offsets: of every record of a batch; empty for a single message.
        remark: why it was not stored, as its sender is told: without paths.
    """

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    end_offset: int = -1
    store_timestamp: int = 0
    physical_offsets: Sequence[int] = ()
    remark: str = ""

    @property
    def ok(self) -> bool:
        """True when the message is stored (not yet necessarily flushed)."""
        return self.status is PutStatus.PUT_OK


class GetStatus(Enum):
    """The outcome of a get; the name is also the remark of a pull's answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct):
    """Messages of one queue: slices of the mapped commit log, or copies of small ones.

    A slice keeps its file mapped for as long as it lives, so send it or copy it, and let it go.

    Attributes:
        next_begin_offset: queue offset to go on from.
        min_offset, max_offset: of the queue; `max_offset` is the next one to be written.
        buffers: the records in order; adjacent records share one slice, and small ones that are
            apart share one copy.
        message_count, size: messages in `buffers`, and their bytes.
        behind: bytes of commit log behind the last message read (how far the reader lags).
        filter_work: what a filter took, in comparisons.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[bytes | memoryview] = []
    message_count: int = 0
    size: int = 0
    behind: int = 0
    filter_work: int = 0


class StoreCounters(msgspec.Struct):
    """Counts since the store was made; they only grow.

    Attributes not obvious from their names:
        entries_rebuilt: damaged consume-queue entries that were rebuilt from the log.
        messages_passed_over: messages that no reader can be given, since they are damaged.
    """

    messages_put: int = 0
    bytes_put: int = 0
    puts_refused: int = 0
    messages_got: int = 0
    bytes_got: int = 0
    gets_found: int = 0
    gets_missed: int = 0
    entries_rebuilt: int = 0
    messages_passed_over: int = 0
