"""A name that a client claims gives no right: neither a group, nor a client id, nor a property."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.guard import Guard, SignedCaller
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.service import signer_of
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserStatus
from pocketmq.broker.tables.client_ids import MAX_IDS, MAX_IDS_OF_USER, ClientIds
from pocketmq.embedded import EmbeddedServer
from pocketmq.message import properties as names
from pocketmq.message.record import decode
from pocketmq.message.sysflag import TRANSACTION_PREPARED
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import SendMessageRequestHeaderV2
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from tests.security.conftest import PROPERTIES

OWNER = User("owner", "owner-password-1")
EVE = User("eve", "eve-password-1")
ROOT = User("root", "root-password-1")
TOPIC, GROUP, PRODUCERS = "secrets", "readers", "pg"

PUSHED = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)


class Member:
    """A connection of a user, and what the broker pushed to it."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.pushed: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.connection: Connection

    async def open(self, address: str) -> None:
        dispatcher = Dispatcher()
        for code in PUSHED:
            dispatcher.register(code, self._take)
        self.connection = await Connection.open(
            address, dispatcher=dispatcher, sign=signer_of(self.user)
        )

    def _take(self, request: Request[Any]) -> Response:
        self.pushed.put_nowait((request.code, bytes(request.body)))
        return Response()

    async def heartbeat(
        self, client_id: str, *, producer: str = "", consumer: str = "", topic: str = TOPIC
    ) -> Command:
        body: dict[str, Any] = {"clientID": client_id}
        if producer:
            body["producerDataSet"] = [{"groupName": producer}]
        if consumer:
            subscription = {"topic": topic, "subString": "*"}
            body["consumerDataSet"] = [
                {"groupName": consumer, "subscriptionDataSet": [subscription]}
            ]
        return await self.connection.request(
            RequestCode.HEART_BEAT, None, json.dumps(body).encode()
        )

    async def send(self, topic: str, body: bytes, flag: int = 0, **properties: str) -> Command:
        header = SendMessageRequestHeaderV2(
            producer_group=PRODUCERS,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=names.encode(properties),
        )
        return await self.connection.request(RequestCode.SEND_MESSAGE_V2, header, body)

    async def next(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            return await self.pushed.get()


Open = Callable[[User], Awaitable[Member]]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    fast = {
        "transactionTimeOut": "100",
        "transactionCheckInterval": "100",
        "useServerSideResetOffset": "false",
    }
    async with EmbeddedServer(properties=PROPERTIES | fast) as server:
        assert server.broker.auth is not None
        tables = server.broker.auth.tables
        for user in (OWNER, EVE):
            tables.put_user(user)
        grant(server, OWNER, f"Topic:{TOPIC}", "Topic:TBW102", f"Group:{GROUP}")
        yield server


@pytest.fixture
async def member(server: EmbeddedServer) -> AsyncIterator[Open]:
    opened: list[Member] = []

    async def open_as(user: User) -> Member:
        made = Member(user)
        await made.open(server.broker.address)
        opened.append(made)
        return made

    yield open_as
    for each in opened:
        await each.connection.close()


def grant(server: EmbeddedServer, user: User, *resources: str) -> None:
    """Give a user all of these, and nothing else."""
    assert server.broker.auth is not None
    entries = (Entry(Resource.parse(r), frozenset({Action.ALL}), Decision.ALLOW) for r in resources)
    server.broker.auth.tables.put_acl(user.username, Acl(custom=tuple(entries)))


# --- transaction checks ---------------------------------------------------------------------------


async def test_a_check_goes_to_members_that_may_publish(member: Open) -> None:
    owner, eve = await member(OWNER), await member(EVE)
    assert (await eve.heartbeat("eve", producer=PRODUCERS)).code == 0
    assert (await owner.heartbeat("owner", producer=PRODUCERS)).code == 0
    half = {names.TRAN_MSG: "true", names.PGROUP: PRODUCERS}
    for _ in range(4):
        assert (await owner.send(TOPIC, b"secret", TRANSACTION_PREPARED, **half)).code == 0
    for _ in range(4):
        code, body = await owner.next()
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        assert b"secret" in body
    assert eve.pushed.empty()


async def test_the_rights_at_the_time_of_the_check_count(
    server: EmbeddedServer, member: Open
) -> None:
    owner, eve = await member(OWNER), await member(EVE)
    assert (await owner.heartbeat("owner", producer=PRODUCERS)).code == 0
    assert (await eve.heartbeat("eve", producer=PRODUCERS)).code == 0
    half = {names.TRAN_MSG: "true", names.PGROUP: PRODUCERS}
    assert (await owner.send(TOPIC, b"secret", TRANSACTION_PREPARED, **half)).code == 0
    grant(server, OWNER)
    grant(server, EVE, f"Topic:{TOPIC}")
    code, _ = await eve.next()
    assert code == RequestCode.CHECK_TRANSACTION_STATE


@pytest.mark.parametrize("change", ["disabled", "deleted", "password"])
async def test_a_user_who_is_gone_gets_no_check(
    server: EmbeddedServer, member: Open, change: str
) -> None:
    assert server.broker.auth is not None
    tables = server.broker.auth.tables
    owner, eve = await member(OWNER), await member(EVE)
    grant(server, EVE, f"Topic:{TOPIC}")
    assert (await eve.heartbeat("eve", producer=PRODUCERS)).code == 0
    if change == "disabled":
        tables.put_user(User(EVE.username, EVE.password, user_status=UserStatus.DISABLE))
    elif change == "password":
        tables.put_user(User(EVE.username, "another-password"))
    else:
        tables.delete_user(EVE.username)
    assert (await owner.heartbeat("owner", producer=PRODUCERS)).code == 0
    half = {names.TRAN_MSG: "true", names.PGROUP: PRODUCERS}
    for _ in range(4):
        assert (await owner.send(TOPIC, b"secret", TRANSACTION_PREPARED, **half)).code == 0
    for _ in range(4):
        await owner.next()
    assert eve.pushed.empty()


async def test_a_producer_that_may_publish_can_answer_a_check(
    server: EmbeddedServer, member: Open
) -> None:
    """As clients for Java do: they name the topic that the check named."""
    owner = await member(OWNER)
    half = {names.TRAN_MSG: "true", names.PGROUP: PRODUCERS}
    sent = await owner.send(TOPIC, b"secret", TRANSACTION_PREPARED, **half)
    assert sent.code == 0
    place = int(sent.ext_fields["msgId"][-16:], 16)
    fields = {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "producerGroup": PRODUCERS,
        "tranStateTableOffset": sent.ext_fields["queueOffset"],
        "commitLogOffset": str(place),
        "commitOrRollback": "8",
        "fromTransactionCheck": "true",
        "msgId": sent.ext_fields["msgId"],
    }
    end = RequestCode.END_TRANSACTION
    eve = await member(EVE)
    assert (await eve.connection.request(end, ext_fields=fields)).code == 16
    assert (await owner.connection.request(end, ext_fields=fields)).code == 0


# --- client ids -----------------------------------------------------------------------------------


async def test_a_client_id_belongs_to_the_user_who_registered_it(member: Open) -> None:
    owner, eve = await member(OWNER), await member(EVE)
    assert (await owner.heartbeat("c", producer=PRODUCERS)).code == 0
    answer = await eve.heartbeat("c", producer="another")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the client id c belongs to another user"
    reply = {names.REPLY_TO_CLIENT: "c"}
    root = await member(ROOT)
    header = SendMessageRequestHeaderV2(
        producer_group="R",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=names.encode(reply),
    )
    await root.connection.request(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"reply")
    assert await owner.next() == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"reply")
    assert eve.pushed.empty()


async def test_a_user_takes_over_their_own_client_id(member: Open) -> None:
    first, second = await member(OWNER), await member(OWNER)
    assert (await first.heartbeat("c", producer=PRODUCERS)).code == 0
    assert (await second.heartbeat("c", producer=PRODUCERS)).code == 0
    await first.connection.close()
    eve = await member(EVE)
    assert (await eve.heartbeat("c", producer=PRODUCERS)).code == ResponseCode.NO_PERMISSION


async def test_a_client_id_is_free_when_its_connection_is_closed(member: Open) -> None:
    owner, eve = await member(OWNER), await member(EVE)
    assert (await owner.heartbeat("c", producer=PRODUCERS)).code == 0
    await owner.connection.close()
    async with asyncio.timeout(20):
        answer = await eve.heartbeat("c", producer=PRODUCERS)
        while answer.code:
            answer = await eve.heartbeat("c", producer=PRODUCERS)


async def test_a_connection_has_few_client_ids(member: Open) -> None:
    eve = await member(EVE)
    codes = {(await eve.heartbeat(f"c{n}", producer="pg")).code for n in range(100)}
    assert codes == {0}
    answer = await eve.heartbeat("one more", producer="pg")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "a connection has at most 100 client ids, and a user 20000"


def test_a_user_has_few_client_ids_whatever_the_connections() -> None:
    class Connection:
        def __init__(self) -> None:
            self.closed: list[Callable[[Any], None]] = []

        def add_close_callback(self, callback: Callable[[Any], None]) -> None:
            self.closed.append(callback)

    ids = ClientIds()
    tables = AuthTables(Path())
    eve, owner = (SignedCaller(user, "127.0.0.1", Guard(tables)) for user in (EVE, OWNER))
    connections = [Connection() for _ in range(MAX_IDS_OF_USER // MAX_IDS)]
    for number, connection in enumerate(connections):
        for n in range(MAX_IDS):
            ids.claim(f"{number}-{n}", connection, eve)
    another = Connection()
    with pytest.raises(RemotingError):
        ids.claim("one more", another, eve)
    ids.claim("1-1", another, eve)
    ids.claim("the owner's", another, owner)
    for connection in (*connections, another):
        for callback in connection.closed:
            callback(connection)
    assert len(ids) == 0
    ids.claim("one more", Connection(), eve)


async def test_queues_are_locked_for_own_client_ids_only(
    server: EmbeddedServer, member: Open
) -> None:
    owner, eve = await member(OWNER), await member(EVE)
    grant(server, EVE, f"Topic:{TOPIC}", f"Group:{GROUP}")
    assert (await owner.heartbeat("c", consumer=GROUP)).code == 0
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
    body = json.dumps({"consumerGroup": GROUP, "clientId": "c", "mqSet": [queue]}).encode()
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        assert (await owner.connection.request(code, None, body)).code == 0
        answer = await eve.connection.request(code, None, body)
        assert (answer.code, answer.remark) == (16, "the client id c belongs to another user")


async def test_without_authentication_the_last_heartbeat_counts() -> None:
    async with EmbeddedServer() as server:
        members = [Member(OWNER), Member(EVE)]
        for each in members:
            await each.open(server.broker.address)
            assert (await each.heartbeat("c", producer=PRODUCERS)).code == 0
        for each in members:
            await each.connection.close()


# --- what admins ask of consumers -----------------------------------------------------------------


@pytest.mark.parametrize("code", [307, 309, 223, 222])
async def test_nothing_is_pushed_to_a_consumer_that_lost_its_grant(
    server: EmbeddedServer, member: Open, code: int
) -> None:
    owner, eve, root = await member(OWNER), await member(EVE), await member(ROOT)
    sent = await owner.send(TOPIC, b"secret")
    assert sent.code == 0
    grant(server, EVE, f"Topic:{TOPIC}", f"Group:{GROUP}")
    assert (await eve.heartbeat("eve", consumer=GROUP)).code == 0
    assert (await eve.next())[0] == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "0"}
    assert (await root.connection.request(15, ext_fields=commit)).code == 0
    fields = {
        "consumerGroup": GROUP,
        "group": GROUP,
        "clientId": "eve",
        "topic": TOPIC,
        "msgId": sent.ext_fields["msgId"],
        "timestamp": "0",
        "isForce": "true",
        "jstackEnable": "false",
    }
    assert (await root.connection.request(code, ext_fields=fields)).code == 0
    await eve.next()
    grant(server, EVE, f"Group:{GROUP}" if code == 309 else f"Topic:{TOPIC}")
    await root.connection.request(code, ext_fields=fields)
    assert (await owner.heartbeat("owner", consumer=GROUP)).code == 0
    assert (await owner.next())[0] == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    if code != 309:  # there, the group is still Eve's
        assert eve.pushed.empty()
    else:
        assert (await eve.next())[0] == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert eve.pushed.empty()


async def test_a_consumer_gets_no_retry_of_the_group_that_its_own_joins_to(
    server: EmbeddedServer, member: Open
) -> None:
    """`%RETRY%readers_secrets` is also what readers' POP retries of the topic would be in."""
    other = f"{GROUP}_{TOPIC}"
    owner, root = await member(OWNER), await member(ROOT)
    assert (await owner.heartbeat("owner", consumer=GROUP)).code == 0
    assert (await owner.next())[0] == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert (await owner.send(TOPIC, b"creates the topic")).code == 0
    sent = await root.send(f"%RETRY%{other}", b"failed in the other group")
    assert sent.code == 0
    fields = {"consumerGroup": GROUP, "clientId": "owner", "msgId": sent.ext_fields["msgId"]}
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    assert (await root.connection.request(code, ext_fields=fields)).code == 16
    assert owner.pushed.empty()
    grant(server, OWNER, f"Topic:{TOPIC}", f"Group:{GROUP}", f"Group:{other}")
    assert (await root.connection.request(code, ext_fields=fields)).code == 0
    assert b"failed in the other group" in (await owner.next())[1]


# --- where a message claims to be from ------------------------------------------------------------


@pytest.mark.parametrize("name", [names.RETRY_TOPIC, names.DLQ_ORIGIN_TOPIC])
async def test_a_retry_may_claim_only_a_topic_that_its_sender_receives_from(
    server: EmbeddedServer, member: Open, name: str
) -> None:
    """Consumers show it as one of that topic, and who resends dead letters sends it there."""
    grant(server, EVE, f"Group:{GROUP}", "Topic:own")
    eve = await member(EVE)
    refused = await eve.send(f"%RETRY%{GROUP}", b"forged", 0, **{name: TOPIC})
    assert refused.code == ResponseCode.NO_PERMISSION
    assert f"Topic:{TOPIC}" in (refused.remark or "")
    assert (await eve.send(f"%RETRY%{GROUP}", b"m", 0, **{name: "own"})).code == 0
    assert (await eve.send(f"%RETRY%{GROUP}", b"m", 0, **{name: f"%RETRY%{GROUP}_own"})).code == 0


async def test_a_retry_within_a_namespace_claims_a_topic_of_it(
    server: EmbeddedServer, member: Open
) -> None:
    """Clients for Java name the topic without the namespace."""
    grant(server, OWNER, f"Topic:space%{TOPIC}", f"Group:space%{GROUP}")
    owner = await member(OWNER)
    retry = f"%RETRY%space%{GROUP}"
    assert (await owner.send(retry, b"m", RETRY_TOPIC="other")).code == 16
    for claimed in (TOPIC, f"space%{TOPIC}"):
        sent = await owner.send(retry, b"m", RETRY_TOPIC=claimed)
        assert sent.code == 0
        place = int(sent.ext_fields["msgId"][-16:], 16)
        stored = decode(server.broker.store.record_at(place))
        assert stored.properties["RETRY_TOPIC"] == f"space%{TOPIC}"
