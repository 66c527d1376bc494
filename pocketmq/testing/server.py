"""A name server and a broker for tests, in their own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from pocketmq.broker.broker import Broker
from pocketmq.message.message import MessageExt
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.request import Response
from pocketmq.sync_client import LoopThread
from pocketmq.testing.clock import MovableClock
from pocketmq.testing.faults import Fault, Held, When, code_of
from pocketmq.testing.servers import Servers

T = TypeVar("T")

#: Turns of the servers' loop within which it reads the received data.
READING_TURNS = 8


class RocketMQ:
    """A name server and a broker on free ports with a temporary store.

    They run in a thread with an event loop of its own, so that a test may use them from any event
    loop, and from none: `rocketmq.sync` has the same methods for synchronous tests.

    - `properties`: settings of the broker by their official names.
    - `clock()`: the broker's time, Unix milliseconds.
    - `broker`, `name_server`: the servers. They belong to the thread: look, but call nothing.
    """

    def __init__(self, *, properties: Mapping[str, str] | None = None) -> None:
        self._servers = Servers(properties)
        self._thread: LoopThread | None = None
        #: Held while the thread starts or stops.
        self._lock = threading.Lock()

    @property
    def namesrv(self) -> str:
        """The address of the name server, for clients."""
        return self._servers.namesrv

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return self._servers.store

    @property
    def clock(self) -> MovableClock:
        """The broker's time, Unix milliseconds; `advance` moves it."""
        return self._servers.clock

    @property
    def broker(self) -> Broker:
        """The broker; a new object after `restart_broker`."""
        return self._servers.broker

    @property
    def name_server(self) -> NameServer:
        """The name server."""
        return self._servers.name_server

    @property
    def sync(self) -> SyncRocketMQ:
        """The methods for synchronous tests: each waits for its result."""
        return SyncRocketMQ(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        try:
            self._begin().result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    async def start(self) -> None:
        """Return when clients can begin. A second call does nothing, and nothing is left running
        by one that fails or is cancelled."""
        fresh = self._thread is None
        try:
            await asyncio.wrap_future(await asyncio.to_thread(self._begin))
        except BaseException:
            if fresh:
                await self.stop()
            raise

    async def stop(self) -> None:
        """Stop both servers and remove the store. A second call does nothing. A caller that is
        cancelled waits no longer, but the servers stop all the same."""
        await asyncio.shield(asyncio.to_thread(self._end))

    async def restart_broker(self) -> None:
        """Stop the broker, which closes its connections, and start it again with its port and its
        store; faults stay in force."""
        await self._run(self._servers.restart_broker())

    async def create_topic(self, topic: str, *, queues: int = 4, **options: object) -> None:
        """Create a topic; `options` are those of Admin.create_topic."""
        await self._run(self._servers.create_topic(topic, queues, options))

    async def drain(self, topic: str) -> list[MessageExt]:
        """Return every message of a topic that was not drained before, queue by queue.

        It does not wait, and does not disturb consumers.

        Raises:
            TopicNotExist: nobody has created the topic, or sent to it.
        """
        messages, drained = await self._run(self._servers.drain(topic))
        # Not earlier: a cancelled caller gets them the next time.
        self._servers.drained.update(drained)
        return messages

    async def idle(self, group: str, *, timeout: float | timedelta = 10.0) -> None:
        """Wait until a group has consumed everything that it can see now.

        Messages that wait for their delivery time do not count, and neither do retries: a message
        on which a handler failed is back at the broker, and `advance` delivers it. For a
        PullConsumer, its commits count.

        Raises:
            TimeoutError: the group has not within `timeout` (seconds); the text says what is left.
        """
        await self._run(self._servers.idle(group, _seconds("timeout", timeout)))

    async def advance(
        self, seconds: float | timedelta, *, patience: float | timedelta = 5.0
    ) -> None:
        """Move the broker's clock ahead.

        First, push consumers finish what they have, so that the retries of what they fail on are
        part of the time. Then everything that is due within the time happens in its order: delayed
        and timed messages and retries are delivered and consumed, including those that appear on
        the way, and producers are asked about transactions that nobody ended (every 30 s, once they
        are 6 s old; they have a second of the test's time to answer). Clients keep their own time.

        A consumer whose topic was made after its start is not waited for until it has found the
        topic, within a second; `idle` waits for that.

        `patience`: seconds of the test's time that consumers may need to finish what they have.
        When one needs longer, the rest of the time passes without waiting for consumers.

        Raises:
            ValueError: a negative time.
        """
        await self._run(
            self._servers.advance(_seconds("seconds", seconds), _seconds("patience", patience))
        )

    @contextlib.contextmanager
    def fail(
        self,
        code: RequestCode | int | str,
        response_code: ResponseCode | int | str = ResponseCode.SYSTEM_ERROR,
        remark: str = "made to fail by the test",
        *,
        when: When | None = None,
        times: int | None = None,
    ) -> Iterator[None]:
        """In the `with` block, answer requests of this code with an error, unserved.

        Codes are members of RequestCode and ResponseCode, their names, or numbers. `when(request)`
        selects requests; it is called in the servers' thread. `times`: how many requests to answer
        like this. If several faults match a request, the newest one applies.

        Raises:
            ValueError: a code that has no such name, or that nobody serves.
        """
        response = Response(code_of(ResponseCode, response_code), remark)
        with self._fault(code, Fault.answering(response, when, times)):
            yield

    @contextlib.contextmanager
    def ignore(
        self, code: RequestCode | int | str, *, when: When | None = None, times: int | None = None
    ) -> Iterator[None]:
        """In the `with` block, neither serve nor answer them: clients run into their timeouts."""
        with self._fault(code, Fault.ignoring(when, times)):
            yield

    @contextlib.contextmanager
    def hold(
        self, code: RequestCode | int | str, *, when: When | None = None, times: int | None = None
    ) -> Iterator[Held]:
        """In the `with` block, let them wait until `release()` of what it gives, or its end.

        with rocketmq.hold("SEND_MESSAGE_V2") as held:
            sending = asyncio.create_task(producer.send(message))
            await held.arrived()
            held.release()
        """
        held = Held()
        with self._fault(code, Fault.holding(held, when, times)):
            try:
                yield held
            finally:
                held.release()

    @contextlib.contextmanager
    def _fault(self, code: RequestCode | int | str, fault: Fault) -> Iterator[None]:
        number = code_of(RequestCode, code)
        faults = self._servers.faults
        self._call(lambda: faults.add(number, fault))
        try:
            yield
        finally:
            if self._thread is None:
                faults.remove(number, fault)
            else:
                self._wait(self._remove(number, fault))

    async def _remove(self, code: int, fault: Fault) -> None:
        # What clients have sent within the block, as requests without an answer, is read first.
        for _ in range(READING_TURNS):
            await asyncio.sleep(0)
        self._servers.faults.remove(code, fault)

    def _begin(self) -> Any:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("RocketMQ")
            return self._thread.begin(self._servers.start())

    def _end(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                try:
                    thread.run(self._servers.stop())
                finally:
                    thread.close()

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the servers' loop."""
        result: T = await asyncio.wrap_future(self._running(work).begin(work))
        return result

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self._running(work).run(work)
        return result

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._wait(call())

    def _running(self, work: Coroutine[Any, Any, object]) -> LoopThread:
        if self._thread is None:
            work.close()
            raise RuntimeError("RocketMQ is not running: enter it by `with` or `async with` first")
        return self._thread


class SyncRocketMQ:
    """The methods of a RocketMQ for synchronous tests.

    Do not call them in a coroutine: they would block the consumers in the same event loop.
    """

    def __init__(self, rocketmq: RocketMQ) -> None:
        self._rocketmq = rocketmq

    def restart_broker(self) -> None:
        """Do as RocketMQ.restart_broker."""
        self._wait(self._rocketmq.restart_broker())

    def create_topic(self, topic: str, *, queues: int = 4, **options: object) -> None:
        """Do as RocketMQ.create_topic."""
        self._wait(self._rocketmq.create_topic(topic, queues=queues, **options))

    def drain(self, topic: str) -> list[MessageExt]:
        """Do as RocketMQ.drain."""
        return self._wait(self._rocketmq.drain(topic))

    def idle(self, group: str, *, timeout: float | timedelta = 10.0) -> None:
        """Do as RocketMQ.idle."""
        self._wait(self._rocketmq.idle(group, timeout=timeout))

    def advance(self, seconds: float | timedelta, *, patience: float | timedelta = 5.0) -> None:
        """Do as RocketMQ.advance."""
        self._wait(self._rocketmq.advance(seconds, patience=patience))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._rocketmq._wait(work)


def _seconds(name: str, value: float | timedelta) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}; allowed are seconds or a timedelta")
    if value < 0:
        raise ValueError(f"{name} is {value}; it cannot be negative: clocks do not go back")
    return value
