"""Topics that are made, used, deleted and made again, one step at a time."""

from __future__ import annotations

import random
from typing import Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import CreateTopicRequestHeader, DeleteTopicRequestHeader

from .ledger import BriefState, BriefTopic, Kind, Ledger, Sent
from .traffic import GROUP, Traffic, request, until_cut_off

QUEUES: Final = 2
#: Topics of one store; each is deleted and made again many times.
NAMES: Final = ("BriefA", "BriefB", "BriefC")


class Deletions:
    """The administrator of these topics in one life of a broker."""

    def __init__(self, ledger: Ledger, chance: random.Random, traffic: Traffic) -> None:
        self._ledger = ledger
        self._chance = chance
        self._traffic = traffic

    async def run(self, connection: Connection) -> None:
        """Make, use and delete topics until the broker is gone."""
        await until_cut_off(connection, self._step)

    async def finish(self, connection: Connection) -> None:
        """Repeat the deletions that were cut off: their topics may have lost a part."""
        for topic in self._ledger.brief.values():
            if topic.state is BriefState.DELETING:
                await self._delete(connection, topic)

    async def _step(self, connection: Connection) -> None:
        chance = self._chance
        topic = self._ledger.brief.setdefault(name := chance.choice(NAMES), BriefTopic(name))
        # What was cut off is tried again.
        if topic.state in (BriefState.DELETED, BriefState.MAKING):
            await self._make(connection, topic)
        elif topic.state is BriefState.DELETING or chance.random() < 0.3:
            await self._delete(connection, topic)
        else:
            await self._use(connection, topic)

    async def _make(self, connection: Connection, topic: BriefTopic) -> None:
        # One that was cut off may exist, with those queues only that got a message.
        again, topic.state = topic.state is BriefState.MAKING, BriefState.MAKING
        if again or self._chance.random() < 0.5:
            header = CreateTopicRequestHeader(
                topic=topic.name,
                read_queue_nums=QUEUES,
                write_queue_nums=QUEUES,
                perm=6,
                topic_filter_type="SINGLE_TAG",
            )
            await request(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        else:
            await self._send(connection, topic)
        topic.state = BriefState.EXISTS
        self._ledger.done("made topics")

    async def _use(self, connection: Connection, topic: BriefTopic) -> None:
        for _ in range(self._chance.randint(1, 8)):
            sent = await self._send(connection, topic)
        # A topic that was made again has no offset beyond the end of its queue.
        place = sent.place
        if place is not None:
            offset = place.queue_offset + 1
            await self._traffic.commit(connection, GROUP, topic.name, place.queue_id, offset)

    async def _send(self, connection: Connection, topic: BriefTopic) -> Sent:
        queue_id = self._chance.randrange(QUEUES)
        sent = self._ledger.add(Kind.SINGLE, topic.name, queue_id, 100)
        await self._traffic.send(connection, sent)
        return sent

    async def _delete(self, connection: Connection, topic: BriefTopic) -> None:
        topic.state = BriefState.DELETING
        header = DeleteTopicRequestHeader(topic=topic.name)
        await request(connection, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        self._ledger.deleted(topic, [(GROUP, topic.name, queue) for queue in range(QUEUES)])
