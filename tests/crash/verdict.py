"""Compares what a broker serves after a restart with what was acknowledged before it."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from pocketmq.message.limits import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import GetTopicConfigRequestHeader

from . import deletions
from .ledger import BriefState, BriefTopic, Kind, Ledger, OffsetHistory, Sent, now_ms
from .shelf import Shelf, Stored, committed_offset, find
from .traffic import DELAYS, QUEUES, TOPICS

#: Queues where messages wait, which hold copies of them as well.
WAITING: Final = (
    (HALF_TOPIC, 0),
    (TIMER_TOPIC, 0),
    *((SCHEDULE_TOPIC, level) for level in range(len(DELAYS))),
)
OWN: Final = tuple((topic, queue_id) for topic in TOPICS for queue_id in range(QUEUES))
BRIEF: Final = tuple(
    (topic, queue_id) for topic in deletions.NAMES for queue_id in range(deletions.QUEUES)
)


class Copy(NamedTuple):
    """One place where consumers find a message."""

    topic: str
    queue_id: int
    queue_offset: int
    stored: Stored


class Verdict:
    """Looks at one store, again and again."""

    def __init__(self, ledger: Ledger, chance: random.Random, patience: float) -> None:
        """`patience`: seconds that what is due may take to be delivered."""
        self._ledger = ledger
        self._chance = chance
        self._patience = patience
        self._shelf = Shelf()
        self._copies: dict[int, list[Copy]] = {}

    async def find_faults(
        self, connection: Connection, *, again: int | None, queries: int
    ) -> list[str]:
        """Look at everything, at messages only where they are not older than the last `again` of a
        queue, and look up `queries` messages in the index."""
        try:
            faults = await self._read(connection, again)
            faults += await self._offset_faults(connection)
            faults += await self._index_faults(connection, queries)
        except AssertionError as error:
            return [str(error)]
        return faults

    async def settle(self, connection: Connection) -> list[str]:
        """Wait until everything is delivered that is due by now."""
        now = now_ms()
        expected = [
            sent
            for sent in self._ledger.messages
            if sent.kind.delivered_later and self._ledger.is_owed(sent, now)
        ]
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    faults = await self._read(connection, 50)
                    missing = [sent for sent in expected if not self._copies.get(sent.number)]
                    if faults or not missing:
                        return faults
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return [f"{sent} was acknowledged, and is not delivered" for sent in missing]
        except AssertionError as error:
            return [str(error)]

    # --- messages -----------------------------------------------------------------------------

    async def _read(self, connection: Connection, again: int | None) -> list[str]:
        faults: list[str] = []
        read = self._shelf.read
        for topic, queue_id in WAITING:
            await read(connection, topic, queue_id, again)
        for topic, queue_id in OWN:
            await read(connection, topic, queue_id, again)
        for name in deletions.NAMES:
            faults += await self._read_brief(connection, name)
        faults += self._misplaced()
        copies: dict[int, list[Copy]] = defaultdict(list)
        for topic, queue_id in (*OWN, *BRIEF):
            for offset, stored in enumerate(self._shelf.queues[topic, queue_id]):
                sent = self._ledger.find(stored.body)
                copy = Copy(topic, queue_id, offset, stored)
                if sent is None:
                    faults.append(f"{copy} was never sent")
                else:
                    copies[sent.number].append(copy)
        self._copies = copies
        for number, found in copies.items():
            faults += self._copy_faults(self._ledger.messages[number], found)
        return faults

    async def _read_brief(self, connection: Connection, name: str) -> list[str]:
        """Read a topic that comes and goes: whole, as it may have begun again."""
        topic = self._ledger.brief.get(name, BriefTopic(name))
        for queue_id in range(deletions.QUEUES):
            self._shelf.queues[name, queue_id].clear()
        header = GetTopicConfigRequestHeader(topic=name)
        answer = await connection.request(RequestCode.GET_TOPIC_CONFIG, header, timeout=30.0)
        exists = answer.code == ResponseCode.SUCCESS
        if not topic.state.known:
            return []
        if exists != (topic.state is BriefState.EXISTS):
            return [f"topic {name} {topic.state.value}, but the broker says {answer.code}"]
        for queue_id in range(deletions.QUEUES):
            if await self._shelf.read(connection, name, queue_id) and not exists:
                return [f"topic {name} is deleted, and {queue_id} is read all the same"]
        return []

    def _misplaced(self) -> Iterable[str]:
        """Acknowledged messages that are not where they were acknowledged."""
        for (topic, queue_id, offset), sent in self._ledger.places.items():
            if not self._ledger.must_be_there(sent):
                continue
            queue = self._shelf.queues[topic, queue_id]
            where = f"{topic}/{queue_id} at {offset}"
            if offset >= len(queue):
                yield f"{sent} is lost: it was acknowledged in {where}, which ends at {len(queue)}"
                continue
            stored = queue[offset]
            if stored.body != sent.body:
                yield f"{sent} was acknowledged in {where}, where {stored.body[:30]!r} is"
            elif sent.place is None or stored.physical_offset != sent.place.physical_offset:
                yield f"{sent} in {where} has moved to {stored.physical_offset} from {sent.place}"

    def _copy_faults(self, sent: Sent, copies: list[Copy]) -> Iterable[str]:
        brief = self._ledger.brief.get(sent.topic)
        if brief is not None and sent.number < brief.since:
            yield f"{sent} was deleted with its topic, and is at {copies[0]}"
        for copy in copies:
            if (copy.topic, copy.queue_id) != (sent.topic, sent.queue_id):
                yield f"{sent} is at {copy}"
            if copy.stored.stored < sent.due:
                early = sent.due - copy.stored.stored
                yield f"{sent} was delivered {early} ms before its time, at {copy}"
        if sent.kind is Kind.ROLLED_BACK or (sent.kind is Kind.COMMITTED and not sent.ending):
            yield f"{sent} was delivered without a commit, at {copies[0]}"
        if sent.recalled:
            yield f"{sent} was recalled, and is at {copies[0]}"
        if not sent.kind.delivered_later:
            if len(copies) > 1:
                yield f"{sent} is there twice: {copies[0]} and {copies[1]}"
            return
        yield from self._repeated(sent, copies)

    def _repeated(self, sent: Sent, copies: list[Copy]) -> Iterable[str]:
        """A message is delivered once in the life of a process, and again only after a kill."""
        lives = Counter(self._life_of(copy) for copy in copies)
        # A timed message that was stored anew to wait on is two after a kill: the one before is
        # stored anew once more, or waits for its time itself if that has come.
        waits = sum(stored.body == sent.body for stored in self._shelf.queues[TIMER_TOPIC, 0])
        for life, count in lives.items():
            killed = not all(ending.clean for ending in self._ledger.endings[:life])
            if count > max(1, waits if killed else waits - 1):
                yield f"{sent} was delivered {count} times by one process: {copies}"
            if life < max(lives) and self._ledger.endings[life].clean:
                yield f"{sent} was delivered again after a clean stop: {copies}"

    def _life_of(self, copy: Copy) -> int:
        """Which process stored it: the index of its end in the ledger, or behind the last one."""
        endings = self._ledger.endings
        return bisect_left(endings, copy.stored.stored, key=lambda ending: ending.over)

    # --- offsets and the index ----------------------------------------------------------------

    async def _offset_faults(self, connection: Connection) -> list[str]:
        """To be called when nobody commits."""
        faults = []
        clean = bool(self._ledger.endings) and self._ledger.endings[-1].clean
        for key, history in list(self._ledger.offsets.items()):
            brief = self._ledger.brief.get(key[1])
            if brief is not None and not brief.state.known:
                continue
            offset = await committed_offset(connection, *key)
            allowed = {history.acknowledged, history.values[-1]} if clean else set(history.values)
            if offset not in allowed:
                faults.append(
                    f"the offset of {key} is {offset}; acknowledged was {history.acknowledged}, "
                    f"and since the last restart {history.values}"
                )
            # What a restart has shown is on the disk: nothing older may come back.
            self._ledger.offsets[key] = OffsetHistory([offset], offset)
        return faults

    async def _index_faults(self, connection: Connection, queries: int) -> list[str]:
        """Look up some messages by key and by unique key; the newest ones always."""
        numbers = [
            number
            for number, copies in self._copies.items()
            if self._ledger.must_be_there(self._ledger.messages[number])
        ]
        drawn = set(numbers[-queries // 3 :]) | set(
            self._chance.sample(numbers, min(len(numbers), queries))
        )
        faults = []
        for number in drawn:
            sent = self._ledger.messages[number]
            expected = {copy.stored.physical_offset for copy in self._copies[number]}
            for key, unique in ((sent.key, False), (sent.unique_key, True)):
                found = await find(connection, sent.topic, key, unique=unique)
                places = [place for body, place in found if body == sent.body]
                missing = expected - set(places)
                # A delivery may have come since the queues were read.
                strange = set(places) - expected if not sent.kind.delivered_later else set()
                if missing or strange or len(places) > len(set(places)):
                    faults.append(f"{sent} is at {sorted(expected)}, its key {key} finds {places}")
        return faults
