"""What replaces a damaged range of the commit log, and what was lost there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.message.record_layout import BLANK_MAGIC, MIN_BLANK
from pocketmq.store.check.log_check import Damage
from pocketmq.store.log.padding import MIN_PADDING, padding, padding_for

_LARGEST: Final = 1024 * 1024  # bytes of one padding; recovery reads each whole


class LostMessage(NamedTuple):
    """A message in a damaged range, as one of its queues or its own head names it; `light` has its
    queue offsets in other queues, which are light ones."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    light: tuple[tuple[str, int], ...] = ()

    @property
    def is_light(self) -> bool:
        """Whether this is about its place in a light queue."""
        return self.topic.startswith(LIGHT_QUEUE_PREFIX)

    @property
    def end(self) -> int:
        """Physical offset after it."""
        return self.physical_offset + self.size

    def padding(self, timestamp: int) -> bytes:
        """Return the record that replaces it. Raises ValueError if that does not fit."""
        return padding_for(
            self.physical_offset, self.size, timestamp, self.topic, self.queue_id,
            self.queue_offset, dict(self.light),
        )  # fmt: skip


class Patch(NamedTuple):
    """Bytes for a physical offset; the bytes that they replace end at `end`."""

    physical_offset: int
    end: int
    content: bytes


def by_file(damage: Iterable[Damage], file_size: int) -> Iterator[tuple[int, int]]:
    """Return damaged ranges [begin, end) as parts within one file each."""
    for begin, end in ((each.begin, each.end) for each in damage):
        at = begin
        while at < end:
            behind = min(end, at // file_size * file_size + file_size)
            yield at, behind
            at = behind


def patches(
    begin: int, end: int, file_size: int, lost: Sequence[LostMessage], timestamp: int
) -> Iterator[Patch]:
    """Return what replaces the range [begin, end) of one file: a record for each of the messages
    `lost` there, and padding between them. What is left at the end of the file becomes a blank.

    `timestamp` (ms) is the store timestamp of all of these records.
    """
    at = begin
    for message in _fitting(begin, end, file_size, lost):
        yield from _unknown(at, message.physical_offset, timestamp)
        yield Patch(message.physical_offset, message.end, message.padding(timestamp))
        at = message.end
    if at == end:
        return
    if end % file_size == 0:
        size = end - at
        yield Patch(at, end, size.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big"))
    else:
        yield from _unknown(at, end, timestamp)


def _fitting(
    begin: int, end: int, file_size: int, lost: Sequence[LostMessage]
) -> Iterator[LostMessage]:
    """Return the messages that can have a record of their own: they do not overlap, have room for
    their topic, and leave no rest that is too small for padding."""
    at = begin
    at_file_end = end % file_size == 0
    for message in _whole(lost):
        between, rest = message.physical_offset - at, end - message.end
        if between < 0 or 0 < between < MIN_PADDING:
            continue
        if rest < MIN_BLANK if at_file_end else 0 < rest < MIN_PADDING:
            continue
        try:
            message.padding(0)
        except ValueError:
            continue
        yield message
        at = message.end


def _whole(lost: Sequence[LostMessage]) -> Iterator[LostMessage]:
    """Return each message once, in the order of the log, with all its queues."""
    by_place = groupby(
        sorted(lost, key=lambda each: (each[:2], each.is_light)), lambda each: each[:2]
    )
    for _, places in by_place:
        first, *others = places
        light = ((each.topic, each.queue_offset) for each in others if each.is_light)
        yield first._replace(light=tuple(light))


def _unknown(begin: int, end: int, timestamp: int) -> Iterator[Patch]:
    at = begin
    while at < end:
        size = min(_LARGEST, end - at)
        if 0 < end - at - size < MIN_PADDING:
            size -= MIN_PADDING
        yield Patch(at, at + size, padding(at, size, timestamp))
        at += size
