"""Deliberate bugs, each of which breaks one promise: the campaign must find them.

`tell` changes the classes of the process that calls it, which runs the broker afterwards. `found`
matches what the campaign says.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from unittest import mock

from pocketmq.broker.pop.revive import ReviveService
from pocketmq.broker.processors.send.end_transaction import EndRequest, EndTransactionProcessor
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.transactions.ops import Ops
from pocketmq.message import sysflag
from pocketmq.message.record import Record
from pocketmq.remoting.serving.request import Response
from pocketmq.store import message_store
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.log_walk import LogWalk
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_checkpoint import TimerCheckpoint

#: The timerPrecisionMs of the campaign.
TIMER_SLOT_MS: Final = 100


class Lie(NamedTuple):
    tell: Callable[[], None]
    found: str


def _forget_last_entries() -> None:
    """Recovery does not enter the last three records into their queues."""
    honest = LogWalk.__iter__

    def records(walk: LogWalk) -> Iterator[Record]:
        held: deque[Record] = deque()
        for record in honest(walk):
            held.append(record)
            if len(held) > 3:
                yield held.popleft()

    mock.patch.object(LogWalk, "__iter__", records).start()


def _forget_overdue_timers() -> None:
    """What fell due while no broker ran counts as delivered."""
    honest = TimerCheckpoint.open

    def open_(checkpoint: TimerCheckpoint) -> None:
        honest(checkpoint)
        # Where a slot begins: between two of them it would also deliver too early.
        now = time.time_ns() // 1_000_000
        checkpoint.read_time = max(checkpoint.read_time, now - now % TIMER_SLOT_MS)
        checkpoint.seal = 0  # or the start sees it

    mock.patch.object(TimerCheckpoint, "open", open_).start()


def _forget_open_transactions() -> None:
    """All half messages from before the start count as ended."""
    honest = Ops.load

    def load(ops: Ops, queue_offset: int, passed: int) -> None:
        honest(ops, queue_offset, passed)
        ops.ended.update(range(100_000))

    mock.patch.object(Ops, "load", load).start()


def _keep_offsets_in_memory() -> None:
    """Offsets are not written when they should be."""

    async def flush(offsets: ConsumerOffsets) -> None:
        pass

    mock.patch.object(ConsumerOffsets, "flush", flush).start()


def _bring_deleted_topics_back() -> None:
    """What recovery finds of deleted topics stays in their queues."""

    def delete_deleted_queues(store: MessageStore, deleted: Mapping[str, int]) -> Iterator[None]:
        return iter(())

    mock.patch.object(MessageStore, "delete_deleted_queues", delete_deleted_queues).start()
    # Recovery builds the queues of deleted topics, too.
    mock.patch.object(message_store, "read_deleted_topics", return_value={}).start()
    # Without the mark of what has its entries, a start reads the log of deleted topics again.
    mock.patch.object(Checkpoint, "mark_entered").start()


LIES: Final = {
    "forget last entries": Lie(_forget_last_entries, "."),  # there is no end to what it breaks
    "forget overdue timers": Lie(
        # A recall that is forgotten shows in the message that it took back.
        _forget_overdue_timers,
        r"\(timed.* is not delivered|was recalled, and is at",
    ),
    "forget open transactions": Lie(
        _forget_open_transactions, r"\(committed.* is not delivered|has already ended"
    ),
    "keep offsets in memory": Lie(_keep_offsets_in_memory, "the offset of"),
    "bring deleted topics back": Lie(
        _bring_deleted_topics_back, "was deleted with its topic|Brief.* has the messages"
    ),
}


def _deliver_what_is_rolled_back() -> None:
    """Every end of a transaction is a commit."""
    honest = EndTransactionProcessor.end_many

    def end_many(
        processor: EndTransactionProcessor, requests: Sequence[EndRequest]
    ) -> Sequence[Response | None]:
        for request in requests:
            request.header.commit_or_rollback = sysflag.TRANSACTION_COMMIT
        return honest(processor, requests)

    mock.patch.object(EndTransactionProcessor, "end_many", end_many).start()


def _forget_what_is_popped() -> None:
    """Popped messages that nobody acknowledges do not come back."""
    mock.patch.object(ReviveService, "start").start()


def _commit_ahead() -> None:
    """A committed offset is three messages further."""
    honest = ConsumerOffsets.commit

    def commit(
        offsets: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        honest(offsets, group, topic, queue_id, offset + 3)

    mock.patch.object(ConsumerOffsets, "commit", commit).start()


#: Those that the campaign of `mixed` must find.
MIXED_LIES: Final = {
    "deliver what is rolled back": Lie(_deliver_what_is_rolled_back, "was never committed, and"),
    "forget what is popped": Lie(
        _forget_what_is_popped, "was acknowledged, and (popped|simple) has not got it"
    ),
    "commit ahead": Lie(_commit_ahead, "is ahead: message .* is not handled"),
}
