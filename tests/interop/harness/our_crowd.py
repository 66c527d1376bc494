"""Applications of our own client, one of each kind, to run beside each other.

Each has topics and a group of its own, sends, and checks that it got exactly what it should. The
topics exist, with four queues on each of two brokers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message, MessageExt

QUEUES = 8
PATIENCE = 60.0  # Seconds until what is waited for counts as lost.
QUIET = 0.5  # Seconds in which nothing more may come.

Application = Callable[[], Awaitable[None]]


async def eventually(condition: Callable[[], object], what: str) -> None:
    """Look again until it is there."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {PATIENCE} s") from None


class OurCrowd:
    """`applications` names them with the topics that each needs."""

    def __init__(self, namesrv: str, directory: Path) -> None:
        self._namesrv = namesrv
        self._directory = directory
        self.applications: dict[Application, list[str]] = {
            kind: [f"Ours_{kind.__name__}_{n}" for n in range(count)]
            for kind, count in {
                self.shared: 8,
                self.orderly: 3,
                self.broadcast: 2,
                self.delayed: 1,
                self.retried: 1,
                self.transactions: 1,
                self.sql: 1,
                self.requests: 1,
                self.pulled: 4,
            }.items()
        }

    def group(self, kind: Application) -> str:
        return f"G_Ours_{kind.__name__}"

    def _producer(self, kind: Application) -> Producer:
        # A send that is tried again because it took long may have been stored before.
        return Producer(f"P_Ours_{kind.__name__}", namesrv=self._namesrv, timeout=PATIENCE)

    def _push(self, kind: Application, **options: Any) -> PushConsumer:
        topics = dict.fromkeys(self.applications[kind], "*")
        options = {"start": "begin", "namesrv": self._namesrv} | options
        return PushConsumer(self.group(kind), topics, **options)

    async def shared(self) -> None:
        got: dict[str, list[ConsumedMessage]] = {"one": [], "two": []}

        def handler(name: str) -> Callable[[ConsumedMessage], None]:
            return got[name].append

        topics = self.applications[self.shared]

        def halved() -> bool:
            # Topic by topic: as many queues as half of all may be too much of some.
            shares = [Counter(queue.topic for queue in who.assignment) for who in (one, two)]
            return shares == [dict.fromkeys(topics, QUEUES // 2)] * 2

        async with (
            self._push(self.shared, handler=handler("one")) as one,
            self._push(self.shared, handler=handler("two")) as two,
            self._producer(self.shared) as producer,
        ):
            await eventually(halved, "halves")
            sent = [(topic, b"%d" % n) for n in range(100) for topic in topics]
            await asyncio.gather(*(producer.send(Message(*message)) for message in sent))
            await eventually(lambda: sum(map(len, got.values())) >= len(sent), "all shared")
            await asyncio.sleep(QUIET)
        assert got["one"]
        assert got["two"]
        arrived = [*got["one"], *got["two"]]
        twice = Counter((message.queue, message.queue_offset) for message in arrived)
        assert not [place for place, times in twice.items() if times > 1]
        assert sorted((message.topic, message.body) for message in arrived) == sorted(sent)

    async def orderly(self) -> None:
        got: dict[tuple[str, int], list[int]] = defaultdict(list)

        async def handle(message: ConsumedMessage) -> None:
            key, number = map(int, message.body.split())
            await asyncio.sleep(0)
            got[message.topic, key].append(number)

        topics = self.applications[self.orderly]
        async with (
            self._push(self.orderly, handler=handle, orderly=True) as consumer,
            self._producer(self.orderly) as producer,
        ):
            await eventually(lambda: len(consumer.assignment) == QUEUES * len(topics), "queues")
            for n in range(30):
                await asyncio.gather(*(
                    producer.send(Message(topic, b"%d %d" % (key, n)), key=key)
                    for topic in topics for key in range(5)
                ))  # fmt: skip
            await eventually(lambda: sum(map(len, got.values())) >= 450, "all in order")
            await asyncio.sleep(QUIET)
        assert len(got) == 15
        for numbers in got.values():
            assert numbers == list(range(30))

    async def broadcast(self) -> None:
        got: list[list[tuple[str, bytes]]] = [[], []]

        def reader(number: int) -> PushConsumer:
            return self._push(
                self.broadcast, broadcast=True, offset_directory=self._directory,
                instance_name=f"broadcast{number}",
                handler=lambda message: got[number].append((message.topic, message.body)),
            )  # fmt: skip

        topics = self.applications[self.broadcast]
        async with reader(0), reader(1), self._producer(self.broadcast) as producer:
            sent = [(topic, b"%d" % n) for n in range(30) for topic in topics]
            for message in sent:
                await producer.send(Message(*message))
            await eventually(lambda: all(len(its) >= len(sent) for its in got), "all to both")
            await asyncio.sleep(QUIET)
        assert sorted(got[0]) == sorted(got[1]) == sorted(sent)

    async def delayed(self) -> None:
        [topic] = self.applications[self.delayed]
        got: list[ConsumedMessage] = []
        async with (
            self._push(self.delayed, handler=got.append),
            self._producer(self.delayed) as producer,
        ):
            for n in range(10):
                await producer.send(Message(topic, b"level %d" % n, delay_level=2))
                await producer.send(Message(topic, b"timed %d" % n, delay=3))
            await eventually(lambda: len(got) >= 20, "all delayed")
            await asyncio.sleep(QUIET)
        names = (b"level", b"timed")
        wanted = sorted(b"%s %d" % (name, n) for n in range(10) for name in names)
        assert sorted(message.body for message in got) == wanted
        for message in got:
            wait = 5000 if message.body.startswith(b"level") else 3000
            # The producer's clock was read before, and a timer's wheel ticks every second.
            assert message.store_timestamp - message.born_timestamp >= wait - 1000

    async def retried(self) -> None:
        [topic] = self.applications[self.retried]
        tries: dict[bytes, list[int]] = defaultdict(list)

        def handle(message: ConsumedMessage) -> None:
            tries[message.body].append(message.reconsume_times)
            if message.body == b"never" or (
                message.body == b"second" and len(tries[b"second"]) < 2
            ):
                raise ReconsumeLater(delay_level=1)

        async with (
            self._push(self.retried, handler=handle, max_reconsume_times=1),
            self._producer(self.retried) as producer,
        ):
            for body in (b"first", b"second", b"never"):
                await producer.send(Message(topic, body))
            await eventually(lambda: len(tries[b"never"]) == len(tries[b"second"]) == 2, "retries")
        async with PullConsumer("G_Ours_dead", namesrv=self._namesrv, start="begin") as reader:
            await reader.assign(f"%DLQ%{self.group(self.retried)}")
            [letter] = await self._poll(reader, 1)
        assert letter.body == b"never"
        assert tries == {b"first": [0], b"second": [0, 1], b"never": [0, 1]}

    async def transactions(self) -> None:
        [topic] = self.applications[self.transactions]
        got: list[bytes] = []

        def check(message: MessageExt) -> TransactionState:
            committed = message.body.startswith(b"committed")
            return TransactionState.COMMIT if committed else TransactionState.ROLLBACK

        async with (
            self._push(self.transactions, handler=lambda message: got.append(message.body)),
            TransactionProducer(
                "P_Ours_transactions", check=check, namesrv=self._namesrv, timeout=PATIENCE
            ) as producer,
        ):
            for n in range(5):
                async with producer.transaction(Message(topic, b"committed %d" % n)):
                    pass
                async with producer.transaction(Message(topic, b"rolled back %d" % n)) as begun:
                    begun.rollback()
                for word in (b"committed late", b"rolled back late"):
                    async with producer.transaction(Message(topic, b"%s %d" % (word, n))) as begun:
                        begun.unknown()
            await eventually(lambda: len(got) >= 10, "all committed")
            await asyncio.sleep(QUIET)
        words = (b"committed", b"committed late")
        assert sorted(got) == sorted(b"%s %d" % (word, n) for n in range(5) for word in words)

    async def sql(self) -> None:
        [topic] = self.applications[self.sql]
        got: list[bytes] = []
        consumer = PushConsumer(self.group(self.sql), start="begin", namesrv=self._namesrv)
        consumer.on(topic, sql="a > 4 AND b IN ('x', 'y')")(lambda m: got.append(m.body))
        async with consumer, self._producer(self.sql) as producer:
            for n in range(30):
                where = {"a": str(n % 10), "b": "xyz"[n % 3]}
                await producer.send(Message(topic, b"%d" % n, properties=where))
            wanted = sorted(b"%d" % n for n in range(30) if n % 10 > 4 and n % 3 != 2)
            await eventually(lambda: len(got) >= len(wanted), "all that match")
            await asyncio.sleep(QUIET)
        assert sorted(got) == wanted

    async def requests(self) -> None:
        [topic] = self.applications[self.requests]
        async with (
            self._producer(self.requests) as asking,
            Producer("P_Ours_answering", namesrv=self._namesrv, timeout=PATIENCE) as answering,
        ):

            async def answer(message: ConsumedMessage) -> None:
                await answering.reply(message, b"reply to " + message.body)

            async with self._push(self.requests, handler=answer):
                replies = await asyncio.gather(*(
                    asking.request(Message(topic, b"%d" % n), timeout=PATIENCE) for n in range(8)
                ))  # fmt: skip
        assert [reply.body for reply in replies] == [b"reply to %d" % n for n in range(8)]

    async def pulled(self) -> None:
        topics = self.applications[self.pulled]
        async with (
            self._producer(self.pulled) as producer,
            PullConsumer(self.group(self.pulled), namesrv=self._namesrv, start="begin") as reader,
        ):
            for topic in topics:
                await producer.send_batch([Message(topic, b"%d" % n) for n in range(100)])
                await reader.assign(topic)
            got = await self._poll(reader, 400)
            got += await reader.poll(timeout=QUIET)
        wanted = sorted((topic, b"%d" % n) for topic in topics for n in range(100))
        assert sorted((message.topic, message.body) for message in got) == wanted

    async def _poll(self, reader: PullConsumer, count: int) -> list[MessageExt]:
        got: list[MessageExt] = []
        async with asyncio.timeout(PATIENCE):
            while len(got) < count:
                got += await reader.poll()
        return got
