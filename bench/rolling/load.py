"""What is sent: two topics, one without order and one in order by key, and the body of a message.

The topic without order is posted, that is lingers into batches that the client sends to whichever
broker takes them. In the ordered one each key has its queue for good, and each queue its lane: one
batch after another, and a batch that fails is sent again before the next one. Were keys hashed over
the queues that are writable at the moment, a key would move while its broker is away, and overtake
what still waits there.
"""

from __future__ import annotations

from enum import StrEnum
from struct import Struct

import msgspec

__all__ = ["BROKERS", "STAMP", "Flag", "Kind", "Load", "Tally"]

BROKERS = ("b0", "b1", "b2")
#: How a body begins: producer, sequence number in the topic, key, sequence number in the key.
STAMP = Struct(">HIII")


class Kind(StrEnum):
    """The topics; each has a group of its name, too."""

    FREE = "rolling_free"
    ORDERED = "rolling_ordered"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`rate` in messages/s of all producers and both topics together, half each; `size` of a body,
    bytes; `keys` of each producer; `commit_interval` of the consumers, seconds."""

    seconds: float = 180.0
    rate: float = 20_000.0
    size: int = 256
    producers: int = 2
    keys: int = 240
    commit_interval: float = 5.0


class Flag:
    """What became of one message: the bits of a byte."""

    ACKNOWLEDGED = 1
    #: Sent again by the application, because a send failed.
    SENT_AGAIN = 2


class Tally(msgspec.Struct):
    """What a producer has to say at its end.

    `latencies`: counts by bucket (bench.rolling.latency), by topic; `flags`: files with one byte of
    Flag bits per sequence number, by topic; `errors`: what sends failed with, messages of the topic
    without order and batches of the ordered one.
    """

    latencies: dict[str, dict[int, int]]
    flags: dict[str, str]
    errors: dict[str, int]
