"""The broker port to the broker in this process: without a network or frames.

A request goes directly to the broker's dispatcher as a typed object. The answers of one turn of the
event loop are delivered at its end, after the store has written the records that they acknowledge.
So all sends of one turn, including those of other clients and of the remoting port, share one write
to the log.

The composition root passes in the parts of the broker; this module knows none of its classes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.message.buffers import Buffer
from pocketmq.message.identity import pack_host
from pocketmq.message.message import MessageQueue
from pocketmq.proxy.port.broker_port import (
    ASKED_HEADERS,
    REQUEST_TIMEOUT,
    Answer,
    Asked,
    Choice,
    Registration,
)
from pocketmq.proxy.port.queue_choice import queue_of_group
from pocketmq.remoting.bodies.heartbeat import HeartbeatData, ProducerData
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.codes import VERSION, RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingClosed, RemotingTimeout, TopicNotExist, error_for
from pocketmq.remoting.frames.command import Command, SerializeType
from pocketmq.remoting.frames.frame import decode_command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.client import UnregisterClientRequestHeader
from pocketmq.remoting.headers.topic import GetTopicConfigRequestHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Caller, Request, Response

log = logging.getLogger("pocketmq.proxy")

#: The most unanswered requests of one client.
MAX_PENDING: Final = 10_000

PERM_WRITE: Final = 2

#: The codes of requests that wait for messages.
_FOR_MESSAGES: Final = frozenset(
    {
        int(RequestCode.PULL_MESSAGE),
        int(RequestCode.LITE_PULL_MESSAGE),
        int(RequestCode.POP_MESSAGE),
    }
)

_LINK = "proxy"


@dataclass(frozen=True, kw_only=True)
class LocalBroker:
    """The parts of the broker in this process that a proxy needs.

    Attributes:
        name, cluster, address: as in routes.
        dispatcher: executes requests without authentication.
        before_answers: writes the stored records; must be called before answers are delivered. May
            replace answers that would be wrong.
        after_answers: called after answers were delivered; must not raise.
        withdraw: drops a request that is held for messages; returns False if it is not held.
    """

    name: str
    cluster: str
    address: str
    dispatcher: Dispatcher
    before_answers: Callable[[], None]
    after_answers: Callable[[], None]
    withdraw: Callable[[Request[Any]], bool]


class LocalLink:
    """One client, as the broker sees its connection (`RequestConnection`) and its `Link`.

    Attributes: those of `RequestConnection`, and `caller`.
    """

    def __init__(
        self, port: LocalPort, client_id: str, language: str, peer: tuple[str, int], asked: Asked
    ) -> None:
        self.peer = peer
        self.peer_packed = pack_host(*peer)
        self.owner = peer[0]
        self.caller: Caller | None = None
        self.closed = False
        self.ended_by_peer = False  # a client of the proxy takes no locks
        self.writable = True
        self.attributes: dict[str, Any] = {}
        self._port = port
        self._client_id = client_id
        self._language = language
        self._asked = asked
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._held: dict[asyncio.Future[Answer], Request[Any]] = {}
        self._collected: list[tuple[int, Response | bytes]] = []
        self._close_callbacks: list[Callable[[Any], None]] = []
        self._groups: set[tuple[str, str]] = set()

    def __str__(self) -> str:
        return f"{self._client_id} at {self.peer[0]}:{self.peer[1]}"

    # --- the client's side ------------------------------------------------------------------------

    def request(
        self,
        broker: str,
        code: int,
        header: Header | None,
        body: bytes = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
    ) -> asyncio.Future[Answer]:
        """Execute a request now; its answer is delivered at the end of this turn, or later."""
        port = self._port
        loop = port.loop
        future: asyncio.Future[Answer] = loop.create_future()
        if broker != port.broker.name:
            future.set_exception(TopicNotExist(f"this proxy serves {port.broker.name}", broker))
            return future
        if len(self._waiting) >= MAX_PENDING:
            text = f"the client has {MAX_PENDING} requests without an answer"
            future.set_exception(error_for(ResponseCode.SYSTEM_BUSY, text, str(self)))
            return future
        if self.closed and code in _FOR_MESSAGES:
            future.set_exception(RemotingClosed("the client is gone", str(self)))
            return future
        self._opaque += 1
        opaque = self._opaque
        request: Request[Any] = Request(
            code=code,
            header=header or Header(),
            opaque=opaque,
            version=VERSION,
            language=self._language,
            # Handlers prepare whole frames for JSON only, and these would have to be decoded here.
            serialize_type=SerializeType.ROCKETMQ,
            body=body,
        )
        request.connection = self
        request.channel = self
        if code == RequestCode.HEART_BEAT and self.caller is not None:
            request.caller = self.caller
        self._waiting[opaque] = future
        result = port.dispatch(request)
        if type(result) is Response or type(result) is bytes:
            self._collected.append((opaque, result))
            port.flush_later(self)
        elif result is not None:
            self.spawn(request, result)  # type: ignore[arg-type]
        if opaque in self._waiting and result is None:
            timer = loop.call_later(timeout, self._timed_out, opaque, timeout)
            self._held[future] = request

            def ended(future: asyncio.Future[Answer]) -> None:
                timer.cancel()
                del self._held[future]

            future.add_done_callback(ended)
        return future

    def withdraw(self, answer: asyncio.Future[Answer]) -> bool:
        """Withdraw a request that the broker holds."""
        request = self._held.get(answer)
        if request is None or not self._port.broker.withdraw(request):
            return False
        del self._waiting[request.opaque]
        answer.cancel()
        return True

    def _timed_out(self, opaque: int, timeout: float) -> None:
        future = self._waiting.pop(opaque, None)
        if future is not None and not future.done():
            future.set_exception(RemotingTimeout(f"no answer within {timeout:.3g} s", str(self)))

    async def register(self, registration: Registration) -> None:
        """Report the client's groups to the broker. Raises RemotingError."""
        groups = {("producer", name) for name in registration.producers}
        groups |= {("consumer", consumer.group_name) for consumer in registration.consumers}
        name = self._port.broker.name
        for kind, group in self._groups - groups:
            header = UnregisterClientRequestHeader(client_id=self._client_id)
            if kind == "producer":
                header.producer_group = group
            else:
                header.consumer_group = group
            await self.request(name, RequestCode.UNREGISTER_CLIENT, header)
        self._groups = groups
        if not groups:
            return
        data = HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=n) for n in registration.producers],
            consumer_data_set=registration.consumers,
        )
        answer = await self.request(name, RequestCode.HEART_BEAT, None, data.encode())
        answer.check(name)

    def close(self) -> None:
        """Disconnect from the broker, like a connection that is closed.

        The broker stops holding pulls for it. Its pending requests are still answered: clients
        announce their stop while their last sends are in flight.
        """
        if self.closed:
            return
        self.closed = True
        self.writable = False
        for future, request in tuple(self._held.items()):
            if request.code in _FOR_MESSAGES and not future.done():
                future.set_exception(RemotingClosed("the client is gone", str(self)))
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                self._port.log.exception("close callback of %s failed", self)

    # --- the broker's side ------------------------------------------------------------------------

    def respond(self, request: Request[Any], response: Response) -> None:
        """Answer a request, now or later."""
        self._collect(request, response)

    def respond_frame(self, request: Request[Any], frame: bytes) -> None:
        """Answer a request by a whole frame, now or later."""
        self._collect(request, frame)

    def _collect(self, request: Request[Any], response: Response | bytes) -> None:
        if request.opaque in self._waiting:
            self._collected.append((request.opaque, response))
            self._port.flush_later(self)

    def replace_answers(
        self, opaques: Set[int], response: Response, within: int | None = None
    ) -> Set[int]:
        """Replace by `response` the answers to these requests that were not delivered yet."""
        found = {opaque for opaque, _ in self._collected if opaque in opaques}
        self._collected = [
            (opaque, response if opaque in opaques else answer)
            for opaque, answer in self._collected
        ]
        return found

    def give(self) -> None:
        """Deliver the collected answers to their waiters."""
        collected, self._collected = self._collected, []
        for opaque, response in collected:
            future = self._waiting.pop(opaque, None)
            if future is not None and not future.done():
                future.set_result(_answer(response))

    def fail(self, error: Exception) -> None:
        """Deliver an error to the waiters instead of the collected answers."""
        collected, self._collected = self._collected, []
        for opaque, _ in collected:
            future = self._waiting.pop(opaque, None)
            if future is not None and not future.done():
                future.set_exception(error)

    @property
    def overloaded(self) -> bool:
        """Return False: `MAX_PENDING` bounds the requests of a client."""
        return False

    def refuse(self, request: Request[Any]) -> Response:
        """Return the answer while the connection is overloaded."""
        return Response(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many requests")

    def spawn(
        self,
        request: Request[Any],
        result: Awaitable[Response | None],
        *,
        counted: bool = True,
    ) -> None:
        """Answer a request with the result of an awaitable."""

        async def finish() -> None:
            response = await result
            if response is not None:
                request.channel.respond(request, response)

        self._port.spawn(finish())

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` once when the client is gone."""
        if self.closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    async def send_request(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        timeout: float = 3.0,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Command:
        """Send a request to the client. Raises RemotingTimeout, RemotingClosed."""
        if self.closed:
            raise RemotingClosed("the client is gone", str(self))
        try:
            async with asyncio.timeout(timeout):
                response = await self._asked(self._request_of(code, header, body, ext_fields))
        except TimeoutError:
            raise RemotingTimeout(f"no answer within {timeout:.3g} s", str(self)) from None
        response = response or Response()
        return Command(
            code=response.code,
            flag=1,
            remark=response.remark,
            ext_fields=response.header.to_ext() if response.header is not None else {},
            body=Answer(0, None, None, response.body).content(),
        )

    def send_oneway(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Send a one-way request to the client. Raises RemotingClosed."""
        if self.closed:
            raise RemotingClosed("the client is gone", str(self))
        self._port.spawn(self._told(self._request_of(code, header, body, ext_fields)))

    async def _told(self, request: Request[Any]) -> None:
        await self._asked(request)

    def _request_of(
        self,
        code: int,
        header: Header | None,
        body: Buffer,
        ext_fields: Mapping[str, str] | None,
    ) -> Request[Any]:
        kind = ASKED_HEADERS.get(code)
        if kind is not None and not isinstance(header, kind):
            header = kind.from_ext(dict(ext_fields or {}))
        request: Request[Any] = Request(code=code, header=header or Header(), body=body)
        request.connection = self
        request.channel = self
        return request


class LocalPort:
    """The port to one broker, which runs on this event loop."""

    local = True

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.dispatch = broker.dispatcher.dispatch
        self.log = LimitedLog(log)
        self.loop = asyncio.get_running_loop()
        self._flushing: dict[LocalLink, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._own = LocalLink(self, _LINK, "PYTHON", ("127.0.0.1", 0), _nothing)
        self._next = 0

    def open(self, client_id: str, language: str, peer: tuple[str, int], asked: Asked) -> LocalLink:
        """Return a link for a client."""
        return LocalLink(self, client_id, language, peer, asked)

    async def route(self, topic: str) -> TopicRouteData:
        """Return the queues that this broker has of a topic. Raises TopicNotExist."""
        name = self.broker.name
        answer = await self._own.request(
            name, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic)
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotExist(f"No topic route info in name server for the topic: {topic}", name)
        config = TopicConfig.decode(answer.check(name).content())
        return TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    perm=config.perm,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    topic_sys_flag=config.topic_sys_flag,
                )
            ],
            broker_datas=[
                BrokerData(
                    broker_addrs={0: self.broker.address},
                    broker_name=name,
                    cluster=self.broker.cluster,
                )
            ],
        )

    def choose(self, topic: str, route: TopicRouteData, key: str | None) -> Choice | None:
        """Choose a queue: by the key, or the next one."""
        queues = route.queue_datas[0]
        count = queues.write_queue_nums if queues.perm & PERM_WRITE else 0
        if not count:
            return None
        if key is None:
            self._next += 1
            queue_id = self._next % count
        else:
            queue_id = queue_of_group(range(count), key)
        return _LocalChoice(MessageQueue(topic, self.broker.name, queue_id))

    def brokers(self) -> Sequence[str]:
        """Return the only broker name."""
        return (self.broker.name,)

    def flush_later(self, link: LocalLink) -> None:
        """Deliver a link's answers at the end of this turn of the event loop."""
        if not self._flushing:
            self.loop.call_soon(self._flush)
        self._flushing[link] = None

    def _flush(self) -> None:
        flushing, self._flushing = self._flushing, {}
        try:
            self.broker.before_answers()
        except Exception as error:
            self.log.exception("answers are not given: storing failed")
            for link in flushing:
                link.fail(RemotingClosed(f"storing failed: {error}", self.broker.name))
            return
        for link in flushing:
            link.give()
        self.broker.after_answers()

    def spawn(self, work: Any) -> None:
        """Run a task of the broker; its errors are logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.error("a request to a client failed: %s", error, cause=str(type(error)))

    async def stop(self) -> None:
        """Cancel the running tasks."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _LocalChoice:
    """A queue of the only broker: results are not tracked, and no other broker is available."""

    __slots__ = ("queue",)
    elsewhere = False

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue

    def ended(self, error: BaseException | None, code: int) -> None:
        pass

    def again(self) -> Choice | None:
        return None


def _answer(response: Response | bytes) -> Answer:
    if isinstance(response, bytes):
        command = decode_command(memoryview(response)[4:])
        return Answer(command.code, command.remark, command.ext_fields, bytes(command.body))
    fields: Header | Mapping[str, str] | None = response.header
    if fields is None:
        fields = response.ext_fields
    return Answer(response.code, response.remark, fields, response.body)


async def _nothing(request: Request[Any]) -> Response | None:
    return None
