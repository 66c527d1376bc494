"""Consumer groups: a list with lags, and one group with its clients, queues, and lag over time."""

from __future__ import annotations

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.system_names import is_users_group
from pocketmq.client.admin.traffic import Speed, each
from pocketmq.client.errors import SubscriptionGroupNotExist
from pocketmq.dashboard.history import GroupPoint, History, Span
from pocketmq.dashboard.views.listing import Listing, matching, page_of
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.consumer import ConsumerConnection, OffsetWrapper
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """A group: its online clients, its lag, its rates, and its lag over the last hour."""

    group: str
    clients: int
    lag: int | None
    speed: Speed | None
    recent: list[float]


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """One group; `connected` is None if no client is online."""

    group: str
    config: SubscriptionGroupConfig
    connected: ConsumerConnection | None
    queues: list[tuple[MessageQueue, OffsetWrapper]]
    speed: Speed | None
    points: list[GroupPoint]

    @property
    def lag(self) -> int:
        """The stored messages that the group has not consumed yet."""
        return sum(progress.lag for _, progress in self.queues)

    @property
    def retry_topic(self) -> str:
        """The topic of messages that wait for a retry."""
        return f"{RETRY_PREFIX}{self.group}"


async def groups_view(
    admin: Admin, history: History, *, text: str = "", all: bool = False, page: int = 1
) -> Listing[GroupRow]:
    """Return a page of the groups whose names contain `text`; `all`: including those of brokers and
    tools.

    Sorted by the lag at the last sample, the largest first.
    """
    names = [name for name in await admin.groups() if all or is_users_group(name)]
    names.sort(key=lambda name: (-(history.lag(name) or 0), name))
    listing = page_of(matching(names, text), page)

    async def row(group: str) -> GroupRow:
        connected = await online(admin, group)
        stats = await admin.consume_stats(group)
        return GroupRow(
            group=group,
            clients=0 if connected is None else len(connected.connection_set),
            lag=stats.lag,
            speed=history.group_speed(group),
            recent=history.lags(group),
        )

    rows = await each(listing.entries, row)
    return Listing(
        entries=[
            rows.get(name) or GroupRow(group=name, clients=0, lag=None, speed=None, recent=[])
            for name in listing.entries
        ],
        page=listing.page,
        pages=listing.pages,
        total=listing.total,
    )


async def group_view(admin: Admin, history: History, group: str, span: Span) -> GroupView:
    """Return one group. Raises SubscriptionGroupNotExist."""
    config = (await admin.groups()).get(group)
    if config is None:
        raise SubscriptionGroupNotExist(f"consumer group {group} does not exist")
    return GroupView(
        group=group,
        config=config,
        connected=await online(admin, group),
        queues=sorted((await admin.consume_stats(group)).offset_table.items()),
        speed=history.group_speed(group),
        points=history.group(group, span),
    )
