"""A name server and a broker for one test, with everything a test wants to do to them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from pocketmq.broker.broker import Broker
from pocketmq.client.admin import Admin
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.request import Response
from pocketmq.testing.check_rounds import CheckRounds
from pocketmq.testing.clock import MovableClock
from pocketmq.testing.faults import Faults, Held, When

__all__ = ["RocketMQ"]

#: The consumer group that `drain` reads with.
GROUP = "pocketmq-testing"


class RocketMQ(EmbeddedServer):
    """An EmbeddedServer on free ports with a temporary store.

    `properties`: settings of the broker by their official names. `clock`: the broker's time, ms.
    """

    def __init__(self, *, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(properties=properties)
        self.clock = MovableClock()
        self._faults = Faults()
        self._checks = CheckRounds(self.clock)
        self._drained: dict[MessageQueue, int] = {}

    async def start(self) -> None:
        """Returns when a client can begin. Again: nothing."""
        if self._stack is not None:
            return
        self._drained.clear()
        await super().start()
        self._attach()

    async def restart_broker(self) -> None:
        """Stop the broker, which closes its connections, and start it again with its port and its
        store; faults stay in force."""
        await super().restart_broker()
        self._attach()

    async def create_topic(self, topic: str, *, queues: int = 4, **options: object) -> None:
        """Create a topic; `options` are those of Admin.create_topic."""
        async with Admin(namesrv=self.namesrv) as admin:
            await admin.create_topic(topic, queues=queues, **options)  # type: ignore[arg-type]

    async def drain(self, topic: str) -> list[MessageExt]:
        """Every message of a topic that was not drained before, queue by queue, without waiting;
        consumers of the test are not disturbed. None for a topic that does not exist."""
        messages: list[MessageExt] = []
        async with PullConsumer(GROUP, namesrv=self.namesrv) as consumer:
            for queue in await consumer.queues(topic):
                end = await consumer.end_offset(queue)
                while (at := self._drained.get(queue, 0)) < end:
                    pulled = await consumer.pull(queue, at)
                    messages += pulled.messages
                    self._drained[queue] = pulled.next_begin_offset
        return messages

    async def advance(self, seconds: float) -> None:
        """Move the broker's clock ahead: delayed and timed messages that are due by then are
        delivered when this returns, and producers were asked about transactions that nobody ended
        (every 30 s, once they are 6 s old), with a second to answer. Clients keep their own time.

        Raises ValueError for a negative time.
        """
        await self._checks.advance(seconds)

    def fail(
        self,
        code: int,
        response_code: int = ResponseCode.SYSTEM_ERROR,
        remark: str = "made to fail by the test",
        *,
        when: When | None = None,
        times: int | None = None,
    ) -> AbstractContextManager[None]:
        """In the `with` block, answer requests of this code with an error, unserved.

        `when(request)` chooses among them; `times`: only so many of them. The newest fault decides
        where several mean a request. Raises ValueError for a code that nobody serves.
        """
        return self._faults.fail(code, Response(int(response_code), remark), when, times)

    def ignore(
        self, code: int, *, when: When | None = None, times: int | None = None
    ) -> AbstractContextManager[None]:
        """In the `with` block, neither serve nor answer them: clients run into their timeouts."""
        return self._faults.ignore(code, when, times)

    def hold(
        self, code: int, *, when: When | None = None, times: int | None = None
    ) -> AbstractContextManager[Held]:
        """In the `with` block, let them wait until `release()` of what it gives, or its end.

        with rocketmq.hold(RequestCode.SEND_MESSAGE_V2) as held:
            sending = asyncio.create_task(producer.send(message))
            await held.arrived()
            held.release()
        """
        return self._faults.hold(code, when, times)

    def _attach(self) -> None:
        self._checks.attach(self.broker)
        self._faults.attach((self.broker.dispatcher, self.name_server.dispatcher))

    def _make_broker(self) -> Broker:
        return Broker(self._broker_config, clock=self.clock, call_later=self.clock.call_later)
