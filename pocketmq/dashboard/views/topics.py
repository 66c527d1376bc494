"""Topics: a list, and one topic with its queues, configuration, and consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.system_names import users_topics
from pocketmq.client.admin.traffic import each
from pocketmq.client.consumer.similar_topics import most_alike
from pocketmq.client.errors import RemotingError
from pocketmq.dashboard.history import History, Span, TopicPoint
from pocketmq.dashboard.views.listing import Listing, matching, page_of
from pocketmq.message.limits import is_internal_topic
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.topic import TopicOffset, TopicStatsTable


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: its queues, their messages, and its rate; None for figures that brokers do not
    report."""

    topic: str
    queues: int | None
    messages: int | None
    last_stored: int | None
    rate: float | None


class GroupProgress(msgspec.Struct, frozen=True):
    """The progress of a group in one topic."""

    group: str
    lag: int


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. `points` is its rate over time; `configs` by broker."""

    topic: str
    configs: dict[str, TopicConfig]
    queues: list[tuple[MessageQueue, TopicOffset]]
    groups: list[GroupProgress]
    rate: float | None
    points: list[TopicPoint]

    @property
    def messages(self) -> int:
        """The messages that are stored."""
        return sum(bounds.max_offset - bounds.min_offset for _, bounds in self.queues)

    @property
    def last_stored(self) -> int | None:
        """The store time of the newest message, Unix ms."""
        return _last_stored([bounds for _, bounds in self.queues])


async def topics_view(
    admin: Admin, history: History, *, text: str = "", all: bool = False, page: int = 1
) -> Listing[TopicRow]:
    """Return a page of the topics whose names contain `text`; `all`: including the brokers' own."""
    names = await (admin.topics() if all else users_topics(admin))
    listing = page_of(matching(names, text), page)
    stats = await each(listing.entries, admin.topic_stats)
    rows = [_row(name, stats.get(name), history) for name in listing.entries]
    return Listing(entries=rows, page=listing.page, pages=listing.pages, total=listing.total)


def _row(name: str, stats: TopicStatsTable | None, history: History) -> TopicRow:
    bounds = [] if stats is None else [*stats.offset_table.values()]
    return TopicRow(
        topic=name,
        queues=None if stats is None else len(bounds),
        messages=None if stats is None else sum(q.max_offset - q.min_offset for q in bounds),
        last_stored=_last_stored(bounds),
        rate=None if stats is None else history.topic_rate(name),
    )


async def topic_view(admin: Admin, history: History, topic: str, span: Span) -> TopicView:
    """Return one topic. Raises TopicNotExist."""
    stats = await admin.topic_stats(topic)
    configs = await admin.topic_configs(topic)

    async def lag(group: str) -> int:
        return (await admin.consume_stats(group, topic)).lag

    lags = await each(await admin.groups_of_topic(topic), lag)
    return TopicView(
        topic=topic,
        configs=configs,
        queues=sorted(stats.offset_table.items()),
        groups=[GroupProgress(group, behind) for group, behind in lags.items()],
        rate=history.topic_rate(topic),
        points=history.topic(topic, span),
    )


def _last_stored(queues: Iterable[TopicOffset]) -> int | None:
    return max((bounds.last_update_timestamp for bounds in queues), default=0) or None


async def missing_topic(admin: Admin, topic: str) -> tuple[str, str | None] | None:
    """Return the command line's text for a topic that does not exist, and the topic that may be
    meant.

    None if the topic exists, or this user may not list topics.
    """
    try:
        names = await admin.topics()
    except RemotingError:
        return None
    if topic in names:
        return None
    own = [name for name in names if not is_internal_topic(name)]
    # Comparing thousands of names takes a while.
    near = next(iter(await asyncio.to_thread(most_alike, topic, own)), None)
    told = f"topic {topic} does not exist"
    return (told if near is None else f"{told}, did you mean {near}?"), near
