"""Which queue a sharding key belongs to, so that messages of one key stay in one queue, in order.

A selector is any function of (queues, message, key) that returns one of the queues. The two here
are pure functions of the key and of the list of queues: every producer of a topic, in whatever
process, chooses alike for as long as the topic keeps its queues.

A broker that is down keeps its queues in the list while the name server names it, and its keys
fail. When it leaves the route or may not be written, and again when it is back, keys move, and
order is not kept across that, as with the Java client. Where it has to be, the list must be fixed:
an order topic (ORDER_TOPIC_CONFIG and orderMessageEnable of the name server), or a `queue` that the
application chooses. Then sends to a broker that is away fail until it is back.
"""

from __future__ import annotations

import hashlib
import inspect
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct

from pocketmq.client.errors import InvalidMessage
from pocketmq.client.parameters import shown, text
from pocketmq.message import properties as names
from pocketmq.message.message import Message, MessageQueue
from pocketmq.message.tags import MAX_REMEMBERED, string_hash

ShardingKey = str | int
Selector = Callable[[Sequence[MessageQueue], Message, ShardingKey], MessageQueue]

#: Places of each queue on the ring of `by_consistent_hash`.
VIRTUAL_NODES = 64

_first_word = Struct(">Q").unpack_from


def key_property(key: ShardingKey | None) -> str:
    """The properties text by which consumers get the key of a message; raises InvalidMessage."""
    if key is None or key == "":
        return ""
    value = str(key)
    if names.NAME_VALUE_SEPARATOR in value or names.PROPERTY_SEPARATOR in value:
        raise InvalidMessage(f"key {shown(key)} has a character that separates properties")
    return f"{names.SHARDING_KEY}\x01{value}\x02"


def by_hash(queues: Sequence[MessageQueue], _message: Message, key: ShardingKey, /) -> MessageQueue:
    """The queue that the Java client chooses for an equal String, Integer or Long.

    Reference: SelectMessageQueueByHash over `hashCode`. When the number of queues changes, nearly
    every key moves.
    """
    number = java_hash(key)
    # Java's remainder has the sign of the number, and then its absolute value is taken.
    return queues[abs(number) % len(queues)]


def by_consistent_hash(
    queues: Sequence[MessageQueue], _message: Message, key: ShardingKey, /
) -> MessageQueue:
    """The next queue on a ring: when a queue comes or goes, only its share of the keys moves."""
    places, owners = _ring(tuple(queues))
    index = bisect_left(places, _place(str(key)))
    return owners[index % len(owners)]


_SELECTORS: dict[str, Selector] = {"hash": by_hash, "consistent": by_consistent_hash}


def selector_named(selector: str | Selector) -> Selector:
    """A selector as it is, or the one named "hash" or "consistent"; raises TypeError, ValueError,
    also for a function that takes other arguments."""
    if callable(selector):
        try:
            inspect.signature(selector).bind([], None, "")
        except ValueError:
            pass  # some built-in functions have no signature
        except TypeError:
            raise TypeError(
                "queue_selector is called with (queues, message, key), which "
                f"{shown(selector)} does not accept"
            ) from None
        return selector
    try:
        return _SELECTORS[text("queue_selector", selector)]
    except KeyError:
        known = ", ".join(map(repr, _SELECTORS))
        raise ValueError(
            f"queue_selector {selector!r} is none of {known}, nor a function"
        ) from None


def choose(
    selector: Selector, queues: Sequence[MessageQueue], message: Message, key: ShardingKey
) -> MessageQueue:
    """The selector's choice; raises InvalidMessage when it is not one of the queues."""
    queue = selector(queues, message, key)
    if selector is not by_hash and queue not in queues:
        raise InvalidMessage(
            f"the selector chose {queue} for key {key!r}, which is not a queue of {message.topic}"
        )
    return queue


def java_hash(key: ShardingKey) -> int:
    """`hashCode` of a String, or of an Integer or Long, as a signed 32-bit number."""
    if isinstance(key, str):
        return _hash_of_usual(key) if len(key) <= MAX_REMEMBERED else string_hash(key)
    if not isinstance(key, int):
        raise InvalidMessage(f"a sharding key is a str or an int, not {type(key).__name__}")
    number = key & 0xFFFF_FFFF
    if not -(2**31) <= key < 2**31:
        number ^= (key >> 32) & 0xFFFF_FFFF
    return number - 2**32 if number >= 2**31 else number


# A producer sees the same keys again and again, and a Java hash is a loop over characters: 1 to 3
# of the 6 us that a post by key takes.
_hash_of_usual = lru_cache(maxsize=16_384)(string_hash)


@lru_cache(maxsize=1024)
def _ring(queues: tuple[MessageQueue, ...]) -> tuple[list[int], list[MessageQueue]]:
    nodes = sorted(
        (_place(f"{queue.topic}@{queue.broker_name}@{queue.queue_id}#{node}"), queue)
        for queue in queues
        for node in range(VIRTUAL_NODES)
    )
    return [place for place, _ in nodes], [queue for _, queue in nodes]


def _place(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    place: int = _first_word(digest)[0]
    return place
