"""The running brokers that a stream reads, and the current ends of their queues."""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from pocketmq.client.errors import BrokerNotFound, RemotingError
from pocketmq.spark.live.errors import BrokersNotRead
from pocketmq.spark.live.partition import LivePartition, LiveRange
from pocketmq.spark.live.planning import check_names, check_sql, check_topics, queues_asked_for
from pocketmq.spark.live.queues import Brokers, LiveQueue
from pocketmq.spark.live.splitting import split
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.spark.options.options import Options
from pocketmq.spark.store_plans import limits_per_store
from pocketmq.spark.streams.stream_queues import Lose, LoseBetween, QueueEnds, Span, lose_of
from pocketmq.store.scan.continuity import (
    KnownQueue,
    Replaced,
    compare,
    gone,
    mark_of_empty,
    missing,
)
from pocketmq.store.scan.planning.offsets import LATEST, OffsetBounds, resolve
from pocketmq.store.scan.stream_offsets import Mark, Position, StreamQueue
from pocketmq.store.store_lock import Recovery

_LOOK_AGAIN_SECONDS: Final = 0.5

T = TypeVar("T")


class StreamBrokers:
    """The brokers of one stream, as `StreamQueues` asks for them.

    Attributes:
        brokers: those registered at the last `look`, as far as it asked.
        queues: those of the last `look`, including queues without messages and queues not
            requested.
    """

    def __init__(self, options: Options, live: LiveOptions) -> None:
        self.brokers: frozenset[str] = frozenset()
        self.queues: list[LiveQueue] = []
        self._options = options
        self._live = live
        self._found: dict[StreamQueue, LiveQueue] = {}

    def where(self, broker: str) -> str:
        """Return the description of a broker for an error."""
        return f"broker {broker}"

    def missing(self, broker: str) -> BrokersNotRead:
        """Return the error for a broker that is not registered."""
        reason = (
            f"the stream has read from the broker {broker}, which is not registered for "
            f"{self._live.timeout:g} s. Start it, or set failOnDataLoss to false"
        )
        return self._error(reason)

    def check_names(self, lose: Lose) -> None:
        """Raise OptionError for brokers, topics and queues that are named but do not exist."""
        self._run(self._check_names())

    def look(self, expected: Collection[str] = ()) -> dict[StreamQueue, QueueEnds]:
        """Ask the brokers. A name server removes a stopped broker at once, so wait within the
        timeout for `expected` brokers.

        Raises:
            BrokersNotRead: the name servers or brokers did not answer, or refused.
        """
        self.queues = self._run(self._look(expected))
        # A queue without messages does not exist yet, as in the files of a broker.
        self._found = {queue.name: queue for queue in self.queues if queue.max_offset}
        return {
            name: QueueEnds(queue.min_offset, queue.max_offset, queue.max_offset)
            for name, queue in self._found.items()
            if self._options.wants(queue.broker, queue.topic, queue.queue_id)
        }

    def recovery(self, broker: str) -> Recovery:
        """Return no recovery: a broker that answers has recovered."""
        return Recovery.NONE

    def stored_from(self, queues: Iterable[StreamQueue], time: int) -> Mapping[StreamQueue, int]:
        """Return for each queue the offset of the first message stored at a time (ms) or later."""
        return self._run(self._stored_from(queues, time))

    def log_begins(self, queues: Collection[StreamQueue]) -> dict[StreamQueue, int | None]:
        """Return for each queue the physical offset at which its broker's log begins; None if the
        client may not query it."""
        if not queues:
            return {}
        begins = self._run(self._log_begins({queue.broker for queue in queues}))
        return {queue: begins[queue.broker] for queue in queues}

    def marks(self, offsets: Mapping[StreamQueue, int]) -> Mapping[StreamQueue, Mark]:
        """Return the marks of the messages before some offsets, or at them if those before have
        expired, or that neither exists."""
        places = {
            queue: max(at - 1, self._found[queue].min_offset)
            for queue, at in offsets.items()
            if queue in self._found
        }
        found = self._marks_at(places)
        for queue in places.keys() - found.keys():
            ends = self._found[queue]
            empty = mark_of_empty(offsets[queue], ends.min_offset, ends.max_offset)
            if empty is not None:
                found[queue] = empty
        return found

    def replaced(self, read: Mapping[StreamQueue, Position]) -> Mapping[StreamQueue, Replaced]:
        """Return the queues that do not match the marks of positions."""
        marks = {name: at.mark for name, at in read.items() if at.mark is not None}
        found: dict[StreamQueue, Replaced] = {}
        known = {queue.name for queue in self.queues}
        topics = {(queue.topic, queue.broker) for queue in self.queues}
        for name, mark in marks.items():
            if name not in known and mark.stored:
                found[name] = gone(mark, may_return=(name.topic, name.broker) in topics)
        found |= self._emptied(
            {name: marks[name] for name in (marks.keys() & known) - found.keys()}
        )
        here = {name: mark for name, mark in marks.items() if name in self._found}
        now = self._marks_at({name: mark.offset for name, mark in here.items()})
        doubtful = {name: mark for name, mark in here.items() if now.get(name) != mark}
        firsts = self._marks_at({name: self._found[name].min_offset for name in doubtful})
        expired = {name.topic for name in doubtful.keys() - now.keys() if marks[name].stored}
        created = self._run(self._created(expired)) if expired else {}
        for name, mark in doubtful.items():
            queue = self._found[name]
            bounds = queue.min_offset, queue.max_offset
            at = created.get((name.topic, name.broker), 0)
            state = KnownQueue(*bounds, firsts.get(name), now.get(name), at)
            other = compare(read[name].offset, mark, state)
            if other is not None:
                found[name] = other
        return found

    def _emptied(self, marks: Mapping[StreamQueue, Mark]) -> Mapping[StreamQueue, Replaced]:
        """Return the queues that lost the messages read from them, but not by expiry: they have no
        message, though their brokers' logs go further back."""
        empty = {name: mark for name, mark in marks.items() if name not in self._found}
        if not empty:
            return {}
        begins = self._run(self._log_begins({name.broker for name in empty}))
        return {
            name: other
            for name, mark in empty.items()
            if (begin := begins[name.broker]) is not None and (other := missing(mark, begin))
        }

    async def _log_begins(self, names: Collection[str]) -> dict[str, int | None]:
        async with Brokers(self._live) as brokers:
            return {name: await brokers.log_begin(name) for name in names}

    async def _created(self, topics: Collection[str]) -> dict[tuple[str, str], int]:
        async with Brokers(self._live) as brokers:
            return await brokers.created(topics)

    def _marks_at(self, places: Mapping[StreamQueue, int]) -> dict[StreamQueue, Mark]:
        if not places:
            return {}
        return self._run(self._ask_marks(places))

    async def _ask_marks(self, places: Mapping[StreamQueue, int]) -> dict[StreamQueue, Mark]:
        async with Brokers(self._live) as brokers:
            return await brokers.marks(places)

    def partitions(
        self, wanted: Mapping[StreamQueue, Span], lose: LoseBetween
    ) -> Iterator[LivePartition]:
        """Split the ranges to read from queues that the last `look` found."""
        return self.split(wanted.items(), lose)

    def split(
        self, wanted: Iterable[tuple[StreamQueue, Span]], lose: LoseBetween
    ) -> Iterator[LivePartition]:
        """Do the same for queues that may have several spans."""
        ranges = []
        for queue, (begin, stop) in wanted:
            starting = OffsetBounds(LATEST, {queue.topic: {queue.queue_id: begin}})
            ending = OffsetBounds(LATEST, {queue.topic: {queue.queue_id: stop}})
            found = resolve(self._found[queue], starting, ending, lose_of(queue.broker, lose))
            bounds = (found.start or 0, found.stop or 0)
            ranges.append(LiveRange(queue.broker, queue.topic, queue.queue_id, *bounds))
        yield from split(ranges, limits_per_store(self._options, 1))

    async def _look(self, expected: Collection[str]) -> list[LiveQueue]:
        deadline = clock.monotonic() + self._live.timeout
        async with Brokers(self._live) as brokers:
            while True:
                left = deadline - clock.monotonic()
                try:
                    queues = await queues_asked_for(brokers, self._options)
                except BrokerNotFound:  # its master is down, but a replica is not
                    if left <= 0:
                        raise
                else:
                    # Querying topic routes needs only the right to read the topics.
                    self.brokers = frozenset(queue.broker for queue in queues)
                    if not set(expected) <= self.brokers:
                        self.brokers |= await brokers.registered()
                    if set(expected) <= self.brokers or left <= 0:
                        return queues
                await asyncio.sleep(min(_LOOK_AGAIN_SECONDS, max(left, 0)))

    async def _check_names(self) -> None:
        async with Brokers(self._live) as brokers:
            queues = await queues_asked_for(brokers, self._options)
            await check_topics(brokers, queues, self._options)
            await check_sql(brokers, queues, self._live)
        check_names(queues, self._options)

    async def _stored_from(
        self, queues: Iterable[StreamQueue], time: int
    ) -> Mapping[StreamQueue, int]:
        async with Brokers(self._live) as brokers:
            return await brokers.stored_from([self._found[queue] for queue in queues], time)

    def _run(self, asking: Coroutine[Any, Any, T]) -> T:
        """Return what brokers answer. Raises BrokersNotRead."""
        try:
            return asyncio.run(asking)
        except RemotingError as error:
            raise self._error(error) from error

    def _error(self, why: object) -> BrokersNotRead:
        return BrokersNotRead(self._live.connection.namesrv, "cannot look at the queues", why)
