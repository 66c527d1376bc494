"""The base of Admin's modules: requests to name servers, to brokers, and to all masters at once.

Requests that change topics and groups go to the master of every broker group concerned; requests
that change name servers go to each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Self, TypeVar

from pocketmq.client.backoff import retry
from pocketmq.client.errors import (
    BrokerNotFound,
    NoNameServer,
    RemotingConnectError,
    RemotingError,
    RequestCodeNotSupported,
    TopicNotExist,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.namespace import Namespace
from pocketmq.client.offsets import QueueOffsets
from pocketmq.client.parameters import message_queue, text, text_or_none
from pocketmq.client.routes.route import MASTER_ID, TopicRoute
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.cluster import ClusterInfo
from pocketmq.remoting.bodies.heartbeat import HeartbeatData
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.namesrv import GetRouteInfoRequestHeader

T = TypeVar("T")

_DELETIONS_PER_SECOND: Final = 10  # batchDeleteTopicMaxRate, batchDeleteSubscriptionGroupMaxRate
_LONG: Final = 64 << 10  # bytes of an answer about some 500 queues, which take 20 ms to read


async def read_answers(
    read: Callable[[list[bytes | memoryview]], T], answers: Iterable[Command]
) -> T:
    """Call `read` with the bodies of answers, in a thread if they are long: the event loop may be
    that of a server with a dashboard. Raises BodyError, if `read` does."""
    bodies: list[bytes | memoryview] = [answer.body for answer in answers]
    if sum(map(len, bodies)) < _LONG:
        return read(bodies)
    return await asyncio.to_thread(read, bodies)


class Servers:
    """The servers of one cluster, for an administrator."""

    # Set by Admin, the subclass of all of these classes.
    timeout: float
    _instance: ClientInstance
    _namespace: Namespace
    _life: Lifecycle
    _offsets: QueueOffsets

    def __repr__(self) -> str:
        return f"{type(self).__name__}(client_id={self._instance.client_id!r})"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Start; further calls have no effect."""
        await self._life.start()

    async def shutdown(self) -> None:
        """Close every connection; further calls have no effect."""
        await self._life.shutdown()

    async def cluster_info(self) -> ClusterInfo:
        """Return the broker groups with their addresses and their cluster."""
        answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def ping(self) -> None:
        """Send every master a request that each user may make: a heartbeat without groups.

        Raises NoPermission if a server rejects the signature, or needs one. If the remark contains
        "has no permission", the signature is valid, but the user may not list the brokers.
        """
        body = HeartbeatData(client_id=self._instance.client_id).encode()
        await self._each(await self._masters(), RequestCode.HEART_BEAT, body=body)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic; raises TopicNotExist."""
        header = GetRouteInfoRequestHeader(topic=self._topic(topic), accept_standard_json_only=True)
        try:
            answer = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except TopicNotExist as error:
            raise TopicNotExist(f"topic {topic} does not exist") from error
        return TopicRouteData.decode(answer.body)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic; raises TopicNotExist."""
        route = await self._current_route(topic)
        return tuple(map(self._namespace.unwrap_queue, route.subscribe))

    async def _queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic name on the servers, for requests to its current master.
        Raises TypeError, ValueError, TopicNotExist."""
        message_queue("queue", queue)
        await self._current_route(queue.topic)
        return self._namespace.wrap_queue(queue)

    async def _current_route(self, topic: str) -> TopicRoute:
        """Request a topic's route, and use it from now on; raises TopicNotExist.

        The last known one may name a former master: a slave by now, which lacks messages, and whose
        offsets are overwritten by its master's.
        """
        data = await self.topic_route(topic)
        return self._instance.routes.learn(self._topic(topic), data)

    def _topic(self, topic: str) -> str:
        """Return the name of a topic on the servers. Clients need not be able to create it."""
        return self._namespace.wrap(text("topic", topic))

    # Name servers

    async def _ask(self, code: RequestCode, header: Header | None = None) -> Command:
        self._instance.check_running()
        servers = self._instance.name_servers
        return await self._patiently(lambda left: servers.request(code, header, timeout=left))

    async def _tell(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> None:
        self._instance.check_running()
        await self._instance.name_servers.request_all(code, header, body, timeout=self.timeout)

    async def _patiently(self, ask: Callable[[float], Awaitable[Command]]) -> Command:
        """Call `ask` with the seconds left, again within `timeout` while the server cannot be
        reached, for example during a restart: then the request was not sent."""
        return await retry(ask, self.timeout, NoNameServer, RemotingConnectError)

    # Brokers: broker name → address of the master, then broker name → answer

    async def _masters(
        self, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """Return the master of one broker group, or those of a cluster, or all; raises
        BrokerNotFound if there is none."""
        text_or_none("cluster", cluster)
        text_or_none("broker", broker)
        info = await self.cluster_info()
        if broker is not None:
            names = {broker}
        elif cluster is not None:
            names = set(info.cluster_addr_table.get(cluster, ()))
        else:
            names = set(info.broker_addr_table)
        masters = {
            name: address
            for name, data in info.broker_addr_table.items()
            if name in names and (address := data.broker_addrs.get(MASTER_ID)) is not None
        }
        if not masters:
            if broker is not None:
                raise BrokerNotFound(broker)
            place = "is registered" if cluster is None else f"belongs to cluster {cluster!r}"
            raise BrokerNotFound(remark=f"no broker with a master {place}")
        return masters

    async def _members(self, broker: str) -> dict[int, str]:
        """Return the addresses of a broker group's members by id; raises BrokerNotFound."""
        text("broker", broker)
        data = (await self.cluster_info()).broker_addr_table.get(broker)
        if data is None:
            raise BrokerNotFound(broker, f"broker {broker!r} is not registered")
        return data.broker_addrs

    async def _member(self, broker: str, member: int) -> str:
        """Return the address of one member of a broker group; raises BrokerNotFound."""
        members = await self._members(broker)
        if member not in members:
            raise BrokerNotFound(broker, f"member {member} of broker {broker!r} is not registered")
        return members[member]

    async def _masters_of(self, topic: str) -> dict[str, str]:
        """Return the masters of a topic's brokers; raises TopicNotExist, BrokerNotFound."""
        route = await self.topic_route(topic)
        masters = {
            data.broker_name: address
            for data in route.broker_datas
            if (address := data.broker_addrs.get(MASTER_ID)) is not None
        }
        if not masters:
            raise BrokerNotFound(remark=f"no broker of topic {topic} has a master")
        return masters

    async def _each(
        self,
        masters: dict[str, str],
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        absent: ResponseCode | None = None,
    ) -> dict[str, Command]:
        """Send a request to all masters; return the answers by broker name; raise the first error.

        Brokers that answer `absent` are left out; if all do, that error is raised.
        """

        async def ask(name: str, address: str) -> Command | RemotingError:
            request = self._instance.request
            try:
                return await self._patiently(
                    lambda left: request(address, code, header, body, timeout=left, broker=name)
                )
            except RemotingError as error:
                return error

        answers = await asyncio.gather(*(ask(*master) for master in sorted(masters.items())))
        found: dict[str, Command] = {}
        missing: RemotingError | None = None
        for name, answer in zip(sorted(masters), answers, strict=True):
            if isinstance(answer, Command):
                found[name] = answer
            elif answer.code == absent:
                missing = answer
            else:
                raise answer
        if not found and missing is not None:
            raise missing
        return found

    def _by_queue(self, tables: Iterable[Mapping[MessageQueue, T]]) -> dict[MessageQueue, T]:
        """Merge the tables of several brokers, with the queues' names outside the namespace."""
        return {
            self._namespace.unwrap_queue(queue): value
            for table in tables
            for queue, value in table.items()
        }

    async def _each_list(
        self, masters: dict[str, str], code: RequestCode, body: bytes
    ) -> dict[str, str]:
        """Send a request about several names to all masters; return those that do not know the
        code, which official brokers have from 5.5.1 on."""
        not_known = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        try:
            answers = await self._each(masters, code, body=body, absent=not_known)
        except RequestCodeNotSupported:
            return masters
        return {name: address for name, address in masters.items() if name not in answers}

    def _lists(self, names: list[str]) -> Iterator[list[str]]:
        """Divide names to delete into lists that a broker, which deletes 10 a second by default,
        has deleted in half the time of a request."""
        most = max(1, int(self.timeout * _DELETIONS_PER_SECOND / 2))
        for first in range(0, len(names), most):
            yield names[first : first + most]
