"""The base of every producer, consumer and admin: connections, routes, heartbeats, tasks.

An instance is one client of the cluster: one clientId, one connection pool, one route table. The
constructor uses neither an event loop nor the network; `start` begins the periodic work, and
`shutdown` leaves no task and no connection behind. Both may be called any number of times.
Reference: MQClientInstance, also for the periods.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pocketmq.client.any_answer import any_answer
from pocketmq.client.backoff import retry
from pocketmq.client.batch_protocol import BatchProtocol
from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import (
    NOT_STARTED,
    SHUT_DOWN,
    BrokerNotFound,
    NoNameServer,
    NoRouteInfo,
    NotRunning,
    RemotingError,
    RemotingTimeout,
    error_for,
    unanswered,
)
from pocketmq.client.heartbeat import HEARTBEAT_PERIOD, Heartbeat
from pocketmq.client.log_fields import fields
from pocketmq.client.loop_binding import LoopBinding
from pocketmq.client.namespace import Namespace
from pocketmq.client.parameters import Seconds, seconds, seconds_or_none
from pocketmq.client.routes.name_server_list import REFRESH_PERIOD, NameServerList
from pocketmq.client.routes.name_servers import NAMESRV_TIMEOUT, NameServers
from pocketmq.client.routes.route import RouteTable
from pocketmq.client.routes.vip_channel import VipChannel, vip_address
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.message.identity import local_address
from pocketmq.message.limits import TBW102
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.dispatch import Dispatcher

log = logging.getLogger(__name__)

ROUTE_POLL_PERIOD = 30.0
#: Default timeout of one request to a broker, seconds.
BROKER_TIMEOUT = 5.0
#: Seconds that an attempt to reach a name server may take at least, even if less time is left.
LEAST_ATTEMPT = 0.5

T = TypeVar("T")


def client_id(instance_name: str, unit_name: str, ip: str, *, lasting: bool = False) -> str:
    """Return `ip@instanceName[@unitName]`. The name DEFAULT is replaced with pid#nanoseconds, but
    not for a `lasting` id, which is the same in every run."""
    if instance_name == "DEFAULT" and not lasting:
        instance_name = f"{os.getpid()}#{time.time_ns()}"
    return f"{ip}@{instance_name}" + (f"@{unit_name}" if unit_name else "")


class ClientInstance:
    """One client of the cluster.

    `namesrv` is `"host:port;host:port"`, a list, the URL of a list, or None for the environment's
    NAMESRV_ADDR (`name_server_list`); raises NoNameServer and InvalidName. `owner` names the
    client in errors and logs. `lasting_id`: the clientId is the same in every run. `template` and
    `template_queues` are those of RouteTable. `cancel_timeout`: seconds that a shutdown waits for
    the tasks that it has cancelled. The other options are described in `client.options`.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        owner: str = "client",
        instance_name: str = "DEFAULT",
        unit_name: str = "",
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | bool = False,
        vip_channel: bool = False,
        namespace: str = "",
        start_timeout: Seconds | None = None,
        route_interval: Seconds = ROUTE_POLL_PERIOD,
        heartbeat_interval: Seconds = HEARTBEAT_PERIOD,
        lasting_id: bool = False,
        template: str = TBW102,
        template_queues: int = 4,
        cancel_timeout: float = 5.0,
    ) -> None:
        self._owner = owner
        self._cancel_timeout = cancel_timeout
        self._start_timeout = seconds_or_none("start_timeout", start_timeout)
        self._route_interval = seconds("route_interval", route_interval, above_zero=True)
        self._heartbeat_interval = seconds(
            "heartbeat_interval", heartbeat_interval, above_zero=True
        )
        self.namespace = Namespace(namespace)
        self._list = NameServerList(namesrv, unit_name)
        self.client_id = client_id(
            instance_name, unit_name, local_address() or "127.0.0.1", lasting=lasting_id
        )
        self.dispatcher = Dispatcher()
        self._log = LimitedLog(log)
        self.pool = ConnectionPool(
            self.dispatcher,
            tls=ssl.create_default_context() if tls is True else tls or None,
            sign=None if credentials is None else credentials.sign,
        )
        self.pool.on_connected.append(self._connected)
        self.batch_protocol = BatchProtocol(self.pool)
        self.name_servers = NameServers(self._list.addresses, self.pool)
        self.routes = RouteTable(
            self.name_servers, self.spawn, template=template, template_queues=template_queues
        )
        self.vip_channel = VipChannel(vip_channel)
        #: Returns the master address to send to, by broker name; on the VIP channel if it is used.
        self.master = self._vip_master if vip_channel else self.routes.master
        self.heartbeat = Heartbeat(self.client_id, self.pool, self.routes)
        self.running = False
        self.binding = LoopBinding()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._with_route_poll: list[Callable[[], Awaitable[object]]] = []
        self._closed = False

    def with_route_poll(self, job: Callable[[], Awaitable[object]]) -> None:
        """Run `job` with each route poll, the first time at the start."""
        self._with_route_poll.append(job)

    async def start(self) -> None:
        """Begin the periodic work.

        Raises:
            NotRunning: the client was shut down, before or while it started.
            NoNameServer: the URL of the name server list cannot be read, or no name server could be
            reached within `start_timeout`.
        """
        if self.running:
            return
        self.binding.enter()
        try:
            await self.with_name_server(self._find_name_server)
        except BaseException:
            await self.pool.disconnect()
            raise
        finally:
            if self._closed:
                await self.pool.close()
        if self._closed:
            raise NotRunning(self._owner, SHUT_DOWN)
        if self.running:
            return  # another caller started it while the list was fetched
        self.running = True
        if self._list.url is not None:
            self.every(REFRESH_PERIOD, self._list.fetch, "name server list")
        self.keep(self._poll, "route poll")
        self.keep(self.name_servers.watch, "name servers")
        self.every(self._heartbeat_interval, self.heartbeat.send_all, "heartbeat")

    async def with_name_server(self, ask: Callable[[float], Awaitable[T]]) -> T:
        """Return the result of `ask`, which is called with the seconds that it may take. While it
        raises NoNameServer, call it again for up to `start_timeout` seconds; without that option,
        call it once.

        Raises:
            NoNameServer: no name server was found in that time. Other errors of `ask` are raised.
        """
        timeout = self._start_timeout or 0.0
        least = NAMESRV_TIMEOUT if self._start_timeout is None else LEAST_ATTEMPT

        def waiting() -> None:
            told = fields(client_id=self.client_id)
            log.warning(
                "the %s waits up to %g s for a name server", self._owner, timeout, extra=told
            )

        def attempt(left: float) -> Awaitable[T]:
            return ask(max(left, least))

        return await retry(attempt, timeout, NoNameServer, waiting=waiting)

    async def _find_name_server(self, timeout: float) -> None:
        """Fetch the list of name servers, and connect to one if `start` has to wait for that."""
        if self._closed:
            raise NotRunning(self._owner, SHUT_DOWN)
        await self._list.fetch()
        if self._start_timeout is not None:
            await self.name_servers.connect(timeout=timeout)

    async def shutdown(self) -> None:
        """Unregister the groups, cancel every task, and close every connection."""
        if not self.running:
            self._closed = True
            return
        self.running = False
        self._closed = True
        try:
            await self.heartbeat.unregister_all()
        finally:
            tasks = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            # Before closing the pool: a task that waits for a connection would take its
            # cancellation for an error of the pool and continue. With a timeout, because a
            # handler may ignore its cancellation.
            ended = asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.wait([ended], timeout=self._cancel_timeout)
            await self.pool.close()

    def check_running(self) -> None:
        """Raise NotRunning before the start, after the shutdown, and in another loop or process."""
        if not self.running:
            raise NotRunning(self._owner, SHUT_DOWN if self._closed else NOT_STARTED)
        why = self.binding.why_elsewhere
        if why is not None:
            raise NotRunning(self._owner, why)

    async def ping(self, timeout: float) -> None:
        """Return when a master of the topics in use has answered, or, while no topic is in use, a
        name server. Any answer counts, even an error.

        Raises NotRunning, and Unavailable if none has answered within `timeout` seconds.
        """
        self.check_running()
        masters = self.routes.masters()
        if not masters:
            await self.name_servers.ping(timeout, self.spawn)
            return
        body = self.heartbeat.data().encode()

        async def ask(address: str, left: float) -> None:
            await self.pool.request(address, RequestCode.HEART_BEAT, None, body, timeout=left)

        addresses = [address for address in masters.values() if address is not None]
        answering, failed = await any_answer(addresses, ask, timeout, self.spawn)
        if answering is None:
            if not failed:
                raise BrokerNotFound(remark="no broker of the topics in use has a master")
            raise failed.popitem()[1]

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Create a task that shutdown cancels. Its errors are not logged, only raised to a waiter;
        `keep` is for tasks without one."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self.client_id} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def keep(
        self, work: Callable[[], Coroutine[Any, Any, None]], name: str, *, ends: bool = False
    ) -> KeptTask:
        """Run `work` until shutdown, or, with `ends`, until it returns. Any other end is logged,
        and the work is restarted."""
        return KeptTask(work, name, self.spawn, lambda: self.running, ends=ends)

    def every(self, period: float, job: Callable[[], Awaitable[object]], name: str) -> KeptTask:
        """Run `job` every `period` seconds, the first time after one period. An error is logged and
        ends only that round."""

        async def rounds() -> None:
            while True:
                await asyncio.sleep(period)
                await self._guarded(job, name)

        return self.keep(rounds, name)

    async def broker_address(self, queue: MessageQueue) -> str:
        """Return the address of the queue's master; fetch the topic's route if it is not known.

        Raises NoRouteInfo for an unknown topic, BrokerNotFound for a broker without a route.
        """
        known = queue.broker_name in self.routes.brokers
        if not known and await self.routes.for_subscribe(queue.topic) is None:
            raise NoRouteInfo(queue.topic)
        return self.routes.address(queue.broker_name)

    def _vip_master(self, broker_name: str) -> str:
        return vip_address(self.routes.master(broker_name))

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout: float = BROKER_TIMEOUT,
        broker: str | None = None,
        batch: bool = False,
    ) -> Command:
        """Return a broker's answer; raise the error of an error answer. `address` is the broker's
        own, even if the VIP channel is used.

        `batch`, only for idempotent requests: requests with this code that are made to the broker
        at the same time are sent as one (`client.batch_protocol`).
        """
        target = self.vip_channel.address(address, code)
        try:
            if batch:
                answer = await self.batch_protocol.request(
                    target, code, header, body, timeout=timeout, repeatable=True
                )
            else:
                answer = await self.pool.request(target, code, header, body, timeout=timeout)
        except RemotingTimeout as error:
            raise unanswered(error, f"broker {target}", code, timeout) from None
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, broker or address)
        return answer

    async def _poll(self) -> None:
        while True:
            await self._guarded(self.routes.poll, "route poll")
            for job in self._with_route_poll:
                await self._guarded(job, "route poll")
            await asyncio.sleep(self._route_interval)

    async def _guarded(self, job: Callable[[], Awaitable[object]], name: str) -> None:
        try:
            await job()
        except NoNameServer as error:
            log.debug("%s: %s", name, error)  # NameServers warns once per outage
        except RemotingError as error:
            told = fields(error, client_id=self.client_id)
            self._log.warning("%s: %s", name, error, cause=(name, type(error)), extra=told)
        except Exception:
            log.exception("%s failed", name, extra=fields(client_id=self.client_id))

    def _connected(self, address: str) -> None:
        if self.running:
            # The new connection may be to the VIP channel; heartbeats go to the broker's own port.
            for own in self.vip_channel.own_addresses(address):
                self.spawn(self._greet(own), f"heartbeat to {own}")

    async def _greet(self, address: str) -> None:
        await self._guarded(lambda: self.heartbeat.connected(address), "heartbeat")
