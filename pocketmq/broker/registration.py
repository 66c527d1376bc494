"""Registers this broker and its topics with the name servers.

Name servers do not know each other, so each has its own link here that keeps it up to date: a full
registration at start, every 30 s and after a lost connection, a registration of the changed topics
right after a change, and heartbeats in between. A name server that cannot be reached is logged as a
warning and retried, with growing pauses. Reference: broker BrokerController
(registerBrokerAll, registerIncrementBrokerData), BrokerOuterAPI.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from pocketmq.auth.service import inner_signer
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.topic_config import PERM_READ_WRITE, TopicConfigs
from pocketmq.kept_task import KeptTask
from pocketmq.message import fastjson
from pocketmq.message.checksum import body_crc
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.remoting.bodies.registration import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError, error_for
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    BrokerHeartbeatRequestHeader,
    Header,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from pocketmq.remoting.held_error import HeldError
from pocketmq.remoting.pool import ConnectionPool

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 5.0  # a name server that is back should know its brokers soon
UNREGISTER_TIMEOUT_SECONDS: Final = 2.0
ASK_TIMEOUT_SECONDS: Final = 3.0
LOST_MASTER_SECONDS: Final = 5.0


class BrokerIdentity(NamedTuple):
    """The names and addresses under which a broker is registered."""

    cluster: str
    name: str
    broker_id: int
    address: str


class Registration:
    """Keeps every configured name server up to date.

    `on_order_topics(names)` is called with the topics that a name server lists as ordered. If a
    name server does not answer, the registration is retried after `first_retry` seconds, then with
    growing pauses. With `tls`, the connections are encrypted.

    Attributes:
        first_retry: pause before the first retry, in seconds.
        ha_address: host:port at which slaves copy this broker.
        on_master: called on a slave with the HA address and the address of its master, from a name
            server's answer; both are empty while the master is not registered.
        lacks_master: tells whether a slave has no master; then it registers more often.
    """

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        topics: TopicConfigs,
        on_order_topics: Callable[[Iterable[str]], None],
        *,
        tls: ssl.SSLContext | None = None,
        first_retry: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self.first_retry = first_retry
        self.ha_address = ""
        self.on_master: Callable[[str, str], None] = lambda ha_address, address: None
        self.lacks_master: Callable[[], bool] = lambda: False
        self._config = config
        self._identity = identity
        self._topics = topics
        self._on_order_topics = on_order_topics
        self._pool = ConnectionPool(tls=tls, sign=inner_signer(config))
        self._pool.on_disconnected.append(self._disconnected)
        self._links = [_Link(self, address) for address in config.name_servers]

    async def start(self) -> None:
        """Register everywhere; return when each name server has answered or proved unreachable."""
        if not self._links:
            log.warning("namesrvAddr is not set, so clients cannot find this broker")
        for link in self._links:
            link.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.register_broker_timeout_mills / 1000):
                await self.settled()

    @property
    def registered(self) -> int:
        """The number of name servers at which the broker is registered."""
        return sum(link.registered for link in self._links)

    async def role_changed(self, broker_id: int) -> None:
        """Register with this id from now on; start if it is the first one."""
        first = self._identity.broker_id < 0
        self._identity = self._identity._replace(broker_id=broker_id)
        if first:
            await self.start()

    def topics_changed(self, names: Iterable[str]) -> None:
        """Schedule the registration of these topics; return at once."""
        changed = list(names)
        for link in self._links:
            link.changed(changed)

    async def settled(self) -> None:
        """Wait until each name server has all changes so far, or proves unreachable."""
        for link in self._links:
            await link.idle.wait()

    async def stop(self) -> None:
        """Unregister, so that routes no longer contain this broker, and close the connections."""
        self._pool.on_disconnected.remove(self._disconnected)
        await asyncio.gather(*(link.stop() for link in self._links))
        header = UnRegisterBrokerRequestHeader(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            broker_id=self._identity.broker_id,
        )
        await asyncio.gather(
            *(self._unregister(link.address, header) for link in self._links if link.registered)
        )
        await self._pool.close()

    async def _unregister(self, address: str, header: UnRegisterBrokerRequestHeader) -> None:
        try:
            await self._pool.request(
                address,
                RequestCode.UNREGISTER_BROKER,
                header,
                timeout=UNREGISTER_TIMEOUT_SECONDS,
            )
        except RemotingError as error:
            log.warning("cannot unregister at name server %s: %s", address, error)

    def _disconnected(self, address: str) -> None:
        for link in self._links:
            if link.address == address:
                link.disconnected()

    # --- requests -----------------------------------------------------------------------------

    async def register(self, address: str, names: Sequence[str] | None) -> None:
        """Register once at one name server; `names` None means all topics.

        Raises RemotingError.
        """
        body = self._body(names)
        identity = self._identity
        header = RegisterBrokerRequestHeader(
            broker_name=identity.name,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            ha_server_addr=self.ha_address,
            broker_id=identity.broker_id,
            heartbeat_timeout_millis=120_000,
            enable_acting_master=False,
            compressed=self._config.compressed_register,
            body_crc32=body_crc(body),
        )
        answer = await self._pool.request(
            address,
            RequestCode.REGISTER_BROKER,
            header,
            body,
            timeout=self._config.register_broker_timeout_mills / 1000,
        )
        if answer.code != 0:
            raise error_for(answer.code, answer.remark, address)
        self._read_order_topics(bytes(answer.body))
        master = RegisterBrokerResponseHeader.from_ext(answer.ext_fields)
        self.on_master(master.ha_server_addr or "", master.master_addr or "")

    def _body(self, names: Sequence[str] | None) -> bytes:
        table = self._topics.table
        chosen = table if names is None else {n: table[n] for n in names if n in table}
        permission = self._config.broker_permission
        if permission & PERM_READ_WRITE != PERM_READ_WRITE:
            # No topic has a permission that the broker as a whole lacks.
            chosen = {name: _masked(topic, permission) for name, topic in chosen.items()}
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                data_version=self._topics.data_version, topic_config_table=dict(chosen)
            )
        )
        if self._config.compressed_register:
            return body.encode_compressed()
        # Standard JSON, encoded in C: the keys are not integers, and there may be thousands of
        # topics.
        return msgspec.json.encode(body)

    def _read_order_topics(self, body: bytes) -> None:
        if not body:
            return
        try:
            table = fastjson.decode(body).get("table") or {}
        except (FastjsonError, AttributeError):
            log.warning("the name server's order topics cannot be read: %.80r", body)
            return
        self._on_order_topics(table)

    async def ask(self, code: RequestCode, header: Header) -> Command:
        """Ask one name server after another until one answers. Raises RemotingError."""
        last = HeldError(RemotingError(ResponseCode.SYSTEM_ERROR, "namesrvAddr is not set"))
        for link in self._links:
            try:
                return await self._pool.request(
                    link.address, code, header, timeout=ASK_TIMEOUT_SECONDS
                )
            except RemotingError as error:
                last = HeldError(error)
        raise last.take()

    async def heartbeat(self, address: str) -> None:
        """Send a heartbeat between registrations. Raises RemotingError."""
        identity = self._identity
        await self._pool.send_oneway(
            address,
            RequestCode.BROKER_HEARTBEAT,
            BrokerHeartbeatRequestHeader(
                cluster_name=identity.cluster,
                broker_addr=identity.address,
                broker_name=identity.name,
                broker_id=identity.broker_id,
                heartbeat_timeout_mills=120_000,
            ),
        )

    @property
    def period(self) -> float:
        """Seconds between full registrations."""
        if self.lacks_master():
            return LOST_MASTER_SECONDS
        return self._config.register_name_server_period / 1000

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between heartbeats."""
        return self._config.broker_heartbeat_interval / 1000


def _masked(topic: TopicConfig, permission: int) -> TopicConfig:
    return msgspec.structs.replace(topic, perm=topic.perm & permission)


class _Link:
    """One name server: the changes to send to it, and the task that sends them."""

    def __init__(self, registration: Registration, address: str) -> None:
        self.address = address
        self.registered = False
        # Set while there is nothing to send.
        self.idle = asyncio.Event()
        self._registration = registration
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: KeptTask | None = None
        self._retry = self._registration.first_retry

    def start(self) -> None:
        self._task = KeptTask(self._run, f"registration at {self.address}")

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
        self.idle.set()

    def changed(self, names: Iterable[str]) -> None:
        self._changed.update(dict.fromkeys(names))
        self.idle.clear()
        self._wake.set()

    def disconnected(self) -> None:
        # A name server removes a broker when the connection closes. It may also be restarting.
        if self.registered:
            log.warning("lost the connection to name server %s", self.address)
            self.registered = False
            self._retry = self._registration.first_retry
            self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_full = loop.time()
        while True:
            full = not self.registered or loop.time() >= next_full
            changed = self._changed
            self._changed = {}
            self._wake.clear()
            told = True
            if full or changed:
                told = await self._tell(None if full else list(changed))
            else:
                await self._sign_of_life()
            if told and full:
                next_full = loop.time() + self._registration.period
            if not self._changed:
                self.idle.set()
            if told:
                pause = min(next_full - loop.time(), self._registration.heartbeat_interval)
            else:
                pause = self._retry
            try:
                async with asyncio.timeout(max(pause, 0.0)):
                    await self._wake.wait()
            except TimeoutError:
                if not told:  # what a changed topic made fail in between is not counted
                    self._retry = min(
                        self._retry * 2, LONGEST_RETRY_SECONDS, self._registration.period
                    )
            if not self.registered and not self._changed and told:
                # The connection was lost: give the name server a moment to restart.
                await asyncio.sleep(self._registration.first_retry)

    async def _tell(self, names: list[str] | None) -> bool:
        try:
            await self._registration.register(self.address, names)
        except RemotingError as error:
            log.warning("cannot register at name server %s: %s", self.address, error)
            self.registered = False
            return False
        except Exception:
            # A bug here must not end the task that keeps the broker registered.
            log.exception("registration at name server %s failed", self.address)
            self.registered = False
            return False
        if not self.registered:
            log.info("registered at name server %s", self.address)
        self.registered = True
        self._retry = self._registration.first_retry
        return True

    async def _sign_of_life(self) -> None:
        with contextlib.suppress(RemotingError):
            await self._registration.heartbeat(self.address)
