"""A test's operations on its name server and broker, in their event loop."""

from __future__ import annotations

from collections.abc import Mapping

from pocketmq.broker.broker import Broker
from pocketmq.client.admin import Admin
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import TopicNotExist
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.testing.check_rounds import CheckRounds
from pocketmq.testing.clock import MovableClock
from pocketmq.testing.faults import Faults
from pocketmq.testing.progress import GroupProgress

#: The consumer group that `drain` reads with.
GROUP = "pocketmq-testing"


class Servers(EmbeddedServer):
    """An EmbeddedServer on free ports with a temporary store and a clock that can be moved."""

    def __init__(self, properties: Mapping[str, str] | None) -> None:
        super().__init__(properties=properties)
        self.clock = MovableClock()
        self.faults = Faults()
        self._checks = CheckRounds(self._move)
        #: Where `drain` continues in each queue.
        self.drained: dict[MessageQueue, int] = {}
        self._patience = 0.0

    async def start(self) -> None:
        if self._stack is not None:
            return
        self.drained.clear()
        await super().start()
        self._attach()

    async def _restart_broker(self) -> None:
        await super()._restart_broker()
        self._attach()

    async def create_topic(self, topic: str, queues: int, options: Mapping[str, object]) -> None:
        async with Admin(namesrv=self.namesrv) as admin:
            await admin.create_topic(topic, queues=queues, **options)  # type: ignore[arg-type]

    async def drain(self, topic: str) -> tuple[list[MessageExt], dict[MessageQueue, int]]:
        """Return the messages, and the update for `drained` once the caller has them."""
        messages: list[MessageExt] = []
        drained: dict[MessageQueue, int] = {}
        async with PullConsumer(GROUP, namesrv=self.namesrv) as consumer:
            queues = await consumer.queues(topic)
            if not queues:
                raise TopicNotExist(
                    f"topic {topic} does not exist: create it, or send to it, before you drain it"
                )
            for queue in queues:
                end = await consumer.end_offset(queue)
                drained[queue] = self.drained.get(queue, 0)
                while (at := drained[queue]) < end:
                    pulled = await consumer.pull(queue, at)
                    messages += pulled.messages
                    drained[queue] = pulled.next_begin_offset
        return messages, drained

    async def idle(self, group: str, timeout: float) -> None:
        await self._progress().consumed(group, timeout)

    async def advance(self, seconds: float, patience: float) -> None:
        self._patience = patience
        await self._settle()
        await self._checks.advance(seconds)

    async def _move(self, seconds: float) -> None:
        """Move the clock from one timer to the next, and let consumers finish the messages of each:
        failed ones are retried within the same time."""
        left = seconds
        ends = self._progress().ends()
        while True:
            until = self.clock.until_next()
            step = left if until is None else min(until, left)
            await self.clock.advance(step)
            left -= step
            now = self._progress().ends()
            if now != ends:
                await self._settle()
                ends = now
            elif left <= 0:
                return

    async def _settle(self) -> None:
        """Wait until consumers have finished their messages. After a timeout, do not wait again."""
        if self._patience and not await self._progress().all_consumed(self._patience):
            self._patience = 0.0

    def _progress(self) -> GroupProgress:
        return GroupProgress(self.broker, self.namesrv, GROUP)

    def _attach(self) -> None:
        self._checks.attach(self.broker)
        self.faults.attach((self.broker.dispatcher, self.name_server.dispatcher))

    def _make_broker(self) -> Broker:
        return Broker(self._broker_config, clock=self.clock, call_later=self.clock.call_later)
