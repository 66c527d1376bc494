"""Requests of every kind that writes a message, to a broker of either make, until it is gone."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from pocketmq.message import properties as property_text
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingClosed, RemotingConnectError, RemotingTimeout
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader

from .ledger import End, Kind, Ledger, Sent, place_of

QUEUES: Final = 3
TOPICS: Final = ("Orders", "Payments")
#: Two of the tags have the same hash.
TAGS: Final = ("", "TagA", "标签", "AaAa", "BBBB")
#: The last one is never due.
LEVELS: Final = (1, 2, 3, 4)
DELAY_LEVELS: Final = "1s 4s 12s 2h"
DELAYS: Final = {1: 1_000, 2: 4_000, 3: 12_000, 4: 7_200_000}
#: ms; the last one is never due.
TIMERS: Final = (1_000, 2_500, 6_000, 15_000, 7_200_000)
NEVER: Final = 3_600_000
#: Seconds in which the messages of a life must be acknowledged.
_PATIENCE: Final = 40.0
GROUP: Final = "handover"
COMMIT, ROLLBACK, PREPARED = 8, 12, 4

# What a kill does to a request that is under way.
CUT_OFF: Final = (RemotingClosed, RemotingConnectError, RemotingTimeout)


class Traffic:
    """The producers of all lives of one store. What `random` draws depends on its seed alone."""

    def __init__(self, ledger: Ledger, random: random.Random) -> None:
        self._ledger = ledger
        self._random = random
        self._count = 0
        self._life = 0
        self._half: list[Sent] = []
        #: Code and remark of each send that was refused.
        self.refused: list[tuple[int, str | None]] = []

    async def begin(
        self, address: str, life: int, stop: asyncio.Event, messages: int, senders: int = 4
    ) -> asyncio.Task[None]:
        """Return the task of `run` once so many messages are acknowledged, or it has ended."""
        wanted = len(self._ledger.messages) + messages
        sending = asyncio.create_task(self.run(address, life, stop, senders))
        async with asyncio.timeout(_PATIENCE):
            while len(self._ledger.messages) < wanted and not sending.done():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return sending

    async def run(self, address: str, life: int, stop: asyncio.Event, senders: int = 4) -> None:
        """Send until `stop` is set or the broker is gone."""
        self._life = life
        connection = await Connection.open(address)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(senders):
                    group.create_task(self._until(connection, stop))
        finally:
            await connection.close()

    async def _until(self, connection: Connection, stop: asyncio.Event) -> None:
        steps = {
            self._send: 8, self._send_batch: 3, self._send_level: 2, self._send_timer: 3,
            self._send_half: 3, self._end_half: 2,
        }  # fmt: skip
        try:
            while not stop.is_set():
                [step] = self._random.choices(list(steps), list(steps.values()))
                await step(connection)
        except CUT_OFF:
            return

    async def _send(self, connection: Connection) -> None:
        await self._put(connection, Kind.PLAIN, [{}])

    async def _send_batch(self, connection: Connection) -> None:
        await self._put(connection, Kind.BATCH, [{} for _ in range(self._random.randint(2, 8))])

    async def _send_level(self, connection: Connection) -> None:
        level = self._random.choice(LEVELS)
        await self._put(connection, Kind.LEVEL, [{"DELAY": str(level)}], DELAYS[level], level)

    async def _send_timer(self, connection: Connection) -> None:
        delay = self._random.choice(TIMERS)
        now = int(time.time() * 1000)
        asked = {"TIMER_DELIVER_MS": str(now + delay)}
        await self._put(connection, Kind.TIMER, [asked], delay)

    async def _send_half(self, connection: Connection) -> None:
        for sent in await self._put(connection, Kind.HALF, [{"TRAN_MSG": "true", "PGROUP": GROUP}]):
            end = self._random.choice((End.COMMIT, End.ROLLBACK, End.OPEN))
            self._ledger.ends[sent.unique_key] = end
            if end is not End.OPEN:
                self._half.append(sent)

    async def _end_half(self, connection: Connection) -> None:
        """End any of the half messages, also one that another broker took."""
        if not self._half:
            return
        sent = self._half.pop(self._random.randrange(len(self._half)))
        commit = self._ledger.ends[sent.unique_key] is End.COMMIT
        header = EndTransactionRequestHeader(
            producer_group=GROUP,
            tran_state_table_offset=sent.place.queue_offset,
            commit_log_offset=sent.physical_offset,
            commit_or_rollback=COMMIT if commit else ROLLBACK,
            msg_id=sent.unique_key,
            topic=sent.topic,
        )
        answer = await connection.request(RequestCode.END_TRANSACTION, header, timeout=10.0)
        if answer.code == ResponseCode.SUCCESS:
            self._ledger.ended[sent.unique_key] = self._life
        else:
            self.refused.append((answer.code, answer.remark))

    def _message(self, asked: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        self._count += 1
        number = self._count
        body = b"%d-%s" % (number, b"." * self._random.choice((0, 20, 300, 2_000)))
        properties = {"UNIQ_KEY": f"{number:032X}", "n": str(number), **asked}
        if self._random.random() < 0.8:
            properties["KEYS"] = f"k{number} g{number // 10}"
        if tag := self._random.choice(TAGS):
            properties["TAGS"] = tag
        return body, properties

    async def _put(
        self,
        connection: Connection,
        kind: Kind,
        asked: list[dict[str, str]],
        delay: int = 0,
        level: int = 0,
    ) -> list[Sent]:
        topic, queue_id = self._random.choice(TOPICS), self._random.randrange(QUEUES)
        messages = [self._message(one) for one in asked]
        due = int(time.time() * 1000) + delay if delay else 0
        batch = kind is Kind.BATCH
        header = SendMessageRequestHeaderV2(
            producer_group=GROUP,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=PREPARED if kind is Kind.HALF else 0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties="" if batch else property_text.encode(messages[0][1]),
            batch=batch,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        payload = (
            encode_batch((0, body, property_text.encode(own).encode()) for body, own in messages)
            if batch
            else messages[0][0]
        )
        answer = await connection.request(code, header, payload, timeout=10.0)
        if answer.code != ResponseCode.SUCCESS:
            self.refused.append((answer.code, answer.remark))
            return []
        stored = SendMessageResponseHeader.from_ext(answer.ext_fields)
        assert stored.msg_id is not None
        assert stored.queue_offset is not None
        offsets = [decode_offset_msg_id(one).physical_offset for one in stored.msg_id.split(",")]
        sent = [
            Sent(
                kind=kind,
                topic=topic,
                queue_id=queue_id,
                place=place_of(kind, topic, queue_id, stored.queue_offset + number, level),
                physical_offset=offset,
                body=body,
                tag=properties.get("TAGS", ""),
                keys=tuple(properties.get("KEYS", "").split()),
                unique_key=properties["UNIQ_KEY"],
                due=due,
                life=self._life,
            )
            for number, (offset, (body, properties)) in enumerate(
                zip(offsets, messages, strict=True)
            )
        ]
        self._ledger.messages += sent
        return sent
