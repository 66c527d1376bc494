"""Clients of every kind, each as an application uses it: through the public client where there is
one, else as raw requests.

They live as long as the store, over all restarts of the servers, and write what happened into the
ledger. What the servers do to them, short of a wrong answer, is theirs to get over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from pocketmq.client.admin.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.client.send_result import SendResult
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.limits import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.message.message import Message, MessageExt
from pocketmq.proxy.proto import service_pb2 as pb
from tests.broker.conftest import Client
from tests.broker.pop.consuming import PopClient, Popped
from tests.proxy.grpc_client import GrpcClient, message

from .ledger import Committed, Kind, Ledger, Place, Sent, now_ms
from .traffic import RECALL_MARGIN, TIMES

MIXED: Final = "Mixed"
ORDERED: Final = "Ordered"
PUSHED, ORDERLY, PULLED, POPPED, SIMPLE = "pushed", "orderly", "pulled", "popped", "simple"
#: Which topics each group must get.
SUBSCRIPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    PUSHED: (MIXED, ORDERED),
    ORDERLY: (ORDERED,),
    PULLED: (MIXED, ORDERED),
    POPPED: (MIXED,),
    SIMPLE: (MIXED,),
}
#: Groups with an offset in each queue that says what they have done.
WITH_OFFSETS: Final = (PUSHED, ORDERLY, PULLED)
BROKER: Final = "mixed"
#: Of the delay levels that are used, ms. The others are for redeliveries.
DELAYS: Final = (1_000, 2_000)
DELAY_LEVELS: Final = "1s 2s" + 16 * " 1s"
#: How long a popped message is invisible, ms.
INVISIBLE_MS: Final = 2_500
#: Seconds between two messages of one sender.
PACE: Final = 0.03
KEYS: Final = 7
#: How often a handler fails, or a popped message is forgotten.
FAILURES: Final = 0.06

#: What the end of a server does to a call under way.
CUT_OFF: Final = (RemotingError, grpc.aio.AioRpcError, OSError, asyncio.TimeoutError)


class Clients:
    """All of them, within `async with`; `stop_sending` ends the producers' part."""

    def __init__(
        self, ledger: Ledger, chance: random.Random, namesrv: str, broker: str, grpc_port: int
    ) -> None:
        self._ledger = ledger
        self._chance = chance
        self._namesrv = namesrv
        self._broker = broker
        self._port = grpc_port
        self._members: dict[str, list[PushConsumer]] = {PUSHED: [], ORDERLY: []}
        self._stack = contextlib.AsyncExitStack()
        self._sending: list[asyncio.Task[None]] = []
        self._receiving: list[asyncio.Task[None]] = []
        self._recallable: list[tuple[Sent, str | None]] = []
        self._options: dict[str, Any] = {
            "namesrv": namesrv,
            "route_interval": 1.0,
            "heartbeat_interval": 1.0,
        }

    async def __aenter__(self) -> Clients:
        enter = self._stack.enter_async_context
        self.admin = await enter(Admin(namesrv=self._namesrv, timeout=3.0))
        for topic in (MIXED, ORDERED):
            await self.admin.create_topic(topic, queues=4)
        for handle, group in ((self._push, PUSHED), (self._push_in_order, ORDERLY)):
            for number in (1, 2):
                consumer = PushConsumer(
                    group,
                    dict.fromkeys(SUBSCRIPTIONS[group], "*"),
                    handler=handle,
                    start="begin",
                    orderly=group == ORDERLY,
                    commit_interval=0.2,
                    suspend=2.0,
                    suspend_current_queue=0.1,
                    instance_name=f"{group}{number}",
                    **self._options,
                )
                self._members[group].append(consumer)
                await enter(consumer)
        pulling = PullConsumer(
            PULLED, start="begin", auto_commit_interval=0.2, suspend=2.0, **self._options
        )
        await enter(pulling)
        for topic in SUBSCRIPTIONS[PULLED]:
            await pulling.subscribe(topic)
        sender = await enter(Producer("senders", timeout=2.0, **self._options))
        # A message that might be stored twice could not be recalled.
        timing = await enter(Producer("timing", timeout=2.0, retries=0, **self._options))
        ending = await enter(
            TransactionProducer("ending", check=self._check, timeout=2.0, **self._options)
        )
        self._receiving = [
            asyncio.create_task(work)
            for work in (
                self._pull(pulling),
                self._again(self._pop),
                self._again(self._pop),
                self._again(self._receive),
                *(self._watch_offsets(group) for group in WITH_OFFSETS),
            )
        ]
        steps: list[Callable[[], Awaitable[None]]] = [
            lambda: self._single(sender),
            lambda: self._keyed(sender),
            lambda: self._batch(sender),
            lambda: self._delayed(sender),
            lambda: self._timed(timing),
            lambda: self._recall(timing),
            lambda: self._transaction(ending),
        ]
        self._sending = [asyncio.create_task(self._repeat(step)) for step in steps]
        self._sending.append(asyncio.create_task(self._again(self._send_by_grpc)))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop_sending()
        await _end(self._receiving)
        await self._stack.aclose()

    async def stop_sending(self) -> None:
        """End the producers' part; they still answer checks of transactions."""
        await _end(self._sending)
        self._sending = []

    def check(self) -> None:
        """Raise what went wrong in a task."""
        for task in (*self._sending, *self._receiving):
            if task.done():
                task.result()

    async def restart_a_member(self) -> None:
        """Have one of the members of a group leave and join again."""
        consumer = self._chance.choice(self._members[self._chance.choice((PUSHED, ORDERLY))])
        await consumer.shutdown()
        await asyncio.sleep(self._chance.uniform(0.0, 0.5))
        await consumer.start()

    async def scale(self) -> None:
        """Give a topic another number of queues to write; what was written stays readable."""
        topic = self._chance.choice((MIXED, ORDERED))
        with contextlib.suppress(*CUT_OFF):
            await self.admin.create_topic(
                topic, queues=self._chance.choice((2, 4, 8)), read_queues=8
            )

    async def lag(self) -> int | None:
        """Return how many messages the groups with offsets have not consumed; None: unknown."""
        with contextlib.suppress(*CUT_OFF):
            return sum([await self.admin.lag(group) for group in WITH_OFFSETS])
        return None

    # --- producers ----------------------------------------------------------------------------

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            with contextlib.suppress(*CUT_OFF):
                await step()
            await asyncio.sleep(self._chance.uniform(0.0, 2 * PACE))

    def _new(self, kind: Kind, topic: str = MIXED, due: int = 0) -> Sent:
        return self._ledger.add(kind, topic, -1, self._chance.choice((0, 20, 200, 1_500)), due)

    def _note(
        self, sent: Sent, result: SendResult, waits_in: tuple[str, int] | None = None
    ) -> None:
        queue = waits_in or (sent.topic, result.queue.queue_id)
        physical_offset = decode_offset_msg_id(result.offset_msg_id).physical_offset
        self._ledger.acknowledge(sent, Place(*queue, result.queue_offset, physical_offset))

    async def _single(self, producer: Producer) -> None:
        sent = self._new(Kind.SINGLE)
        self._note(sent, await producer.send(Message(sent.topic, sent.body)))

    async def _keyed(self, producer: Producer) -> None:
        sent = self._new(Kind.SINGLE, ORDERED)
        key = f"key{sent.number % KEYS}"
        self._note(sent, await producer.send(Message(sent.topic, sent.body), key=key))

    async def _batch(self, producer: Producer) -> None:
        batch = [self._new(Kind.BATCH) for _ in range(self._chance.randint(2, 6))]
        results = await producer.send_batch([Message(sent.topic, sent.body) for sent in batch])
        for sent, result in zip(batch, results, strict=True):
            self._note(sent, result)

    async def _delayed(self, producer: Producer) -> None:
        level = self._chance.choice((1, 2))
        sent = self._new(Kind.DELAYED, due=now_ms() + DELAYS[level - 1])
        result = await producer.send(Message(sent.topic, sent.body, delay_level=level))
        self._note(sent, result, (SCHEDULE_TOPIC, level - 1))

    async def _timed(self, producer: Producer) -> None:
        sent = self._new(Kind.TIMED, due=now_ms() + self._chance.choice(TIMES))
        result = await producer.send(Message(sent.topic, sent.body, deliver_at=sent.due))
        # Without a handle, its time had come before it did.
        self._note(sent, result, (TIMER_TOPIC, 0) if result.recall_handle else None)
        if result.recall_handle and self._chance.random() < 0.4:
            self._recallable.append((sent, result.recall_handle))

    async def _recall(self, producer: Producer) -> None:
        if not self._recallable:
            return
        sent, handle = self._recallable.pop()
        if now_ms() < sent.due - 2 * RECALL_MARGIN:
            sent.recalling = True
            await producer.recall(sent.topic, handle)
            sent.recalled = now_ms() < sent.due - RECALL_MARGIN
            self._ledger.done("recalls")

    async def _transaction(self, producer: TransactionProducer) -> None:
        kind = self._chance.choice((Kind.COMMITTED, Kind.COMMITTED, Kind.ROLLED_BACK))
        sent = self._new(kind)
        async with producer.transaction(Message(sent.topic, sent.body)) as transaction:
            self._note(sent, transaction.half, (HALF_TOPIC, 0))
            if self._chance.random() < 0.3:
                transaction.unknown()
            elif kind is Kind.ROLLED_BACK:
                transaction.rollback()

    def _check(self, half: MessageExt) -> TransactionState:
        sent = self._ledger.find(half.body)
        assert sent is not None, f"a check of a transaction that never was: {half.body[:40]!r}"
        self._ledger.done("checks")
        if self._chance.random() < 0.2:
            return TransactionState.UNKNOWN
        committed = sent.kind is Kind.COMMITTED
        return TransactionState.COMMIT if committed else TransactionState.ROLLBACK

    async def _send_by_grpc(self) -> None:
        async with GrpcClient(self._port, client_id="sender") as client:
            while True:
                await self._grpc_send(client)
                await asyncio.sleep(self._chance.uniform(0.0, 2 * PACE))

    async def _grpc_send(self, client: GrpcClient) -> None:
        kind = self._chance.choice(
            (Kind.SINGLE, Kind.SINGLE, Kind.TIMED, Kind.COMMITTED, Kind.ROLLED_BACK)
        )
        due = now_ms() + self._chance.choice(TIMES) if kind is Kind.TIMED else 0
        sent = self._new(kind, due=due)
        how: dict[str, Any] = {}
        if kind is Kind.TIMED:
            at = {"seconds": due // 1000, "nanos": due % 1000 * 1_000_000}
            how = {"message_type": pb.DELAY, "delivery_timestamp": at}
        elif kind is not Kind.SINGLE:
            how = {"message_type": pb.TRANSACTION}
        request = pb.SendMessageRequest(messages=[message(sent.topic, sent.body, **how)])
        answer = await client.call("SendMessage", request, timeout=3.0)
        if answer.status.code != pb.OK:
            return
        [entry] = answer.entries
        # Nobody else knows how it ends: without a commit that was answered, it may be dropped.
        if kind in (Kind.COMMITTED, Kind.ROLLED_BACK):
            end = pb.EndTransactionRequest(
                transaction_id=entry.transaction_id,
                message_id=entry.message_id,
                resolution=pb.COMMIT if kind is Kind.COMMITTED else pb.ROLLBACK,
                source=pb.SOURCE_CLIENT,
            )
            end.topic.name = sent.topic
            if (await client.call("EndTransaction", end, timeout=3.0)).status.code != pb.OK:
                return
        self._ledger.acknowledge(sent, None)
        self._ledger.done("by gRPC")

    # --- consumers ----------------------------------------------------------------------------

    def _push(self, message: ConsumedMessage) -> None:
        self._handled(PUSHED, message, done=self._chance.random() >= FAILURES)

    def _push_in_order(self, message: ConsumedMessage) -> None:
        self._handled(ORDERLY, message, done=self._chance.random() >= FAILURES)

    def _handled(self, group: str, message: ConsumedMessage, *, done: bool) -> None:
        queue = message.queue
        place = (queue.topic, queue.queue_id, message.queue_offset)
        self._ledger.handle(group, message.body, *place, done=done)
        if not done:
            raise ReconsumeLater(delay_level=1 if group == PUSHED else 0)

    async def _pull(self, consumer: PullConsumer) -> None:
        while True:
            for got in await consumer.poll():
                queue = got.queue
                place = (queue.topic, queue.queue_id, got.queue_offset)
                self._ledger.handle(PULLED, got.body, *place, done=True)

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin again with a new connection whenever the old one is gone."""
        while True:
            with contextlib.suppress(*CUT_OFF):
                await work()
            await asyncio.sleep(0.1)

    async def _pop(self) -> None:
        client = Client()
        pops = PopClient(client, MIXED, POPPED, BROKER)
        await client.open(self._broker)
        try:
            while True:
                for popped in await pops.pop(
                    invisible_time=INVISIBLE_MS, poll_time=1_000, max_msg_nums=16
                ):
                    await self._settle(pops, popped)
        finally:
            await client.close()

    async def _settle(self, pops: PopClient, popped: Popped) -> None:
        handle = popped.handle
        place = (
            handle.stored_topic(MIXED, POPPED),
            handle.queue_id,
            -1 if handle.queue_offset is None else handle.queue_offset,
        )
        chance = self._chance.random()
        done = chance >= FAILURES
        try:
            if done:
                done = (await pops.ack(popped)).code == 0
            elif chance < FAILURES / 2:
                with contextlib.suppress(AssertionError):  # it came too late
                    await pops.change(popped, 300)
        finally:
            # Without an answer it may be done, and never come again.
            self._ledger.handle(POPPED, popped.body, *place, done=done)

    async def _receive(self) -> None:
        request = pb.ReceiveMessageRequest(batch_size=16)
        request.group.name = SIMPLE
        request.message_queue.topic.name = MIXED
        request.filter_expression.expression = "*"
        request.invisible_duration.FromMilliseconds(INVISIBLE_MS)
        request.long_polling_timeout.FromMilliseconds(1_000)
        async with GrpcClient(self._port, client_id="receiver") as client:
            stream = await client.as_consumer(SIMPLE, MIXED)
            try:
                while True:
                    _, messages = await client.receive(request, timeout=10.0)
                    await self._acknowledge(client, messages)
            finally:
                stream.cancel()

    async def _acknowledge(self, client: GrpcClient, messages: list[Any]) -> None:
        ack = pb.AckMessageRequest()
        ack.group.name, ack.topic.name = SIMPLE, MIXED
        kept = [self._chance.random() >= FAILURES for _ in messages]
        for got, keep in zip(messages, kept, strict=True):
            system = got.system_properties
            if keep:
                ack.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        refused: set[str] = set()
        try:
            if ack.entries:
                answer = await client.call("AckMessage", ack, timeout=5.0)
                refused = {
                    entry.receipt_handle for entry in answer.entries if entry.status.code != pb.OK
                }
                if not answer.entries and answer.status.code != pb.OK:
                    refused = {entry.receipt_handle for entry in ack.entries}
        finally:
            for got, keep in zip(messages, kept, strict=True):
                system = got.system_properties
                first = system.delivery_attempt == 1
                offset = system.queue_offset if first else -1
                done = keep and system.receipt_handle not in refused
                self._ledger.handle(SIMPLE, got.body, MIXED, system.queue_id, offset, done=done)

    async def _watch_offsets(self, group: str) -> None:
        while True:
            await asyncio.sleep(0.3)
            with contextlib.suppress(*CUT_OFF):
                for topic in SUBSCRIPTIONS[group]:
                    for queue in await self.admin.queues(topic):
                        offset = await self.admin.group_offset(group, queue)
                        if offset is not None:
                            seen = Committed(group, topic, queue.queue_id, offset)
                            self._ledger.history.append(seen)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
