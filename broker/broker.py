"""One broker: everything of the package wired together, started and stopped.

Starting: the store is opened (and recovered), the tables are loaded, the port is listened on, the
name servers are told; then `start` returns. Stopping goes the other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from broker.config import BrokerConfig
from broker.consumer_groups import ConsumerGroup, ConsumerGroups
from broker.consumer_offset import ConsumerOffsets
from broker.draft import Drafts
from broker.processors.admin import AdminProcessor
from broker.processors.batch import BatchProcessor
from broker.processors.client import ClientProcessor
from broker.processors.group import GroupProcessor
from broker.processors.message_query import MessageQueryProcessor
from broker.processors.offset import OffsetProcessor
from broker.processors.pull import PullProcessor
from broker.processors.queue_lock import QueueLockProcessor
from broker.processors.send_checks import SendChecks, refuse_unserved
from broker.processors.send_run import RunSendProcessor
from broker.processors.topic import TopicProcessor
from broker.producer_groups import ProducerGroups
from broker.queue_locks import QueueLocks
from broker.registration import BrokerIdentity, Registration
from broker.runtime_info import RuntimeInfo
from broker.statistics import Statistics
from broker.subscription_group import SubscriptionGroups
from broker.topic_config import TopicConfigs
from message.identity import pack_host
from remoting.codes import RequestCode
from remoting.dispatch import Dispatcher
from remoting.errors import RemotingError
from remoting.headers import NotifyConsumerIdsChangedRequestHeader
from remoting.server import CannotListen, PortInUse, RemotingServer
from store.message_store import MessageStore

log = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS: Final = 10.0
ANNOUNCE_SECONDS: Final = 1.0  # how long an admin's answer waits for the name servers


def now_ms() -> int:
    """The wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Broker:
    """A broker in this process; `clock` gives milliseconds.

    The constructor touches neither files nor the network; `store`, `dispatcher` and `port` are
    there after `start`.
    """

    store: MessageStore
    dispatcher: Dispatcher

    def __init__(self, config: BrokerConfig, *, clock: Callable[[], int] = now_ms) -> None:
        self.config = config
        self.port = config.listen_port
        self._clock = clock
        self._stack: contextlib.AsyncExitStack | None = None

    @property
    def address(self) -> str:
        """``host:port`` as clients are told."""
        return f"{self.config.advertised_host}:{self.port}"

    async def start(self) -> None:
        """Returns when the broker listens and every reachable name server knows it.

        Raises StoreLocked, StoreCorrupt, PortInUse; what was started by then is stopped again.
        """
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Unregister, close connections, write everything to disk. Idempotent."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config = self.config
        reservation = None
        if self.port == 0:
            # Message ids and the registration contain the port, so it must be known first.
            reservation = stack.enter_context(_reserve_port(config.bind_address))
            self.port = reservation.getsockname()[1]
        told = await _resolve(config.advertised_host)
        if _loopback(config.bind_address) and not _loopback(told):
            log.warning(
                "clients are told to connect to %s (brokerIP1), but only loopback is listened on: "
                "set bindAddress, e.g. to 0.0.0.0",
                config.advertised_host,
            )
        store_host = pack_host(told, self.port)
        store = self.store = MessageStore(config, store_host=store_host, clock=self._clock)
        store.open()
        stack.push_async_callback(store.close)
        self._build(store, store_host, stack)
        store.start()

        server = RemotingServer(
            self.dispatcher,
            host=config.bind_address,
            port=self.port,
            idle_timeout=float(config.server_channel_max_idle_time_seconds),
        )
        await server.start()
        if reservation is not None:
            reservation.close()
        stack.push_async_callback(server.stop)
        await self._start_vip_server(stack)
        stack.push_async_callback(self._registration.stop)
        await self._registration.start()
        self._every(stack, 1.0, self._statistics.tick)
        self._every(stack, HOUSEKEEPING_SECONDS, self._expire)

    def _build(
        self, store: MessageStore, store_host: bytes, stack: contextlib.AsyncExitStack
    ) -> None:
        config, clock = self.config, self._clock
        directory = config.root / "config"
        directory.mkdir(parents=True, exist_ok=True)
        self._statistics = Statistics(config.broker_cluster_name, clock)
        self._groups = SubscriptionGroups(config, directory / "subscriptionGroup.json", clock)
        self._groups.load()
        self._offsets = ConsumerOffsets(
            directory / "consumerOffset.json", clock, config.consumer_offset_update_version_step
        )
        self._offsets.load()
        self._keep_offsets(stack)
        self._topics = TopicConfigs(config, directory / "topics.json", clock, self._topics_changed)
        self._topics.load()
        self._consumers = ConsumerGroups(self._notify_members, clock)
        self._producers = ProducerGroups(clock)
        self._locks = QueueLocks(clock)
        identity = BrokerIdentity(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            self.address,
            f"{config.advertised_host}:{self.port + 1}",
        )
        self._registration = Registration(config, identity, self._topics, self._topics.mark_ordered)
        checks = SendChecks(config, self._topics, self._groups, self._locks, clock)
        self._drafts = Drafts(store)
        self._drafts.detours.append(refuse_unserved)
        self._sends = RunSendProcessor(
            config, store, self._drafts, checks, self._statistics, store_host, self._announced
        )
        self._pulls = PullProcessor(
            config,
            store,
            self._topics,
            self._groups,
            self._consumers,
            self._offsets,
            self._statistics,
        )
        stack.callback(self._pulls.holds.close)
        self._processors = self._make_processors(store)
        self.dispatcher = Dispatcher()
        self._pulls.register(self.dispatcher)
        for processor in self._processors:
            processor.register(self.dispatcher)
        self._register_batches(self.dispatcher)

    def _register_batches(self, dispatcher: Dispatcher) -> None:
        """Let the codes that `dispatcher` serves come as children of batches too."""
        processor = BatchProcessor(self.config, dispatcher, self._pulls.holds)
        processor.register(dispatcher)

    def _make_processors(self, store: MessageStore) -> tuple[_Processor, ...]:
        """All processors but that of pulls, which the VIP channel does without."""
        config, clock = self.config, self._clock
        runtime_info = RuntimeInfo(config, store, self._statistics, self._sends, self._pulls, clock)
        return (
            self._sends,
            OffsetProcessor(config, store, self._topics, self._groups, self._offsets),
            ClientProcessor(
                config, self._topics, self._groups, self._consumers, self._producers, clock
            ),
            QueueLockProcessor(self._locks),
            MessageQueryProcessor(store),
            TopicProcessor(
                config,
                store,
                self._topics,
                self._consumers,
                self._offsets,
                self._statistics,
                self._announced,
                self._pulls.holds.wake_topic,
            ),
            GroupProcessor(
                config,
                store,
                self._topics,
                self._groups,
                self._consumers,
                self._producers,
                self._offsets,
                self._statistics,
            ),
            AdminProcessor(config, runtime_info, self._statistics, clock),
        )

    async def _start_vip_server(self, stack: contextlib.AsyncExitStack) -> None:
        """listenPort-2 serves everything but pulls, so that sends need not queue behind them.

        Clients use it only when told to, so a taken port is no reason not to start.
        """
        config = self.config
        if not config.vip_channel_enable or config.listen_port <= 2:
            return
        dispatcher = Dispatcher()
        for processor in self._processors:
            processor.register(dispatcher)
        self._register_batches(dispatcher)
        vip = RemotingServer(
            dispatcher,
            host=config.bind_address,
            port=config.listen_port - 2,
            idle_timeout=float(config.server_channel_max_idle_time_seconds),
            name="broker's VIP channel",
        )
        try:
            await vip.start()
        except (PortInUse, CannotListen) as error:
            log.info("no VIP channel: %s", error)
        else:
            stack.push_async_callback(vip.stop)

    # --- what the parts tell each other -------------------------------------------------------

    def _topics_changed(self, names: Iterable[str]) -> None:
        self._sends.forget_targets()
        self._registration.topics_changed(names)

    async def _announced(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANNOUNCE_SECONDS):
                await self._registration.settled()

    def _notify_members(self, group: ConsumerGroup) -> None:
        if not self.config.notify_consumer_ids_changed_enable:
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
        for connection in group.clients:
            # One that is going away will be noticed by its own close callback.
            with contextlib.suppress(RemotingError):
                connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)

    def _expire(self) -> None:
        silent = self.config.channel_expired_timeout
        for client in self._consumers.expire(silent):
            log.warning("consumer %s sent no heartbeat for %d ms", client.client_id, silent)
        self._producers.expire(silent)
        self._locks.expire()

    def _keep_offsets(self, stack: contextlib.AsyncExitStack) -> None:
        """Write the consumer offsets every few seconds, off the loop, and once more at the end."""
        stopping = asyncio.Event()
        interval = self.config.flush_consumer_offset_interval / 1000

        async def keep() -> None:
            while not stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await stopping.wait()
                content = self._offsets.unsaved()
                if content is not None:
                    try:
                        await asyncio.to_thread(self._offsets.write, content)
                    except OSError as error:
                        log.error("consumer offsets are not on the disk: %s", error)

        async def stop() -> None:
            stopping.set()
            await task

        task = asyncio.get_running_loop().create_task(keep())
        stack.push_async_callback(stop)

    @staticmethod
    def _every(
        stack: contextlib.AsyncExitStack, seconds: float, action: Callable[[], None]
    ) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    action()
                except Exception:
                    # Full disk, a bug: the next round may do better.
                    log.exception("%s failed", action)

        task = asyncio.get_running_loop().create_task(repeat())
        stack.callback(task.cancel)


_Processor = (
    RunSendProcessor
    | OffsetProcessor
    | ClientProcessor
    | QueueLockProcessor
    | MessageQueryProcessor
    | TopicProcessor
    | GroupProcessor
    | AdminProcessor
)


def _reserve_port(host: str) -> socket.socket:
    """A socket bound to a free port of `host`.

    It does not listen: until it is closed nobody else is given the port, while a server socket
    that reuses addresses, as asyncio's do, can already be bound to it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, 0))
    return reserved


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


async def _resolve(host: str) -> str:
    """The numeric address of `host`, as message ids contain it. Raises CannotListen."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CannotListen(f"brokerIP1 {host} can not be resolved: {error.strerror}") from None
    # IPv4 first: every client reads its message ids.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
