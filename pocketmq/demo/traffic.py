"""The demo's producer and consumer, both writing into one ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.demo.ledger import Ledger
from pocketmq.message.message import Message

BATCH = 50
#: Messages per second: slow enough to watch; a laptop's broker handles many times that.
RATE = 5000
MAX_BATCHES_IN_FLIGHT = 16


class Sending:
    """Sends messages in batches at a steady rate, through the RIP-63 selector.

    `milestones`: events to set when that many messages are acknowledged.
    """

    def __init__(
        self, ledger: Ledger, milestones: dict[int, asyncio.Event], on_change: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._milestones = milestones
        self._on_change = on_change
        self._room = asyncio.Semaphore(MAX_BATCHES_IN_FLIGHT)

    async def run(self, namesrv: str, messages: Sequence[Message]) -> None:
        """Return when all are acknowledged. Raises BatchSendError when some cannot be sent."""
        # By default, a failed broker is isolated for 10 s and probed every 2 s, longer than this
        # lasts.
        async with Producer(
            "demo_producer",
            namesrv=namesrv,
            send_latency_enable=True,
            start_detector_enable=True,
            detect_interval_ms=500,
            not_available_duration_ms=(0, 0, 500, 1000, 1000, 1000, 1000),
        ) as producer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with asyncio.TaskGroup() as group:
                for start in range(0, len(messages), BATCH):
                    await asyncio.sleep(began + start / RATE - loop.time())
                    await self._room.acquire()
                    group.create_task(self._send(producer, messages[start : start + BATCH]))

    async def _send(self, producer: Producer, messages: Sequence[Message]) -> None:
        try:
            self._ledger.acknowledge(await producer.send_batch(messages))
        finally:
            self._room.release()
        for count, event in self._milestones.items():
            if self._ledger.acknowledged >= count:
                event.set()
        self._on_change()


class Receiving:
    """Pulls every message of a topic with long polls, from the first one on."""

    def __init__(self, ledger: Ledger, on_change: Callable[[], None]) -> None:
        self._ledger = ledger
        self._on_change = on_change
        self._sent_all = asyncio.Event()

    def all_is_sent(self) -> None:
        """Let `run` return once it has all stored messages."""
        self._sent_all.set()

    async def run(self, namesrv: str, topic: str) -> None:
        """Return when all messages were sent and every stored message was pulled."""
        async with PullConsumer("demo_consumer", namesrv=namesrv, start="begin") as consumer:
            await consumer.assign(topic)
            while not self._sent_all.is_set() or not await self._complete(consumer):
                self._ledger.pull(await consumer.poll(max_messages=1024, timeout=0.2))
                self._on_change()

    async def _complete(self, consumer: PullConsumer) -> bool:
        # If the kill cut off an answer, its message is stored but not acknowledged, so the ledger
        # alone does not show the end.
        if not self._ledger.settled:
            return False
        ends = [await consumer.end_offset(queue) for queue in consumer.assignment]
        return self._ledger.pulled >= sum(ends)
