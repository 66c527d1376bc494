"""Plans a read from brokers on the driver: turns the options into ranges of offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pocketmq.client.consumer.expression import SQL92
from pocketmq.client.errors import RemotingError
from pocketmq.message.limits import clusters_of
from pocketmq.spark.by_broker import ByBroker
from pocketmq.spark.live.errors import BrokersNotRead
from pocketmq.spark.live.partition import LiveRange
from pocketmq.spark.live.queues import Brokers, LiveQueue
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.spark.options.option_error import OptionError
from pocketmq.spark.options.options import Options
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.offsets import CLOCK_STEP_MS, resolve
from pocketmq.store.scan.query import listed
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.stream_offsets import StreamQueue

Lose = Callable[[int, RecordsLost], None]
Wants = Callable[[str, str, int], bool]


def live_ranges(
    options: Options, live: LiveOptions, wants: Wants, selection: Selection, lose: Lose
) -> list[LiveRange]:
    """Return the ranges to pull, from the queues as they are now.

    Args:
        wants: whether a queue (broker, topic, queue id) is to be read.
        selection: its offsets and store times narrow the ranges.
        lose: as in `pocketmq.store.scan.planning.offsets.resolve`.

    Raises:
        OptionError: a named broker, topic or queue does not exist.
        BrokersNotRead: the name servers or brokers did not answer, or refused.
        OSError: a file of TLS cannot be read.
    """
    seen = look(options, live, wants, selection.store_timestamp)
    check_names(seen.queues, options)
    ranges = []
    for queue in seen.queues:
        if wants(queue.broker, queue.topic, queue.queue_id):
            within = Range(seen.begins.get(queue.name), seen.ends.get(queue.name))
            ranges.append(range_of(queue, options, selection.queue_offset & within, lose))
    return ranges


class Seen(NamedTuple):
    """The queues of the requested topics, as brokers report them.

    Attributes:
        queues: in order, including those that are not wanted.
        begins, ends: offsets of the wanted queues outside of which nothing was stored in the
            requested times; empty if all times are requested.
    """

    queues: list[LiveQueue]
    begins: dict[StreamQueue, int]
    ends: dict[StreamQueue, int]


def look(options: Options, live: LiveOptions, wants: Wants, times: Range) -> Seen:
    """Ask the brokers. Raises as `live_ranges`; OptionError for a topic that no broker has, unless
    files are read too."""
    try:
        return asyncio.run(_look(options, live, wants, times))
    except RemotingError as error:
        what = "cannot plan a read"
        raise BrokersNotRead(live.connection.namesrv, what, error) from error


async def _look(options: Options, live: LiveOptions, wants: Wants, times: Range) -> Seen:
    begins: dict[StreamQueue, int] = {}
    ends: dict[StreamQueue, int] = {}
    async with Brokers(live) as brokers:
        queues = await queues_asked_for(brokers, options)
        if not options.reads_stores:
            await check_topics(brokers, queues, options)
        wanted = [queue for queue in queues if wants(queue.broker, queue.topic, queue.queue_id)]
        await check_sql(brokers, wanted, live)
        if times.start is not None:
            begins = await brokers.stored_from(wanted, times.start - CLOCK_STEP_MS)
        if times.stop is not None:
            ends = await brokers.stored_from(wanted, times.stop + CLOCK_STEP_MS)
    return Seen(queues, begins, ends)


def range_of(queue: LiveQueue, options: Options, within: Range, lose: Lose) -> LiveRange:
    """Return the part of a queue that the options select."""
    starting, ending = options.starting.of(queue.broker), options.ending.of(queue.broker)
    found = resolve(queue, starting, ending, named_loss(queue.broker, lose)) & within
    bounds = (found.start or 0, found.stop or 0)
    return LiveRange(queue.broker, queue.topic, queue.queue_id, *bounds)


def named_loss(broker: str, lose: Lose) -> Lose:
    """Return a `lose` whose errors name the broker."""

    def named(count: int, error: RecordsLost) -> None:
        reason = f"broker {broker}: {error.reason}"
        lose(count, RecordsLost(error.topic, error.queue_id, error.first, error.last, reason))

    return named


async def queues_asked_for(brokers: Brokers, options: Options) -> list[LiveQueue]:
    """Return the queues of the requested topics; a topic that does not exist has none. Raises
    RemotingError, see `Brokers`."""
    topics = options.named_topics()
    if not topics:
        known = await brokers.topics()
        asked = replace(options, clusters=options.clusters | clusters_of(known))
        topics = frozenset(filter(asked.wants_topic, known))
    return await brokers.queues(topics)


async def check_topics(brokers: Brokers, queues: Sequence[LiveQueue], options: Options) -> None:
    """Raise OptionError for a named topic without queues."""
    missing = sorted(options.named_topics() - {queue.topic for queue in queues})
    if missing:
        option = "subscribe" if options.topics is not None else "assign"
        known = await brokers.users_topics()
        reason = f"no such topic; the topics are: {listed(known)}"
        raise OptionError(option, missing[0], reason)


async def check_sql(brokers: Brokers, queues: Sequence[LiveQueue], live: LiveOptions) -> None:
    """Raise OptionError if a broker refuses the SQL92 condition. Each broker is asked once."""
    if live.expression.type != SQL92:
        return
    for queue in {queue.broker: queue for queue in queues}.values():
        why = await brokers.refusal(queue)
        if why is not None:
            raise OptionError("sql", live.expression.text, f"the broker {queue.broker}: {why}")


def check_names(queues: Sequence[LiveQueue], options: Options) -> None:
    """Raise OptionError for brokers and queues that are named but do not exist."""
    brokers = {queue.broker for queue in queues}
    topics: dict[str, set[tuple[str, int]]] = {}
    for queue in queues:
        topics.setdefault(queue.topic, set()).add((queue.broker, queue.queue_id))
    assigned: ByBroker[frozenset[int]] = options.queues or ByBroker()
    for option, named in (
        ("assign", assigned),
        ("startingOffsets", options.starting.offsets),
        ("endingOffsets", options.ending.offsets),
    ):
        for topic, broker, queue_ids in named:
            if broker and broker not in brokers:
                reason = f"no such broker has a queue; the brokers are: {listed(brokers)}"
                raise OptionError(option, broker, reason)
            for queue_id in sorted(queue_ids):
                where = f"{topic}/{broker}/{queue_id}" if broker else f"{topic}/{queue_id}"
                its = {
                    name
                    for name, number in topics.get(topic, ())
                    if number == queue_id and broker in ("", name)
                }
                if topic in topics and not its:
                    raise OptionError(option, where, "there is no such queue")
                if not any(options.wants(name, topic, queue_id) for name in its):
                    raise OptionError(option, where, "the queue is not read")
