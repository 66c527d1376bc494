"""Users with grants, the requests that manage them, and ways around."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.service import signer_of
from pocketmq.auth.users import User
from pocketmq.broker.config import load_broker_config
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.credentials import Credentials
from pocketmq.client.producer.producer import Producer
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.message import Message
from pocketmq.namesrv.config import load_namesrv_config
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.frames.frame import Command, encode_command
from pocketmq.remoting.headers import QueryMessageRequestHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.settings.properties_file import ConfigErrors
from pocketmq.store.index.message_index import FoundMessages
from tests.security.conftest import ADMIN, NOBODY, PROPERTIES, Connect, create_nobody

NO_PERMISSION = 16
NOBODYS = Credentials(NOBODY.username, NOBODY.password)
ROOTS = Credentials(ADMIN.username, ADMIN.password)


@pytest.fixture
async def root(server: EmbeddedServer, connect: Connect) -> Connection:
    return await connect(server.broker.address, ADMIN)


@pytest.fixture
async def nobody(server: EmbeddedServer, connect: Connect) -> Connection:
    return await connect(server.broker.address, NOBODY)


async def grant(
    root: Connection, *resources: str, actions: str = "All", decision: str = "Allow", **more: Any
) -> None:
    entries = [
        {"resource": r, "actions": actions.split(","), "decision": decision, **more}
        for r in resources
    ]
    body = json.dumps({"policies": [{"policyType": "Custom", "entries": entries}]}).encode()
    fields = {"subject": "User:nobody"}
    answer = await root.request(RequestCode.AUTH_CREATE_ACL, None, body, ext_fields=fields)
    assert answer.code == 0, answer.remark


async def user_request(connection: Connection, code: int, name: str, **info: str) -> Command:
    body = json.dumps(info).encode() if info else b""
    return await connection.request(code, None, body, ext_fields={"username": name})


async def send(server: EmbeddedServer, topic: str, credentials: Credentials | None) -> str:
    """Send one message and return its offset message id."""
    async with Producer("PG", namesrv=server.namesrv, credentials=credentials) as producer:
        result = await producer.send(Message(topic, b"body", keys=["k"]))
        return result.offset_msg_id or ""


async def test_a_grant_opens_the_way(server: EmbeddedServer, root: Connection) -> None:
    with pytest.raises(RemotingError):
        await send(server, "orders", NOBODYS)
    await grant(root, "Topic:ord*", "Topic:TBW102", actions="Pub")
    assert await send(server, "orders", NOBODYS)

    await grant(root, "Topic:orders", decision="Deny")
    with pytest.raises(RemotingError, match="the decision is deny"):
        await send(server, "orders", NOBODYS)


async def test_who_dispatches_to_a_light_queue_may_send_to_its_name(connect: Connect) -> None:
    switches = {"enableLmq": "true", "enableMultiDispatch": "true"}
    message = Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%own,%LMQ%other"})
    async with EmbeddedServer(properties=PROPERTIES | switches) as server:
        await create_nobody(server, connect)
        root = await connect(server.broker.address, ADMIN)
        await grant(root, "Topic:orders", "Topic:TBW102", "Topic:%LMQ%own", actions="Pub")
        async with Producer("PG", namesrv=server.namesrv, credentials=NOBODYS) as producer:
            with pytest.raises(RemotingError, match="%LMQ%other"):
                await producer.send(message)
            await grant(root, "Topic:%LMQ%o*", actions="Pub")
            await producer.send(message)
        nobody = await connect(server.broker.address, NOBODY)
        fields = {"topic": "%LMQ%own", "queueId": "0"}
        answer = await nobody.request(RequestCode.GET_MAX_OFFSET, ext_fields=fields)
        assert answer.code == NO_PERMISSION
        answer = await root.request(RequestCode.GET_MAX_OFFSET, ext_fields=fields)
        assert answer.ext_fields["offset"] == "1"


async def test_a_change_holds_from_the_next_request_on(
    root: Connection, nobody: Connection
) -> None:
    config = RequestCode.GET_BROKER_CONFIG
    await grant(root, "Cluster:*", actions="Get")
    assert (await nobody.request(config)).code == 0
    await user_request(root, RequestCode.AUTH_UPDATE_USER, "nobody", userStatus="disable")
    answer = await nobody.request(config)
    assert (answer.code, answer.remark) == (NO_PERMISSION, "User:nobody is disabled.")
    await user_request(root, RequestCode.AUTH_UPDATE_USER, "nobody", userStatus="enable")
    assert (await nobody.request(config)).code == 0
    fields = {"subject": "User:nobody"}
    assert (await root.request(RequestCode.AUTH_DELETE_ACL, ext_fields=fields)).code == 0
    assert (await nobody.request(config)).code == NO_PERMISSION


async def test_a_grant_from_another_address(root: Connection, nobody: Connection) -> None:
    await grant(root, "Cluster:*", sourceIps=["10.1.2.3"])
    assert (await nobody.request(RequestCode.GET_BROKER_CONFIG)).code == NO_PERMISSION


async def test_the_progress_of_a_group_is_shown_for_topics_that_the_user_may_see(
    server: EmbeddedServer, root: Connection, nobody: Connection
) -> None:
    for topic in ("own", "foreign"):
        await send(server, topic, ROOTS)
    await grant(root, "Group:G", "Topic:own", actions="Get")
    stats = RequestCode.GET_CONSUME_STATS
    for field, names, allowed in (
        ("topic", "own", True),
        ("topic", "foreign", False),
        ("topicList", "own;", True),
        ("topicList", "own;foreign", False),
        ("topicList", "own;missing", False),
    ):
        fields = {"consumerGroup": "G", field: names}
        answer = await nobody.request(stats, ext_fields=fields)
        assert answer.code == (0 if allowed else NO_PERMISSION), (field, names)
        assert (b"brokerOffset" in answer.body) == allowed
    answer = await root.request(stats, ext_fields=fields)
    assert b"brokerOffset" in answer.body


async def test_a_message_is_read_by_its_own_topic(
    server: EmbeddedServer, root: Connection, nobody: Connection
) -> None:
    offset = decode_offset_msg_id(await send(server, "secrets", ROOTS)).physical_offset
    await grant(root, "Topic:mine", "Group:G")
    view = RequestCode.VIEW_MESSAGE_BY_ID
    for fields in ({"offset": str(offset)}, {"offset": str(offset), "topic": "mine"}):
        answer = await nobody.request(view, ext_fields=fields)
        assert (answer.code, bytes(answer.body)) == (NO_PERMISSION, b"")
        assert "secrets" not in (answer.remark or "")
    back = {"offset": str(offset), "group": "G", "delayLevel": "1", "originTopic": "mine"}
    answer = await nobody.request(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=back)
    assert answer.code == NO_PERMISSION
    assert "secrets" not in (answer.remark or "")
    assert (await root.request(view, ext_fields={"offset": str(offset)})).code == 0


async def test_children_of_a_batch_are_checked_one_by_one(
    server: EmbeddedServer, root: Connection, nobody: Connection
) -> None:
    await grant(root, "Topic:mine")
    code = RequestCode.GET_MAX_OFFSET
    frames = [
        encode_command(code, opaque, ext_fields={"topic": topic, "queueId": "0"})
        for opaque, topic in enumerate(("mine", "theirs"))
    ]
    answer = await nobody.request(
        RequestCode.COMMON_BATCH_REQUEST,
        None,
        b"".join(frames),
        ext_fields={"dispatchCode": str(int(code))},
    )
    assert answer.code == 0
    text = bytes(answer.body).decode("latin-1")
    assert "no permission to access Topic:theirs" in text
    assert "Topic:mine" not in text


async def test_only_super_users_touch_super_users(root: Connection, nobody: Connection) -> None:
    await grant(root, "Cluster:*")
    for code, name, info in (
        (RequestCode.AUTH_CREATE_USER, "eve", {"password": "p", "userType": "Super"}),
        (RequestCode.AUTH_UPDATE_USER, "nobody", {"userType": "Super"}),
        (RequestCode.AUTH_UPDATE_USER, "root", {"password": "mine now"}),
        (RequestCode.AUTH_DELETE_USER, "root", {}),
    ):
        assert (await user_request(nobody, code, name, **info)).code == NO_PERMISSION
    assert (await user_request(root, RequestCode.AUTH_DELETE_USER, "root")).code == NO_PERMISSION

    listed = json.loads((await nobody.request(RequestCode.AUTH_LIST_USER)).body)
    assert [user["username"] for user in listed] == ["root", "nobody"]
    assert not any("password" in user for user in listed)
    listed = json.loads((await root.request(RequestCode.AUTH_LIST_USER)).body)
    assert [user["password"] for user in listed] == [ADMIN.password, NOBODY.password]


async def test_settings_do_not_show_passwords(server: EmbeddedServer, connect: Connect) -> None:
    for address, code in (
        (server.broker.address, RequestCode.GET_BROKER_CONFIG),
        (server.namesrv, RequestCode.GET_NAMESRV_CONFIG),
    ):
        answer = await (await connect(address, ADMIN)).request(code)
        assert answer.code == 0
        assert ADMIN.password not in bytes(answer.body).decode()
    assert ADMIN.password not in repr(server.broker.config)


async def test_authentication_cannot_be_turned_off(
    server: EmbeddedServer, connect: Connect
) -> None:
    for address, code in (
        (server.broker.address, RequestCode.UPDATE_BROKER_CONFIG),
        (server.namesrv, RequestCode.UPDATE_NAMESRV_CONFIG),
    ):
        root = await connect(address, ADMIN)
        assert (await root.request(code, None, b"authenticationEnabled=false")).code != 0


async def test_the_audit_log(
    root: Connection, nobody: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await user_request(root, RequestCode.AUTH_CREATE_USER, "eve", password="eves-own-password")
    await user_request(root, RequestCode.AUTH_CREATE_USER, "eve", password="eves-own-password")
    await user_request(nobody, RequestCode.AUTH_DELETE_USER, "eve")
    lines = [r.getMessage() for r in caplog.records if r.name == "pocketmq.audit"]
    assert len(lines) == 2
    assert lines[0].startswith("AUTH_CREATE_USER username='eve' with a password by User:root from ")
    assert lines[0].endswith("done")
    assert lines[1].endswith("failed: The user is existed")
    refused = [r.getMessage() for r in caplog.records if r.name == "pocketmq.auth"]
    assert refused[-1].startswith("request AUTH_DELETE_USER of 127.0.0.1 is refused: User:nobody")
    assert "eves-own-password" not in caplog.text
    assert NOBODY.password not in caplog.text


async def test_the_audit_log_says_what_a_body_changes(
    server: EmbeddedServer,
    root: Connection,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Names of settings and not their values, entries of access lists, and what a user becomes."""
    caplog.set_level(logging.INFO, "pocketmq.audit")
    settings = b"recallMessageEnable=false\ninitAuthenticationUser={the-secret}"
    await root.request(RequestCode.UPDATE_BROKER_CONFIG, None, settings)
    name_server = await connect(server.namesrv, ADMIN)
    await name_server.request(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"clusterTest=false")
    await grant(root, "Topic:orders", "Group:g", actions="Pub,Get", sourceIps=["10.0.0.1"])
    await user_request(
        root, RequestCode.AUTH_UPDATE_USER, "nobody", userType="Normal", password="the-secret"
    )
    await root.request(
        RequestCode.AUTH_CREATE_ACL, None, b"{", ext_fields={"subject": "User:nobody"}
    )
    await root.request(RequestCode.UPDATE_BROKER_CONFIG, None, b"a" * 70_000)
    lines = [r.getMessage() for r in caplog.records if r.name == "pocketmq.audit"]
    told = [line.partition(" by User:root from ")[0] for line in lines]
    assert told[:5] == [
        "UPDATE_BROKER_CONFIG recallMessageEnable initAuthenticationUser",
        "UPDATE_NAMESRV_CONFIG clusterTest",
        "AUTH_CREATE_ACL subject='User:nobody' (Topic:orders Pub,Get Allow from 10.0.0.1) "
        "(Group:g Pub,Get Allow from 10.0.0.1)",
        "AUTH_UPDATE_USER username='nobody' userType='Normal' with a password",
        "AUTH_CREATE_ACL subject='User:nobody' (a body that cannot be read)",
    ]
    assert told[5].endswith("aaa...")
    assert len(told[5]) < 1100
    assert len(told) == 6
    assert "the-secret" not in caplog.text


async def test_users_outlive_a_restart(tmp_path: Path, connect: Connect) -> None:
    for start in range(2):
        async with EmbeddedServer(store=tmp_path, properties=PROPERTIES) as server:
            root = await connect(server.broker.address, ADMIN)
            if not start:
                await user_request(root, RequestCode.AUTH_CREATE_USER, "eve", password="p")
            answer = await user_request(root, RequestCode.AUTH_GET_USER, "eve")
            assert json.loads(answer.body)["userType"] == "Normal"


@pytest.fixture
async def open_server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer() as server:
        yield server


async def test_without_authentication_nobody_makes_users(
    open_server: EmbeddedServer, connect: Connect
) -> None:
    connection = await connect(open_server.broker.address, None)
    answer = await user_request(connection, RequestCode.AUTH_CREATE_USER, "eve", password="p")
    assert answer.code == NO_PERMISSION
    assert (await connection.request(RequestCode.GET_BROKER_CONFIG)).code == 0


async def test_white_lists(connect: Connect) -> None:
    codes = {"authenticationWhitelist": "26,28", "authorizationWhitelist": "26"}
    async with EmbeddedServer(properties=PROPERTIES | codes) as server:
        stranger = await connect(server.broker.address, None)
        impostor = await connect(server.broker.address, User("root", "a guess"))
        for connection in (stranger, impostor):
            assert (await connection.request(26)).code == 0
            assert (await connection.request(28)).code == NO_PERMISSION  # it needs a grant


async def test_only_signatures(connect: Connect) -> None:
    settings = PROPERTIES | {"authorizationEnabled": "false"}
    async with EmbeddedServer(properties=settings) as server:
        with pytest.raises(RemotingError):
            await send(server, "orders", None)
        assert await send(server, "orders", ROOTS)


@pytest.mark.parametrize("load", [load_broker_config, load_namesrv_config])
@pytest.mark.parametrize(
    "text",
    [
        "authorizationEnabled=true",
        'initAuthenticationUser={"username":"a","passwort":"s3cret"}',
        "initAuthenticationUser=s3cret",
        'innerClientAuthenticationCredentials={"accessKey":"s3cret"}',
        "authenticationWhitelist=SEND",
    ],
)
def test_settings_that_cannot_be(load: Any, text: str) -> None:
    with pytest.raises(ConfigErrors) as error:
        load(text)
    assert "s3cret" not in str(error.value)


async def test_a_user_name_cannot_forge_log_lines(
    server: EmbeddedServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = await connect(server.broker.address, None)
    forged = {"AccessKey": "eve\n2026-01-01 INFO all is well", "Signature": "x"}
    answer = await stranger.request(RequestCode.GET_BROKER_CONFIG, ext_fields=forged)
    assert answer.code == NO_PERMISSION
    assert not any("\n" in record.getMessage() for record in caplog.records)


async def test_queries_by_key_of_one_user_leave_the_index_to_others_of_the_same_address(
    server: EmbeddedServer, root: Connection, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.broker.tables.topics.create_if_absent("T", 1)
    await grant(root, "Topic:T", actions="Sub")
    asked: list[str] = []
    arrived, end = asyncio.Event(), asyncio.Event()

    async def search(topic: str, key: str, *bounds: int, **chosen: Any) -> FoundMessages:
        asked.append(key)
        if key == "other":
            arrived.set()
        await end.wait()
        return FoundMessages()

    monkeypatch.setattr(server.broker.store.index, "query", search)

    async def query(connection: Connection, key: str) -> int:
        header = QueryMessageRequestHeader(
            topic="T", key=key, max_num=1, begin_timestamp=0, end_timestamp=1
        )
        return (await connection.request(RequestCode.QUERY_MESSAGE, header)).code

    nobody = await connect(server.broker.address, NOBODY)
    queries = [asyncio.create_task(query(nobody, f"mine{n}")) for n in range(3)]
    await nobody.request(RequestCode.GET_BROKER_CONFIG)  # the queries have arrived
    queries.append(asyncio.create_task(query(root, "other")))
    async with asyncio.timeout(30):
        await arrived.wait()
    assert asked == ["mine0", "other"]
    end.set()
    assert set(await asyncio.gather(*queries)) == {ResponseCode.QUERY_NOT_FOUND}


async def test_unknown_request_codes_cause_one_line(
    server: EmbeddedServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    for address in (server.broker.address, server.namesrv):
        stranger = await connect(address, None)
        caplog.clear()
        for code in range(100_000, 100_020):
            assert (await stranger.request(code)).code == NO_PERMISSION
        assert len([line for line in caplog.messages if "is refused" in line]) == 1


async def test_a_consumer_does_not_get_the_signature_of_an_admin(
    server: EmbeddedServer, root: Connection, connect: Connect
) -> None:
    asked: list[dict[str, str]] = []

    def running_info(request: Request[Any]) -> Response:
        asked.append(request.ext_fields)
        return Response()

    dispatcher = Dispatcher()
    dispatcher.register(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
    consumer = await Connection.open(
        server.broker.address, dispatcher=dispatcher, sign=signer_of(ADMIN)
    )
    heartbeat = {"clientID": "c", "consumerDataSet": [{"groupName": "G"}]}
    body = json.dumps(heartbeat).encode()
    assert (await consumer.request(RequestCode.HEART_BEAT, None, body)).code == 0
    fields = {"consumerGroup": "G", "clientId": "c"}
    answer = await root.request(RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=fields)
    assert answer.code == 0
    assert asked == [fields]
    await consumer.close()


async def test_a_port_that_is_taken_leaves_nothing_behind(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    config, _ = load_namesrv_config("authenticationEnabled=true")
    config.auth_file_path = str(tmp_path / "auth.json")
    config.kv_config_path = str(tmp_path / "kv.json")
    config.listen_port = server.name_server.port
    before = asyncio.all_tasks()
    with pytest.raises(PortInUse):
        await NameServer(config).start()
    assert asyncio.all_tasks() <= before


async def test_a_consumer_and_its_shared_polls(
    server: EmbeddedServer, root: Connection, connect: Connect
) -> None:
    await send(server, "orders", ROOTS)
    options: dict[str, Any] = {"namesrv": server.namesrv, "credentials": NOBODYS, "start": "begin"}
    await grant(root, "Topic:orders", "Group:audit", actions="Sub")
    async with PullConsumer("audit", **options) as consumer:
        await consumer.subscribe("orders")
        async with asyncio.timeout(30):
            for _ in range(2):
                while not (got := await consumer.poll(10, timeout=1)):
                    pass
                assert [message.body for message in got] == [b"body"]
                await send(server, "orders", ROOTS)  # while its polls are held
        await consumer.commit()
    fields = {"subject": "User:nobody", "resource": "Group:audit"}
    assert (await root.request(RequestCode.AUTH_DELETE_ACL, ext_fields=fields)).code == 0
    pull = {"consumerGroup": "audit", "topic": "orders", "queueId": "0"} | dict.fromkeys(
        ("queueOffset", "maxMsgNums", "sysFlag"), "0"
    )
    nobody = await connect(server.broker.address, NOBODY)
    answer = await nobody.request(RequestCode.PULL_MESSAGE, ext_fields=pull)
    assert answer.code == NO_PERMISSION
    assert "no permission to access Group:audit" in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.ACK_MESSAGE, None),
        (RequestCode.BATCH_ACK_MESSAGE, {"acks": [{"c": "G", "t": "T", "r": "1"}]}),
    ],
)
async def test_what_was_popped_belongs_to_its_topic_and_group(
    root: Connection, nobody: Connection, code: RequestCode, body: Any
) -> None:
    fields = {
        "consumerGroup": "G",
        "topic": "%RETRY%G_T",
        "queueId": "0",
        "extraInfo": "0 1 60000 0 1 broker-a 0 0",
        "offset": "0",
    }

    async def ask() -> Command:
        data = b"" if body is None else json.dumps(body).encode()
        return await nobody.request(code, None, data, ext_fields=fields if body is None else {})

    assert (await ask()).code == NO_PERMISSION
    await grant(root, "Group:G", actions="Sub")
    answer = await ask()
    assert answer.code == NO_PERMISSION
    assert "Topic:T" in (answer.remark or "")
    await grant(root, "Topic:T", actions="Sub")
    assert (await ask()).code != NO_PERMISSION


@pytest.mark.parametrize(
    ("code", "actions"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, "Create"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, "Create"),
        (RequestCode.DELETE_TOPIC_IN_BROKER, "Delete"),
    ],
)
async def test_consumers_do_not_change_or_delete_the_retry_topic_of_their_group(
    root: Connection, nobody: Connection, code: RequestCode, actions: str
) -> None:
    retry = "%RETRY%G"
    config = {"topicName": retry, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    body = json.dumps({"topicConfigList": [config]}).encode()
    fields = {"topic": retry, "defaultTopic": "TBW102", "order": "false", "topicSysFlag": "0"}
    fields |= {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields["topicFilterType"] = "SINGLE_TAG"
    await grant(root, "Group:G", actions="Pub,Sub,Get")
    answer = await nobody.request(code, None, body, ext_fields=fields)
    assert answer.code == NO_PERMISSION
    await grant(root, "Group:G", actions=actions)
    answer = await nobody.request(code, None, body, ext_fields=fields)
    assert answer.code == 0, answer.remark


async def test_consumers_do_not_delete_the_retry_topic_of_their_group_at_the_name_server(
    server: EmbeddedServer, root: Connection, connect: Connect
) -> None:
    await grant(root, "Group:G", actions="Pub,Sub,Get")
    nobody = await connect(server.namesrv, NOBODY)
    answer = await nobody.request(
        RequestCode.DELETE_TOPIC_IN_NAMESRV, None, ext_fields={"topic": "%RETRY%G"}
    )
    assert answer.code == NO_PERMISSION


async def test_offsets_are_cloned_only_in_topics_that_one_may_update(
    server: EmbeddedServer, root: Connection, nobody: Connection
) -> None:
    """Without a topic, they are cloned in all topics of the source: its offsets name them."""
    await send(server, "orders", ROOTS)
    place = {"topic": "orders", "queueId": "0"}
    for group, offset in (("source", "1"), ("target", "0")):
        found = await root.request(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ext_fields={"group": group}
        )
        assert found.code == 0
        commit = place | {"consumerGroup": group, "commitOffset": offset}
        answer = await root.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit)
        assert answer.code == 0
    await grant(root, "Group:source", "Group:target", actions="Get,Update")
    clone = {"srcGroup": "source", "destGroup": "target", "offline": "true"}
    refused = await nobody.request(RequestCode.CLONE_GROUP_OFFSET, ext_fields=clone)
    assert refused.code == NO_PERMISSION
    asked = place | {"consumerGroup": "target"}
    answer = await root.request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=asked)
    assert answer.ext_fields["offset"] == "0"
    await grant(root, "Topic:orders", actions="Update")
    done = await nobody.request(RequestCode.CLONE_GROUP_OFFSET, ext_fields=clone)
    assert done.code == 0, done.remark
    answer = await root.request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=asked)
    assert answer.ext_fields["offset"] == "1"


@pytest.mark.parametrize(
    ("code", "field", "kind"),
    [
        (RequestCode.DELETE_TOPIC_IN_BROKER_LIST, "topicList", "Topic"),
        (RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, "groupNameList", "Group"),
    ],
)
async def test_every_name_of_a_list_to_delete_needs_a_grant(
    root: Connection, nobody: Connection, code: RequestCode, field: str, kind: str
) -> None:
    body = json.dumps({field: ["a", "b"]}).encode()
    await grant(root, f"{kind}:a", actions="Delete")
    answer = await nobody.request(code, None, body)
    assert answer.code == NO_PERMISSION
    assert f"{kind}:b" in (answer.remark or "")
    await grant(root, f"{kind}:b", actions="Delete")
    assert (await nobody.request(code, None, body)).code == 0


async def test_every_name_of_a_long_list_needs_a_grant(
    root: Connection, nobody: Connection
) -> None:
    names = [f"a{number}" for number in range(500)]
    body = json.dumps({"groupConfigList": [{"groupName": name} for name in names]}).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    await grant(root, "Group:a*", actions="Create")
    assert (await nobody.request(code, None, body)).code == 0
    await grant(root, f"Group:{names[-1]}", actions="Create", decision="Deny")
    refused = await nobody.request(code, None, body)
    assert refused.code == NO_PERMISSION
    assert f"Group:{names[-1]}" in (refused.remark or "")


async def test_the_lists_of_others_to_delete_do_not_wait(
    root: Connection, nobody: Connection
) -> None:
    await grant(root, "Topic:a*", actions="Delete")
    fields = {"topic": "a", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
    created = await root.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
    assert created.code == 0, created.remark
    names = ["a", *(f"a{number}" for number in range(900))]  # ten of them a second
    code = RequestCode.DELETE_TOPIC_IN_BROKER_LIST
    long = asyncio.ensure_future(
        nobody.request(code, None, json.dumps({"topicList": names}).encode(), timeout=60)
    )
    async with asyncio.timeout(30):
        while not (
            await root.request(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": "a"})
        ).code:
            pass

    answer = await root.request(code, None, json.dumps({"topicList": ["b"]}).encode())

    assert answer.code == 0
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
