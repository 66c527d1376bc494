"""Who is counted as a replica: the HA port of a master answers nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq import Credentials, Message, Producer
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.service import inner_signer
from pocketmq.auth.users import User
from pocketmq.broker.config import BrokerConfig, BrokerRole, load_broker_config
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.frames import encode_report
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.settings.properties_file import ConfigErrors
from pocketmq.types import SendStatus
from tests.broker.replication.pair import Pair, classic, client_of, running
from tests.client.waiting import until
from tests.interop.harness.ports import free_port

INNER = json.dumps({"accessKey": "inner", "secretKey": "inner password"})
ADMIN = json.dumps({"username": "admin", "password": "admin password"})
SIGNED: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": ADMIN,
    "inner_client_authentication_credentials": INNER,
}
#: Other machines reach it; clients of this test still use loopback.
OPEN: dict[str, Any] = {"bind_address": "0.0.0.0", "broker_ip1": "127.0.0.1"}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(tmp_path) as pair:
        yield pair


async def acknowledged_by_nobody(pair: Pair) -> SendStatus:
    """Send a message while a forger reports that it has everything; return how it went."""
    port = classic(pair.master).service.server.port

    async def forge() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                read = b"as soon as there is something new"
                while read:
                    writer.write(encode_report(pair.master.store.commit_log.written))
                    read = await reader.read(65_536)
            writer.close()

    forger = asyncio.create_task(forge())
    try:
        credentials = Credentials("admin", "admin password")
        async with Producer("PG", namesrv=pair.namesrv, credentials=credentials) as producer:
            return (await producer.send(Message("T", b"x"))).status
    finally:
        forger.cancel()


@pytest.mark.parametrize(
    "settings",
    [
        SIGNED | OPEN,
        OPEN | {"ha_allowed_addresses": "192.0.2.7"},
        {"ha_allowed_addresses": "192.0.2.0/24;2001:db8::/32"},
    ],
)
async def test_a_forged_acknowledgement_is_not_counted(
    settings: dict[str, Any], pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(
        0, in_sync_replicas=2, slave_timeout=300, **settings | {"ha_listen_port": free_port()}
    )
    assert await acknowledged_by_nobody(pair) is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert "HA port refuses 127.0.0.1" in caplog.text
    assert classic(pair.master).service.server.acks() == []


async def test_a_slave_that_signs_comes_up_by_itself(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2, ha_listen_port=free_port(), **SIGNED, **OPEN)
    await pair.start(1, **SIGNED)
    await pair.connected()
    credentials = Credentials("admin", "admin password")
    async with Producer("PG", namesrv=pair.namesrv, credentials=credentials) as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
    await pair.copied()


async def test_a_slave_with_other_credentials_is_refused_with_the_reason(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(0, in_sync_replicas=2, ha_listen_port=free_port(), **SIGNED, **OPEN)
    other = json.dumps({"accessKey": "inner", "secretKey": "another password"})
    await pair.start(1, **SIGNED | {"inner_client_authentication_credentials": other})
    await until(lambda: "innerClientAuthenticationCredentials must be set there" in caplog.text)
    assert classic(pair.master).service.server.acks() == []


async def test_only_a_super_user_vouches_for_an_address(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2, ha_listen_port=free_port(), **SIGNED, **OPEN)
    auth = pair.master.auth
    assert auth is not None
    auth.tables.put_user(User("viewer", "viewer password"))
    sees_all = Entry(Resource.parse("Cluster:*"), frozenset({Action.ALL}), Decision.ALLOW)
    auth.tables.put_acl("viewer", Acl(custom=(sees_all,)))
    viewer = json.dumps({"accessKey": "viewer", "secretKey": "viewer password"})
    pool = ConnectionPool(
        sign=inner_signer(BrokerConfig(inner_client_authentication_credentials=viewer))
    )
    answer = await pool.request(
        pair.master.address, RequestCode.GET_ALL_DELAY_OFFSET, Header(), timeout=30
    )
    assert answer.code == 0
    await pool.close()
    service = classic(pair.master).service
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
    writer.write(encode_report(0))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_a_slave_that_is_listed_needs_no_signature(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2, ha_allowed_addresses="10.0.0.0/8;127.0.0.1", **OPEN)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        assert (await client.send("T")).code == 0


# --- the rule ---------------------------------------------------------------------------------


def rule(clock: Any = lambda: 0.0, **settings: Any) -> AllowedReplicas:
    return AllowedReplicas(BrokerConfig(**settings), clock)


def test_a_port_that_only_this_machine_reaches_is_open() -> None:
    allowed = rule(broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=2)
    assert not allowed.refusal("127.0.0.1")


def test_a_master_that_waits_for_nobody_is_open_without_authentication() -> None:
    assert not rule(bind_address="0.0.0.0").refusal("10.0.0.9")


@pytest.mark.parametrize(
    ("host", "ok"),
    [
        ("10.0.0.9", True),
        ("::ffff:10.0.0.9", True),
        ("10.1.0.9", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("fe80::1%eth0", False),
        ("nonsense", False),
    ],
)
def test_a_list_names_addresses_and_networks(host: str, ok: bool) -> None:
    allowed = rule(ha_allowed_addresses="10.0.0.0/16, 2001:db8::/32")
    assert bool(allowed.refusal(host)) is not ok


OF_GROUPS = "enableControllerMode=true\ncontrollerAddr=c:9878\nhaListenPort=1\n"
WAITING = [
    "brokerRole=SYNC_MASTER\ninSyncReplicas=2\n",
    "brokerRole=SYNC_MASTER\nenableSlaveActingMaster=true\n",
    OF_GROUPS + "allAckInSyncStateSet=true\n",
    OF_GROUPS + "minInSyncReplicas=2\n",
]


@pytest.mark.parametrize("settings", WAITING)
def test_a_master_that_would_believe_everybody_does_not_start(settings: str) -> None:
    with pytest.raises(ConfigErrors, match="set haAllowedAddresses"):
        load_broker_config(settings + "bindAddress=0.0.0.0\n")
    for known in (
        "bindAddress=127.0.0.1\n",
        "bindAddress=0.0.0.0\nhaAllowedAddresses=10.0.0.2\n",
        "bindAddress=0.0.0.0\nauthenticationEnabled=true\n",
    ):
        load_broker_config(settings + known)


def test_a_list_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigErrors, match=r"haAllowedAddresses: '10\.0\.0' does not appear"):
        load_broker_config("haAllowedAddresses=10.0.0\n")
