"""A name server and brokers that answer over real connections, and misbehave when told to.

What a healthy cluster does is tested against the real servers; these are for the rest: brokers that
hang, refuse, close the connection, or answer nonsense at a chosen moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from pocketmq.message.batch_body import iter_batch
from pocketmq.message.checksum import body_crc
from pocketmq.message.identity import encode_offset_msg_id, pack_host
from pocketmq.message.limits import DEFAULT_REGION
from pocketmq.message.message import MessageQueue
from pocketmq.message.record_layout import MAGIC_V1, encode_into, record_size
from pocketmq.remoting.bodies.consumer import GetConsumerListByGroupResponseBody
from pocketmq.remoting.bodies.heartbeat import HeartbeatData
from pocketmq.remoting.bodies.queue_lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from pocketmq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo
from pocketmq.remoting.bodies.table import KVTable
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from pocketmq.remoting.headers.namesrv import (
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
)
from pocketmq.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer

HOST = "127.0.0.1"
STORE_HOST = pack_host(HOST, 10911)


class FakeServer:
    """A server that can be stopped and started again on its port, and counts requests by code."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher()
        self.seen: Counter[int] = Counter()
        self.port = 0
        self._server: RemotingServer | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._server.connections) if self._server is not None else 0

    def on(self, code: RequestCode, handler: Callable[[Request[Any]], Any], header: Any) -> None:
        def counted(request: Request[Any]) -> Any:
            self.seen[code] += 1
            return handler(request)

        self.dispatcher.register(code, counted, header)

    async def start(self) -> None:
        self._server = RemotingServer(self.dispatcher, host=HOST, port=self.port)
        await self._server.start()
        self.port = self._server.port

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
            self._server = None

    def drop_connections(self) -> None:
        assert self._server is not None
        for connection in list(self._server.connections):
            connection.abort("the test says so")


class FakeNameServer(FakeServer):
    """Routes and KV config as the test puts them there.

    While it `hangs`, questions for routes are kept in `waiting` until `release`; `nonsense` is
    answered instead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.nonsense: bytes | None = None
        self.waiting: list[Request[GetRouteInfoRequestHeader]] = []
        self.routes: dict[str, TopicRouteData] = {}
        self.config: dict[str, dict[str, str]] = {}
        self.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route, GetRouteInfoRequestHeader)
        self.on(
            RequestCode.GET_KVLIST_BY_NAMESPACE, self.kv_list, GetKVListByNamespaceRequestHeader
        )

    def put(self, topic: str, brokers: list[FakeBroker], *, queues: int = 2, perm: int = 6) -> None:
        self.routes[topic] = TopicRouteData(
            broker_datas=[
                BrokerData(broker_addrs={0: b.address}, broker_name=b.name, cluster="c")
                for b in brokers
            ],
            queue_datas=[
                QueueData(
                    broker_name=b.name, perm=perm, read_queue_nums=queues, write_queue_nums=queues
                )
                for b in brokers
            ],
        )

    def release(self) -> None:
        """Hang no more, and answer those that wait."""
        self.hangs = False
        for request in self.waiting:
            response = self.route(request)
            assert response is not None
            request.reply(response)
        self.waiting.clear()

    def route(self, request: Request[GetRouteInfoRequestHeader]) -> Response | None:
        if self.hangs:
            self.waiting.append(request)
            return None
        if self.nonsense is not None:
            return Response(body=self.nonsense)
        route = self.routes.get(request.header.topic or "")
        if route is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, "No topic route info in name server")
        return Response(body=route.encode(standard_json=True))

    def kv_list(self, request: Request[GetKVListByNamespaceRequestHeader]) -> Response:
        table = self.config.get(request.header.namespace or "")
        if table is None:
            return Response(ResponseCode.QUERY_NOT_FOUND, "No config item")
        return Response(body=KVTable(table=table).encode())


class FakeBroker(FakeServer):
    """Keeps messages in lists. `mode` says what sends get: None (stored), "hang" (no answer), or
    the response code of an error. It knows the first `queues` of each topic, None: all. `held` are
    the pulls that wait for messages."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.mode: str | int | None = None
        self.queues: int | None = None
        self.region = DEFAULT_REGION
        self.trace_on = True
        self.records: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.sent: list[SendMessageRequestHeaderV2] = []
        self.bodies: list[bytes] = []
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.heartbeats: list[HeartbeatData] = []
        self.unregistered: list[UnregisterClientRequestHeader] = []
        self.clients: dict[str, Any] = {}
        self.pulls: list[PullMessageRequestHeader] = []
        self.pull_answer: Callable[[Request[Any]], Response | None] | None = None
        self.commit_answer = Response()
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.back_answer = Response()
        self.locks: dict[MessageQueue, str] = {}
        self.check_answer = Response()
        self.arrived = asyncio.Event()
        self.beat = asyncio.Event()
        self.held: list[Request[PullMessageRequestHeader]] = []
        self.on(RequestCode.SEND_MESSAGE_V2, self.send, SendMessageRequestHeaderV2)
        self.on(RequestCode.SEND_BATCH_MESSAGE, self.send, SendMessageRequestHeaderV2)
        self.on(RequestCode.PULL_MESSAGE, self.pull, PullMessageRequestHeader)
        self.on(RequestCode.HEART_BEAT, lambda request: self.heartbeat(request), None)
        self.on(
            RequestCode.UNREGISTER_CLIENT,
            lambda request: self.unregister(request),
            UnregisterClientRequestHeader,
        )
        self.on(RequestCode.GET_MAX_OFFSET, self.max_offset, GetMaxOffsetRequestHeader)
        self.on(RequestCode.GET_MIN_OFFSET, self.min_offset, GetMinOffsetRequestHeader)
        self.on(
            RequestCode.QUERY_CONSUMER_OFFSET, self.query_offset, QueryConsumerOffsetRequestHeader
        )
        self.on(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            lambda request: self.update_offset(request),
            UpdateConsumerOffsetRequestHeader,
        )
        self.on(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            lambda request: self.consumer_list(request),
            GetConsumerListByGroupRequestHeader,
        )
        self.on(
            RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back, ConsumerSendMsgBackRequestHeader
        )
        self.on(RequestCode.LOCK_BATCH_MQ, lambda request: self.lock(request), None)
        self.on(RequestCode.UNLOCK_BATCH_MQ, lambda request: self.unlock(request), None)
        self.on(RequestCode.CHECK_CLIENT_CONFIG, lambda request: self.check_answer, None)

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str = "",
        sys_flag: int = 0,
    ) -> int:
        """Append a message and answer the pulls that wait for it; returns its queue offset."""
        queue = self.records[topic, queue_id]
        name, text = topic.encode(), properties.encode()
        size = record_size(len(body), len(name), len(text))
        record = bytearray(size)
        encode_into(
            record, 0, size, MAGIC_V1, body_crc(body), queue_id, 0, len(queue), 1000 * len(queue),
            sys_flag, 1, STORE_HOST, 2, STORE_HOST, 0, 0, body, name, text,
        )  # fmt: skip
        queue.append(bytes(record))
        held, self.held = self.held, []
        for request in held:
            response = self._answer_pull(request)
            if response is not None:
                request.reply(response)
        return len(queue) - 1

    def send(self, request: Request[SendMessageRequestHeaderV2]) -> Response | None:
        header = request.header
        self.arrived.set()
        if self.mode == "hang":
            return None
        if self.mode is not None:
            return Response(int(self.mode), "as the test says", SendMessageResponseHeader())
        if self.queues is not None and header.queue_id >= self.queues:
            remark = f"request queueId[{header.queue_id}] is illegal"
            return Response(ResponseCode.INVALID_PARAMETER, remark, SendMessageResponseHeader())
        self.sent.append(header)
        body = bytes(request.body)
        self.bodies.append(body)
        items = (
            [(bytes(item.body), item.properties.decode()) for item in iter_batch(body)]
            if header.batch
            else [(body, header.properties)]
        )
        offsets = [
            self.store(header.topic, header.queue_id, *item, header.sys_flag) for item in items
        ]
        return Response(
            header=SendMessageResponseHeader(
                msg_id=",".join(encode_offset_msg_id(STORE_HOST, offset) for offset in offsets),
                queue_id=header.queue_id,
                queue_offset=offsets[0],
                transaction_id="" if header.batch else "ID",
                region=self.region,
                trace_on=self.trace_on,
            )
        )

    def pull(self, request: Request[PullMessageRequestHeader]) -> Response | None:
        self.pulls.append(request.header)
        return self._answer_pull(request)

    def _answer_pull(self, request: Request[PullMessageRequestHeader]) -> Response | None:
        """The answer; None when the request is held."""
        if self.pull_answer is not None:
            return self.pull_answer(request)
        header = request.header
        records = self.records[header.topic, header.queue_id]
        end = len(records)
        if header.queue_offset > end:
            return self.pulled(ResponseCode.PULL_OFFSET_MOVED, end, end)
        if header.queue_offset == end:
            if header.sys_flag & 2:
                self.held.append(request)
                return None
            return self.pulled(ResponseCode.PULL_NOT_FOUND, end, end)
        until = min(end, header.queue_offset + min(header.max_msg_nums, 32))
        body = b"".join(records[header.queue_offset : until])
        return self.pulled(ResponseCode.SUCCESS, until, end, body)

    @staticmethod
    def pulled(code: int, following: int, end: int, body: bytes = b"") -> Response:
        return Response(
            code,
            header=PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=following,
                min_offset=0,
                max_offset=end,
            ),
            body=body,
        )

    def heartbeat(self, request: Request[Any]) -> Response:
        data = HeartbeatData.decode(request.body)
        self.heartbeats.append(data)
        self.beat.set()
        if data.consumer_data_set:
            self.clients[data.client_id] = request.connection
        return Response()

    def unregister(self, request: Request[UnregisterClientRequestHeader]) -> Response:
        self.unregistered.append(request.header)
        if request.header.consumer_group is not None:
            self.clients.pop(request.header.client_id, None)
        return Response()

    def consumer_list(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Response:
        if not self.clients:
            return Response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        ids = sorted(self.clients)
        return Response(body=GetConsumerListByGroupResponseBody(consumer_id_list=ids).encode())

    def notify(self, group: str) -> None:
        """Tell every consumer that is connected that the group has changed."""
        for connection in self.clients.values():
            if not connection.closed:
                connection.send_oneway(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    NotifyConsumerIdsChangedRequestHeader(consumer_group=group),
                )

    def send_back(self, request: Request[ConsumerSendMsgBackRequestHeader]) -> Response:
        self.sent_back.append(request.header)
        return self.back_answer

    def lock(self, request: Request[Any]) -> Response:
        """Whoever comes first has a queue until it is unlocked."""
        wanted = LockBatchRequestBody.decode(request.body)
        held = [q for q in wanted.mq_set if self.locks.setdefault(q, wanted.client_id) ==
                wanted.client_id]  # fmt: skip
        return Response(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    def forget(self, client_id: str) -> None:
        """What brokers do by themselves a while after a client is gone."""
        self.clients.pop(client_id, None)
        self.locks = {queue: own for queue, own in self.locks.items() if own != client_id}

    def unlock(self, request: Request[Any]) -> Response:
        given = UnlockBatchRequestBody.decode(request.body)
        for queue in given.mq_set:
            if self.locks.get(queue) == given.client_id:
                del self.locks[queue]
        return Response()

    async def running_info(self, client_id: str, group: str = "G") -> ConsumerRunningInfo:
        """What a push consumer tells operators."""
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        connection = self.clients[client_id]
        answer = await connection.send_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return ConsumerRunningInfo.decode(answer.body)

    async def ask_client(self, code: RequestCode, header: Any, body: bytes = b"") -> Command:
        """Ask the one client that is registered."""
        (connection,) = self.clients.values()
        answer: Command = await connection.send_request(code, header, body)
        return answer

    def max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Response | None:
        if self.mode == "hang":
            return None
        end = len(self.records[request.header.topic, request.header.queue_id])
        return Response(header=GetMaxOffsetResponseHeader(offset=end))

    def min_offset(self, request: Request[GetMinOffsetRequestHeader]) -> Response:
        return Response(header=GetMinOffsetResponseHeader(offset=0))

    def query_offset(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
        header = request.header
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return Response(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return Response(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update_offset(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response | None:
        header = request.header
        if self.commit_answer.code == ResponseCode.SUCCESS:
            assert header.queue_id is not None
            assert header.commit_offset is not None
            key = (header.consumer_group, header.topic, header.queue_id)
            self.offsets[key] = header.commit_offset
        return self.commit_answer


class FakeCluster:
    """A name server and brokers; `put` makes a topic on some of them."""

    def __init__(self, *brokers: str) -> None:
        self.name_server = FakeNameServer()
        self.brokers = {name: FakeBroker(name) for name in brokers}

    async def start(self) -> None:
        for server in (self.name_server, *self.brokers.values()):
            await server.start()

    async def stop(self) -> None:
        for server in (self.name_server, *self.brokers.values()):
            await server.stop()

    def put(self, topic: str, *names: str, queues: int = 2, perm: int = 6) -> None:
        brokers = [self.brokers[name] for name in names or self.brokers]
        self.name_server.put(topic, brokers, queues=queues, perm=perm)

    def __getitem__(self, name: str) -> FakeBroker:
        return self.brokers[name]

    @property
    def namesrv(self) -> str:
        return self.name_server.address
