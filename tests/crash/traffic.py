"""Requests of every kind that writes, many in flight, until the broker is gone.

What is acknowledged goes into the ledger at once. Every refusal is an AssertionError: a broker that
runs has no reason for one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.limits import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.message.record import decode
from pocketmq.remoting.answers.batch import decode_answers
from pocketmq.remoting.bodies.heartbeat import HeartbeatData, ProducerData
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingClosed, RemotingConnectError, RemotingTimeout
from pocketmq.remoting.frames.frame import Command, encode_command
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    Header,
    RecallMessageRequestHeader,
    ResetOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request

from .ledger import Kind, Ledger, Place, Sent, now_ms

#: Those of most messages. Every queue of them is read again after every kill.
TOPICS: Final = ("Plain", "Other")
QUEUES: Final = 4
GROUP: Final = "committing"
RESET_GROUP: Final = "being_reset"
PRODUCERS: Final = "killed_producers"

#: The delay levels of the broker, ms. The last one is never due.
DELAYS: Final = (1_000, 2_000, 3_600_000)
DELAY_LEVELS: Final = "1s 2s 1h"
#: Until a timed message is due, ms.
TIMES: Final = (150, 400, 900, 2_500, 4_200)
#: How long before its time a message must have been recalled to be not delivered, ms.
RECALL_MARGIN: Final = 400
FILLERS: Final = (0, 20, 200, 200, 1_500)
COMMIT, ROLLBACK = 8, 12

# What the end of a broker does to a request that is under way.
CUT_OFF: Final = (RemotingClosed, RemotingConnectError, RemotingTimeout)


class Traffic:
    """The clients of one life of a broker."""

    def __init__(self, ledger: Ledger, chance: random.Random, pending: list[Sent]) -> None:
        """`pending`: half messages whose transactions were not ended, in any life."""
        self._ledger = ledger
        self._chance = chance
        self._pending = pending
        self._ended: set[int] = set()  # numbers of the halves that were ended in this life
        self._recallable: list[tuple[Sent, str]] = []
        self._answers: set[asyncio.Task[None]] = set()

    async def connect(self, address: str) -> Connection:
        """Return a connection that also answers what the broker asks of producers."""
        dispatcher = Dispatcher()
        connection: Connection

        def check(request: Request[CheckTransactionStateRequestHeader]) -> None:
            half = decode(bytes(request.body))
            sent = self._ledger.find(bytes(half.body))
            assert sent is not None, f"a check of a transaction that never was: {half.body[:40]!r}"
            header = request.header
            task = asyncio.create_task(
                self._end(
                    connection,
                    sent,
                    header.tran_state_table_offset,
                    header.commit_log_offset,
                    asked=True,
                )
            )
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

        dispatcher.register(
            RequestCode.CHECK_TRANSACTION_STATE, check, CheckTransactionStateRequestHeader
        )
        connection = await Connection.open(address, dispatcher=dispatcher)
        body = HeartbeatData(
            client_id="killed@1", producer_data_set=[ProducerData(group_name=PRODUCERS)]
        )
        await request(connection, RequestCode.HEART_BEAT, body=body.encode())
        return connection

    async def run(self, connection: Connection) -> None:
        """Send until the broker is gone."""
        steps: list[Callable[[Connection], Awaitable[None]]] = [
            self._single, self._single, self._batch, self._parent, self._delayed, self._timed,
            self._recall, self._half, self._half, self._end_half, self._commit_offset,
            self._reset_offset,
        ]  # fmt: skip
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(until_cut_off(connection, step))
        if self._answers:
            await asyncio.gather(*self._answers)

    # --- sends --------------------------------------------------------------------------------

    async def _single(self, connection: Connection) -> None:
        await self.send(connection, self._new(Kind.SINGLE))

    async def _batch(self, connection: Connection) -> None:
        chance = self._chance
        topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
        sent = [
            self._ledger.add(Kind.BATCH, topic, queue_id, chance.choice(FILLERS))
            for _ in range(chance.randint(2, 16))
        ]
        body = encode_batch((0, each.body, properties(each).encode()) for each in sent)
        header = self._header(sent[0], "", batch=True)
        answer = await request(connection, RequestCode.SEND_BATCH_MESSAGE, header, body)
        self._note(answer, sent)

    async def _parent(self, connection: Connection) -> None:
        """A batch request: sends of their own, each to any queue, some of them delayed."""
        code = RequestCode.SEND_MESSAGE_V2
        sent = [self._new(Kind.CHILD) for _ in range(self._chance.randint(2, 10))]
        body = b"".join(
            encode_command(
                code, opaque, header=self._header(each, properties(each)), body=each.body
            )
            for opaque, each in enumerate(sent)
        )
        parent = await request(
            connection,
            RequestCode.COMMON_BATCH_REQUEST,
            BatchRequestHeader(dispatch_code=code),
            body,
        )
        answers = decode_answers(parent.body)
        assert sorted(answers) == list(range(len(sent)))
        for opaque, each in enumerate(sent):
            self._note(succeeded(answers[opaque], code), [each])

    async def _delayed(self, connection: Connection) -> None:
        level = self._chance.choices((1, 2, 3), (6, 3, 1))[0]
        sent = self._new(Kind.DELAYED, due=now_ms() + DELAYS[level - 1])
        await self.send(connection, sent, f"DELAY\x01{level}\x02", (SCHEDULE_TOPIC, level - 1))
        await asyncio.sleep(0.005)

    async def _timed(self, connection: Connection) -> None:
        chance = self._chance
        delay = chance.choice(TIMES)
        sent = self._new(Kind.TIMED, due=now_ms() + delay)
        how = chance.choice((f"TIMER_DELAY_MS\x01{delay}", f"TIMER_DELIVER_MS\x01{sent.due}"))
        if chance.random() < 0.1:
            sent.due += 1_000 - delay
            how = "TIMER_DELAY_SEC\x011"
        handle = await self.send(connection, sent, how + "\x02", (TIMER_TOPIC, 0))
        if handle is not None and delay > 2 * RECALL_MARGIN and chance.random() < 0.5:
            self._recallable.append((sent, handle))
        await asyncio.sleep(0.005)

    async def _recall(self, connection: Connection) -> None:
        await asyncio.sleep(0.01)
        if not self._recallable:
            return
        sent, handle = self._recallable.pop()
        if now_ms() > sent.due - 2 * RECALL_MARGIN:
            return
        sent.recalling = True
        header = RecallMessageRequestHeader(topic=sent.topic, recall_handle=handle)
        await request(connection, RequestCode.RECALL_MESSAGE, header)
        sent.recalled = now_ms() < sent.due - RECALL_MARGIN
        self._ledger.done("recalls")

    # --- transactions -------------------------------------------------------------------------

    async def _half(self, connection: Connection) -> None:
        sent = self._new(self._chance.choice((Kind.COMMITTED, Kind.COMMITTED, Kind.ROLLED_BACK)))
        begin = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02"
        await self.send(connection, sent, begin, (HALF_TOPIC, 0))
        if self._chance.random() < 0.8:
            self._pending.append(sent)
        await asyncio.sleep(0.002)

    async def _end_half(self, connection: Connection) -> None:
        await asyncio.sleep(0.002)
        if self._pending:
            # Of this life, or one that a former life left open.
            sent = self._pending.pop(self._chance.randrange(len(self._pending)))
            place = sent.place
            assert place is not None
            if not sent.ending:
                await self._end(connection, sent, place.queue_offset, place.physical_offset)

    async def _end(
        self,
        connection: Connection,
        sent: Sent,
        queue_offset: int,
        physical_offset: int,
        *,
        asked: bool = False,
    ) -> None:
        """Commit or roll back, but only once in a life: a second commit stores a second message."""
        if sent.number in self._ended:
            return
        self._ended.add(sent.number)
        sent.ending = True
        is_commit = sent.kind is Kind.COMMITTED
        header = EndTransactionRequestHeader(
            producer_group=PRODUCERS,
            tran_state_table_offset=queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=COMMIT if is_commit else ROLLBACK,
            msg_id=sent.unique_key,
            from_transaction_check=asked,
        )
        try:
            await request(connection, RequestCode.END_TRANSACTION, header)
        except CUT_OFF:
            return
        self._ledger.done("commits" if is_commit else "rollbacks")

    # --- offsets ------------------------------------------------------------------------------

    async def _commit_offset(self, connection: Connection) -> None:
        await asyncio.sleep(0.003)
        chance = self._chance
        topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
        await self.commit(connection, GROUP, topic, queue_id, chance.randrange(1_000_000))

    async def commit(
        self, connection: Connection, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Commit an offset."""
        key = (group, topic, queue_id)
        self._ledger.ask_offset(key, offset)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await request(connection, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self._ledger.offsets[key].acknowledged = offset
        self._ledger.done("offset commits")

    async def _reset_offset(self, connection: Connection) -> None:
        """Reset what an administrator resets: once acknowledged, that is the offset."""
        await asyncio.sleep(0.02)
        chance = self._chance
        topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
        most = max(
            (place[2] for place in self._ledger.places if place[:2] == (topic, queue_id)), default=0
        )
        key, offset = (RESET_GROUP, topic, queue_id), chance.randint(0, most)
        self._ledger.ask_offset(key, offset)
        header = ResetOffsetRequestHeader(
            topic=topic, group=RESET_GROUP, queue_id=queue_id, offset=offset
        )
        await request(connection, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        self._ledger.settle_offset(key, offset)
        self._ledger.done("offset resets")

    # --- the requests themselves --------------------------------------------------------------

    def _new(self, kind: Kind, due: int = 0) -> Sent:
        chance = self._chance
        return self._ledger.add(
            kind, chance.choice(TOPICS), chance.randrange(QUEUES), chance.choice(FILLERS), due
        )

    async def send(
        self,
        connection: Connection,
        sent: Sent,
        more: str = "",
        waits_in: tuple[str, int] | None = None,
    ) -> str | None:
        """Send one message with `more` properties, which is to wait in the queue `waits_in`; return
        the handle to recall it by."""
        header = self._header(sent, properties(sent) + more)
        answer = await request(connection, RequestCode.SEND_MESSAGE_V2, header, sent.body)
        return self._note(answer, [sent], waits_in)

    def _header(self, sent: Sent, text: str, *, batch: bool = False) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(
            producer_group=PRODUCERS,
            topic=sent.topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=sent.queue_id,
            # Bits that mean nothing to the broker, and those of IPv6 hosts, which it sets itself.
            sys_flag=self._chance.choice((0, 0x2, 0x10, 0x20, 0x700)),
            born_timestamp=now_ms(),
            flag=0,
            properties=text,
            batch=batch,
        )

    def _note(
        self, answer: Command, sent: Sequence[Sent], waits_in: tuple[str, int] | None = None
    ) -> str | None:
        stored = SendMessageResponseHeader.from_ext(answer.ext_fields)
        assert stored.msg_id is not None
        assert stored.queue_id is not None
        assert stored.queue_offset is not None
        if waits_in == (TIMER_TOPIC, 0) and stored.recall_handle is None:
            waits_in = None  # its time had come before it did
        for at, (msg_id, each) in enumerate(zip(stored.msg_id.split(","), sent, strict=True)):
            # The answer names the queue that was asked for, with an offset in that of the wait.
            place = Place(
                *(waits_in or (each.topic, stored.queue_id)),
                stored.queue_offset + at,
                decode_offset_msg_id(msg_id).physical_offset,
            )
            self._ledger.acknowledge(each, place)
        return stored.recall_handle


async def until_cut_off(
    connection: Connection, step: Callable[[Connection], Awaitable[None]]
) -> None:
    """Repeat a step until the broker is gone."""
    try:
        while not connection.closed:
            await step(connection)
    except CUT_OFF:
        return


async def make_groups(connection: Connection) -> None:
    """Create the groups whose offsets are set."""
    for name in (GROUP, RESET_GROUP):
        body = SubscriptionGroupConfig(group_name=name).encode()
        await request(connection, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def request(
    connection: Connection, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> Command:
    """Make a request. Raises AssertionError when it is refused, one of CUT_OFF when the broker is
    gone."""
    return succeeded(await connection.request(code, header, body, timeout=30.0), code)


def succeeded(answer: Command, code: RequestCode) -> Command:
    assert answer.code == ResponseCode.SUCCESS, f"{code.name}: {answer.code} {answer.remark}"
    return answer


def properties(sent: Sent) -> str:
    """The properties by which it can be found."""
    return f"UNIQ_KEY\x01{sent.unique_key}\x02KEYS\x01{sent.key}\x02TAGS\x01TagA\x02"
