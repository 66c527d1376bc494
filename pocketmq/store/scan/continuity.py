"""Whether a queue is still the one that a reader has read up to a position.

A topic that was deleted and created again numbers its messages from 0 again, so offsets alone would
skip new messages. Their physical offsets in the commit log differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pocketmq.store.scan.stream_offsets import Mark, Position, StreamQueue


class Replaced(NamedTuple):
    """What replaces the queue that was read.

    Attributes:
        reason: what was expected, and what was found.
        exists: whether the queue exists.
        newer_from: the offset from which its messages are newer than what was read; None if that
            has to be searched for by the time of the mark.
        may_return: whether the same queue may come back, as when a topic that has lost a queue gets
            it back, with its messages.
    """

    reason: str
    exists: bool
    newer_from: int | None
    may_return: bool = False


class KnownQueue(NamedTuple):
    """The state of a queue when a mark is compared with it.

    Attributes:
        begin, end: its offsets.
        first: the mark of its first message, if that is known.
        found: the mark of what it has at the offset of the mark, if that is known.
        created: the physical offset at which the log ended when the topic was created; 0 if that is
            not known.
    """

    begin: int
    end: int
    first: Mark | None
    found: Mark | None
    created: int = 0


def compare(offset: int, mark: Mark, queue: KnownQueue) -> Replaced | None:
    """Return why a queue is not the one that was read up to `offset`, with `mark`.

    None if it is, or if that cannot be told: the message may have expired, or the queue lost its
    newest messages in a crash.
    """
    if not mark.stored:
        if queue.begin >= mark.offset:
            return None
        reason = f"it began at {mark.offset}, and now it begins at {queue.begin}"
        return Replaced(reason, True, queue.begin)
    expected = (
        f"expected the message {mark.offset} at the physical offset {mark.physical}, stored at "
        f"{mark.stored}"
    )
    first, found = queue.first, queue.found
    is_new = first is not None and (first.physical > mark.physical or first.stored > mark.stored)
    if found is not None:
        if found == mark:
            return None
        what = f"it is at {found.physical}, stored at {found.stored}"
        return Replaced(f"{expected}, but {what}", True, queue.begin if is_new else None)
    if mark.physical < queue.created:
        reason = f"{expected}, but the topic was created at the physical offset {queue.created}"
        return Replaced(reason, True, queue.begin)
    if first is not None and queue.begin <= mark.offset and first.physical > mark.physical:
        reason = f"{expected}, but the queue begins at {first.physical} with {queue.begin}"
        return Replaced(reason, True, queue.begin)
    if mark.offset >= queue.end and is_new:
        return Replaced(f"{expected}, but the queue ends at {queue.end}", True, queue.begin)
    # All messages from that of the mark up to the position are in one file of the log, so they
    # expire together.
    if mark.offset < queue.begin < offset:
        return Replaced(f"{expected}, but the queue begins at {queue.begin}", True, queue.begin)
    return None


def newest_read(read: Mapping[StreamQueue, Position]) -> dict[str, int]:
    """Return, by broker, the highest physical offset of the marks of positions.

    A queue that has no position came since. Its first messages can have expired since only if the
    log now begins after that offset.
    """
    newest: dict[str, int] = {}
    for queue, (_, mark) in read.items():
        if mark is not None:
            newest[queue.broker] = max(mark.physical, newest.get(queue.broker, 0))
    return newest


def mark_of_empty(offset: int, begin: int, end: int) -> Mark | None:
    """Return the mark of a queue from `begin` to `end` whose messages before an offset have all
    expired; None if it has messages, or never had one."""
    return Mark(offset, 0, 0) if 0 < offset == begin == end else None


def gone(mark: Mark, *, may_return: bool = False) -> Replaced:
    """Return what to say of a queue that does not exist any more."""
    reason = (
        f"expected the message {mark.offset} at the physical offset {mark.physical}, but there is "
        "no such queue"
    )
    return Replaced(reason, False, None, may_return)


def missing(mark: Mark, log_begin: int) -> Replaced | None:
    """Return why a queue without any entry is not the one that `mark` was taken of. None if the
    commit log begins after the message: official brokers remove a queue when all its messages
    have expired, and it may come back."""
    return None if not mark.stored or mark.physical < log_begin else gone(mark)
