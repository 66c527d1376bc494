"""Namespaces: a prefix that separates the topics and groups of the tenants of a cluster.

| name | within namespace ns |
|---|---|
| orders | ns%orders |
| %RETRY%shop, %DLQ%shop | %RETRY%ns%shop, %DLQ%ns%shop |
| system topics and groups | unchanged |

Names are wrapped in requests and unwrapped in answers, so that application code never sees the
prefix. Reference: NamespaceUtil.
"""

from __future__ import annotations

from msgspec.structs import replace

from pocketmq.client.errors import InvalidName
from pocketmq.message import properties as names
from pocketmq.message.limits import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    IllegalName,
    check_topic,
    is_system_topic,
)
from pocketmq.message.message import Message, MessageQueue

SEPARATOR = "%"
_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)


class Namespace:
    """One namespace. An empty one is false and has no effect.

    Raises InvalidName for a name that cannot be part of a topic.
    """

    __slots__ = ("_prefix", "name", "property")

    def __init__(self, name: str = "") -> None:
        if name:
            try:
                check_topic(name)
            except IllegalName as error:
                raise InvalidName(f"namespace: {error}") from None
            if SEPARATOR in name:
                raise InvalidName(f"namespace {name!r} contains {SEPARATOR!r}")
        self.name = name
        self._prefix = f"{name}{SEPARATOR}"
        #: The namespace as it is encoded in a message's properties.
        self.property = f"{names.INSTANCE_ID}\x01{name}\x02" if name else ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def wrap(self, resource: str) -> str:
        """Return the name of a topic or group on the servers."""
        if not self.name or is_system_topic(resource) or resource.startswith(SYSTEM_GROUP_PREFIX):
            return resource
        kind, own = _split(resource)
        return resource if own.startswith(self._prefix) else f"{kind}{self._prefix}{own}"

    def unwrap(self, resource: str) -> str:
        """Return the application's name of a topic or group; names of other namespaces are not
        changed."""
        if not self.name:
            return resource
        kind, own = _split(resource)
        return f"{kind}{own.removeprefix(self._prefix)}"

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self.wrap(queue.topic))

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self.unwrap(queue.topic))

    def wrap_message(self, message: Message) -> Message:
        """Return a copy to send; the caller's message keeps its topic."""
        return replace(message, topic=self.wrap(message.topic))


def _split(resource: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource
