"""Chooses the queue of a sharding key, so that messages with equal keys stay in order in one queue.

A selector is any function of (queues, message, key) that returns one of the queues. The two here
depend only on the key and the list of queues: all producers of a topic, in any process, choose the
same queue as long as the topic's queues do not change.

While a broker is down but still in the route, its queues stay in the list, and sends with its keys
fail. When it leaves the route or becomes read-only, and again when it returns, keys move to other
queues and their order is not kept, as with the Java client. To keep it, the list must be fixed: use
an order topic (ORDER_TOPIC_CONFIG and orderMessageEnable of the name server), or a `queue` that the
application chooses. Then sends to a broker that is down fail until it is back.
"""

from __future__ import annotations

import hashlib
import inspect
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from struct import Struct

from pocketmq.client.errors import InvalidMessage
from pocketmq.client.parameters import shown, text
from pocketmq.message import properties as names
from pocketmq.message.message import Message, MessageQueue
from pocketmq.message.tags import MAX_REMEMBERED, string_hash

ShardingKey = str | int
Selector = Callable[[Sequence[MessageQueue], Message, ShardingKey], MessageQueue]

#: Virtual nodes per queue on the ring of `by_consistent_hash`.
VIRTUAL_NODES = 64

_first_word = Struct(">Q").unpack_from


def key_property(key: ShardingKey | None) -> str:
    """Encode the property that holds a message's key; raises InvalidMessage."""
    if key is None or key == "":
        return ""
    value = str(key)
    if names.NAME_VALUE_SEPARATOR in value or names.PROPERTY_SEPARATOR in value:
        raise InvalidMessage(f"key {shown(key)} has a character that separates properties")
    return f"{names.SHARDING_KEY}\x01{value}\x02"


def by_hash(queues: Sequence[MessageQueue], _message: Message, key: ShardingKey, /) -> MessageQueue:
    """Return the queue that the Java client chooses for an equal String, Integer or Long.

    Reference: SelectMessageQueueByHash over `hashCode`. When the number of queues changes, nearly
    every key moves.
    """
    # Java takes the absolute value of the remainder, which has the sign of the number.
    return queues[abs(java_hash(key)) % len(queues)]


def by_consistent_hash(
    queues: Sequence[MessageQueue], _message: Message, key: ShardingKey, /
) -> MessageQueue:
    """Return the next queue on a hash ring: when a queue is added or removed, only its share of the
    keys moves."""
    places, owners = _ring(tuple(queues))
    index = bisect_left(places, _place(str(key)))
    return owners[index % len(owners)]


_SELECTORS: dict[str, Selector] = {"hash": by_hash, "consistent": by_consistent_hash}


def selector_named(selector: str | Selector) -> Selector:
    """Return the selector named "hash" or "consistent", or the given function, which then raises
    InvalidMessage unless it chooses one of the queues. Raises TypeError, also for a function with
    other parameters, and ValueError."""
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
        return partial(_checked, selector)
    try:
        return _SELECTORS[text("queue_selector", selector)]
    except KeyError:
        known = ", ".join(map(repr, _SELECTORS))
        raise ValueError(
            f"queue_selector {selector!r} is none of {known}, nor a function"
        ) from None


def _checked(
    selector: Selector, queues: Sequence[MessageQueue], message: Message, key: ShardingKey
) -> MessageQueue:
    queue = selector(queues, message, key)
    if queue not in queues:
        raise InvalidMessage(
            f"the selector chose {queue} for key {key!r}, which is not a queue of {message.topic}"
        )
    return queue


def java_hash(key: ShardingKey) -> int:
    """Return Java's `hashCode` of a String, Integer or Long, as a signed 32-bit number."""
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
