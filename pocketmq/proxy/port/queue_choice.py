"""Which queue a message group belongs to. No I/O.

Messages of a group must go to one queue to stay in order. The choice is the same as in the official
proxy, so that both proxies may be used together: Guava's consistent hash of Java's hash code of the
group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from pocketmq.client.producer.queue_choice import java_hash

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1
_MULTIPLIER: Final = 2862933555777941757


def consistent_hash(key: int, buckets: int) -> int:
    """Return the bucket, from 0 to `buckets` - 1, of a key; Guava's Hashing.consistentHash.

    When a bucket is added, only its share of the keys moves, into that bucket.
    """
    state = key & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / 2.0**31))
        if following >= buckets:
            return candidate
        candidate = following


def queue_of_group(queues: Sequence[T], group: str) -> T:
    """Return the queue of a message group; `queues` in the order of broker names and ids."""
    return queues[consistent_hash(java_hash(group), len(queues))]
