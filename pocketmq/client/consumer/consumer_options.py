"""The options of both kinds of consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self, TypeAlias

import msgspec

from pocketmq.client.consumer.consumer_event import ConsumerEvent
from pocketmq.client.consumer.fetch.pull_limiter import PullLimits
from pocketmq.client.namespace import Namespace
from pocketmq.client.offsets import Position, check_position
from pocketmq.client.options import ClientOptions, check_options
from pocketmq.client.parameters import Seconds, flag, function, seconds, text
from pocketmq.client.validation import check_trace, consumer_group
from pocketmq.message.message import MessageQueue

ShareCallback: TypeAlias = Callable[[list[MessageQueue]], Awaitable[object] | object]
"""Called with queues that a consumer gains or loses; an awaitable result is awaited."""

#: How long a consumer waits for a name server by default, seconds.
START_TIMEOUT = 30.0


class ConsumerOptions(msgspec.Struct, frozen=True):
    """Checked options of a consumer; times in seconds. See PushConsumer.

    Attributes:
        owner: names the consumer in errors and logs.
        wire_group: the group's name on brokers, with the namespace.
        batch: most messages in one pull.
        commits: whether offsets are committed automatically.
        client: the options of every client.
    """

    owner: str
    group: str
    wire_group: str
    start: Position
    batch: int
    commits: bool
    commit_interval: float
    suspend: float
    share_polls: bool
    limits: PullLimits
    trace: bool | str
    on_event: Callable[[ConsumerEvent], object] | None
    on_assigned: ShareCallback | None
    on_revoked: ShareCallback | None
    client: ClientOptions

    @classmethod
    def checked(
        cls,
        consumer: type,
        group: str,
        *,
        start: Position,
        batch: int,
        commits: bool,
        commit_interval: float,
        suspend: Seconds,
        share_polls: bool,
        limits: PullLimits,
        trace: bool | str,
        on_event: Callable[[ConsumerEvent], object] | None,
        on_assigned: ShareCallback | None,
        on_revoked: ShareCallback | None,
        client: ClientOptions,
    ) -> Self:
        """Check the options that both kinds of consumers have; raises as PushConsumer does.

        The other arguments must have been checked.
        """
        consumer_group(text("group", group))
        check_options(consumer, client)
        client.setdefault("start_timeout", START_TIMEOUT)
        return cls(
            owner=f"{consumer.__name__}({group!r})",
            group=group,
            wire_group=Namespace(client.get("namespace", "")).wrap(group),
            start=check_position(start, "start"),
            batch=batch,
            commits=commits,
            commit_interval=commit_interval,
            suspend=seconds("suspend", suspend),
            share_polls=flag("share_polls", share_polls),
            limits=limits,
            trace=check_trace(trace),
            on_event=on_event if on_event is None else function("on_event", on_event),
            on_assigned=None if on_assigned is None else function("on_assigned", on_assigned),
            on_revoked=None if on_revoked is None else function("on_revoked", on_revoked),
            client=client,
        )
