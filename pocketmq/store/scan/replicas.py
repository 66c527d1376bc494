"""Finds stores that are copies of each other, such as those of a master and its slaves.

A slave copies the log byte by byte, so a record that both have is at the same offset and is the
same. Two brokers that only have the same name differ there: a record has the address of the broker
that stored it, and the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.selection import EVERYTHING, Range
from pocketmq.store.scan.scanned_store import ScannedStore

_NOTHING: Final = Range(0, 0)


class Diverged(Exception):
    """Two stores begin alike and end with other messages at the same offsets, as those of a master
    that has lost messages in a crash and of its slave."""

    def __init__(self, store: StoreSnapshot, other: StoreSnapshot) -> None:
        super().__init__(f"{store.root} and {other.root}")
        self.store = store
        self.other = other


def parts_to_read(stores: Sequence[StoreSnapshot]) -> list[Range]:
    """Return for each store between which physical offsets it is to be read, so that no message is
    read of two copies: of copies, all of the one whose log is the longest, and of the others what
    lies before it.

    Raises:
        Diverged: two were copies, and are not any more.
    """
    parts = [EVERYTHING] * len(stores)
    by_broker: dict[str, list[int]] = {}
    for number, store in enumerate(stores):
        by_broker.setdefault(store.broker_name, []).append(number)
    for numbers in by_broker.values():
        if len(numbers) < 2:
            continue
        kept: list[int] = []
        for number in sorted(numbers, key=lambda number: -_end(stores[number])):
            store = stores[number]
            begins = []
            for other in (stores[number] for number in kept):
                if are_copies(other, store):
                    begins.append(other.log.begin)
                elif begin_alike(other, store):
                    raise Diverged(store, other)
            if begins:
                parts[number] = Range(0, min(begins)) if store.log.begin < min(begins) else _NOTHING
            kept.append(number)
    return parts


def read_twice(
    places: Iterable[Sequence[ScannedStore]],
) -> tuple[ScannedStore, ScannedStore] | None:
    """Return two of one broker at different `places`, one of them an archive; None without such a
    pair. Their messages would be read twice, since `parts_to_read` knows stores only."""
    known: dict[str, list[ScannedStore]] = {}
    for stores in places:
        for store in stores:
            for other in known.get(store.broker_name, ()):
                if not (isinstance(store, StoreSnapshot) and isinstance(other, StoreSnapshot)):
                    return store, other
        for store in stores:
            known.setdefault(store.broker_name, []).append(store)
    return None


def are_copies(longer: StoreSnapshot, shorter: StoreSnapshot) -> bool:
    """Return whether the newest record of `shorter` that `longer` may have is the same in both."""
    last = max(shorter.queues.values(), key=QueueSnapshot.max_physical, default=None)
    if last is None or last.max_physical() < 0:
        return False
    for offset in range(last.known_end - 1, last.min_offset - 1, -1):
        physical, size = last.entry(offset)
        if size != FILLER_SIZE:
            record = _bytes(shorter, physical, size)
            return record is not None and record == _bytes(longer, physical, size)
    return False


def begin_alike(longer: StoreSnapshot, shorter: StoreSnapshot) -> bool:
    """Return whether the oldest record of any queue of `shorter` that `longer` may have is the same
    in both."""
    for queue in shorter.queues.values():
        offset = queue.first_from(longer.log.begin)
        if offset < queue.known_end:
            physical, size = queue.entry(offset)
            record = _bytes(shorter, physical, size)
            if record is not None and record == _bytes(longer, physical, size):
                return True
    return False


def _end(store: StoreSnapshot) -> int:
    """Return where the log ends, according to the wanted queues."""
    return max((queue.max_physical() for queue in store.queues.values()), default=-1)


def _bytes(store: StoreSnapshot, physical: int, size: int) -> bytes | None:
    segment = store.log.find(physical)
    if segment is None or physical + size > segment.base + segment.size:
        return None
    at = physical - segment.base
    return bytes(segment.view[at : at + size])
