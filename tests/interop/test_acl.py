"""ACL 2.0: mqadmin's twelve commands, what users of official clients may do, and every request
code by strangers, impostors and users."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pocketmq.auth.permissions import NOTHING, RULES
from pocketmq.auth.policies import Action, Decision
from pocketmq.auth.service import signer_of
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserType
from pocketmq.cli import main
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingClosed, RemotingTimeout
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.service import ExitCode
from tests.security.requests import ask

from .harness.cluster import Cluster
from .harness.go_client import GoClient
from .harness.mqadmin import failure, normal
from .harness.official import JavaError, JavaPeer, Unavailable
from .harness.secured import PATIENCE, ROOT, create_user, write_tools


@pytest.fixture(scope="module")
def root(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """mqadmin with the credentials of a super user in conf/tools.yml."""
    home = tmp_path_factory.mktemp("tools")
    try:
        peer = JavaPeer(home)
    except Unavailable as missing:
        pytest.skip(str(missing))
    write_tools(home / f"java-peer-{peer.version}")
    yield peer
    peer.close()


class TestMqadmin:
    """The same commands, in turn, on both makes."""

    @pytest.fixture(params=["official_secured", "all_secured"])
    def cluster(self, request: pytest.FixtureRequest) -> Cluster:
        cluster: Cluster = request.getfixturevalue(request.param)
        return cluster

    def test_the_twelve_commands(self, root: JavaPeer, cluster: Cluster) -> None:
        def run(command: str, *args: str) -> str:
            text = root.mqadmin(command, *args, "-b", cluster.broker.address, "-n", cluster.address)
            assert failure(text) is None, text
            return normal(text)

        run("createUser", "-u", "alice", "-p", "alice-password", "-t", "normal")
        run("createUser", "-u", "bob", "-p", "bob-password")
        run("updateUser", "-u", "bob", "-s", "disable")
        rows = {tuple(line.split()) for line in run("listUser").splitlines()}
        assert ("alice", "alice-password", "Normal", "enable") in rows
        assert ("bob", "bob-password", "Normal", "disable") in rows
        assert run("getUser", "-u", "alice").split()[-4:] == [
            "alice", "alice-password", "Normal", "enable",
        ]  # fmt: skip
        assert "bob" not in run("listUser", "-f", "ali")

        subject = ("-s", "User:alice")
        grant = (*subject, "-r", "Topic:a,Group:g*", "-a", "Pub,Sub", "-d")
        run("createAcl", *grant, "Allow", "-i", "10.0.0.0/8,127.0.0.1")
        acl = run("getAcl", *subject)
        for text in ("User:alice", "Custom", "Topic:a", "Group:g*", "Pub", "Sub", "Allow"):
            assert text in acl
        assert "10.0.0.0/8" in acl
        run("updateAcl", *subject, "-r", "Topic:a", "-a", "All", "-d", "Deny")
        assert "Deny" in run("getAcl", *subject)
        run("deleteAcl", *subject, "-r", "Topic:a")
        acl = run("listAcl", "-s", "alice")
        assert "Topic:a" not in acl
        assert "Group:g*" in acl
        run("deleteAcl", *subject)
        assert "Group:g*" not in run("listAcl")
        run("deleteUser", "-u", "alice")
        run("deleteUser", "-u", "bob")
        assert "alice" not in run("listUser")

    def test_strangers(self, admin: JavaPeer, cluster: Cluster) -> None:
        text = admin.mqadmin("listUser", "-b", cluster.broker.address, "-n", cluster.address)
        assert "username cannot be null" in text


def test_copies_between_the_makes(
    root: JavaPeer, all_secured: Cluster, official_secured: Cluster
) -> None:
    theirs, our = official_secured.broker.address, all_secured.broker.address
    for source, target, name in ((theirs, our, "carol"), (our, theirs, "dave")):
        at = ("-n", all_secured.address)
        subject = f"User:{name}"
        root.mqadmin("createUser", "-b", source, "-u", name, "-p", "password-1", *at)
        root.mqadmin(
            "createAcl", "-b", source, "-s", subject, "-r", "Topic:x*", "-a", "Pub",
            "-d", "Allow", *at,
        )  # fmt: skip
        for command, what in (("copyUser", ("-u", name)), ("copyAcl", ("-s", subject))):
            text = root.mqadmin(command, "-f", source, "-t", target, *what, *at)
            assert failure(text) is None, text
        assert "password-1" in root.mqadmin("getUser", "-b", target, "-u", name, *at)
        assert "Topic:x*" in root.mqadmin("getAcl", "-b", target, "-s", subject, *at)


CLIENT = {"accessKey": "client", "secretKey": "client-password-1"}


@pytest.fixture(scope="module")
def granted(root: JavaPeer, all_secured: Cluster) -> Cluster:
    """The cluster, with a user who may send to allowed* and receive from it."""
    for server in (all_secured.namesrv, all_secured.broker):
        at = ("-b", server.address, "-n", all_secured.address)
        user, password = CLIENT.values()
        root.mqadmin("createUser", "-u", user, "-p", password, *at)
        grant = ("-s", f"User:{user}", "-d", "Allow")
        resources = "Topic:allowed*,Topic:TBW102,Group:*"
        root.mqadmin("createAcl", *grant, "-r", resources, "-a", "Pub,Sub", *at)
    return all_secured


def test_java_with_the_right_credentials(java: JavaPeer, granted: Cluster) -> None:
    at = {"namesrv": granted.address, "group": "acl_java", **CLIENT}
    for mode in ("sync", "async", "batch"):
        messages = [{"body": f"{mode} {i}"} for i in range(3)]
        sent = java("send", topic="allowed_java", mode=mode, messages=messages, **at)
        assert all(one["status"] == "SEND_OK" for one in sent)
    got = java("pull", topics=["allowed_java"], **at)
    assert len(got["messages"]) == 9
    with pytest.raises(JavaError, match="no permission to access Topic:other"):
        java("send", topic="other", mode="sync", messages=[{"body": "x"}], **at)


def test_go_with_the_right_credentials(go: GoClient, granted: Cluster) -> None:
    keys = ("-access-key", CLIENT["accessKey"], "-secret-key", CLIENT["secretKey"])
    at = ("-namesrv", granted.address, "-topic", "allowed_go", *keys)
    for mode in ("sync", "async", "batch"):
        go("send", "-n", 3, "-mode", mode, *at)
    got = go("push", "-n", 9, "-group", "acl_go", *at)
    assert len(got) == 9


#: What the official broker does for any user who can sign, without a grant.
UNCHECKED = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.BATCH_ACK_MESSAGE, RequestCode.SWITCH_TIMER_ENGINE,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST, RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
}  # fmt: skip
NO_PERMISSION = 16
#: What is said with that code to users who may ask: of recalls that are switched off, of subjects
#: that are none, and by the official broker of a topic whose request it cannot read.
OF_THE_REQUEST = ("recall failed", "subject", "parse authorization context error")


async def refusal(dispatcher: Dispatcher, address: str, user: User | None, code: int) -> str | None:
    """How a broker refuses the request, in a connection of its own: some end theirs."""
    sign = None if user is None else signer_of(user)
    async with AsyncExitStack() as stack:
        connection = await Connection.open(address, sign=sign, timeout=PATIENCE)
        stack.push_async_callback(connection.close)
        try:
            answer = await ask(dispatcher, connection, code, PATIENCE)
        except (RemotingTimeout, RemotingClosed):
            return None
        return answer.remark or "" if answer.code == NO_PERMISSION else None


async def refusals(address: str, user: User | None) -> dict[int, str]:
    """What a broker refuses to a user, of all codes that ours serves, and how."""
    async with EmbeddedServer() as server:
        dispatcher = server.broker.dispatcher
        codes = sorted(dispatcher.codes)
        found = await asyncio.gather(*(refusal(dispatcher, address, user, code) for code in codes))
    return {code: remark for code, remark in zip(codes, found, strict=True) if remark is not None}


async def test_the_users_of_an_official_broker_can_be_imported(
    official_secured: Cluster, tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict", reason="pip install 'pocketmq[acl]'")
    user = User("carla", "carla-password")
    await create_user(official_secured.broker.address, user, "Topic:x*", "Group:g")
    store, file = official_secured.broker.store, tmp_path / "auth.json"
    assert store is not None
    # As a kill leaves it: the other tests need the broker.
    shutil.copytree(store / "config", tmp_path / "config")

    assert main(["auth", "import", str(tmp_path / "config"), str(file)]) == ExitCode.OK

    tables = AuthTables(file)
    tables.load()
    root = User(ROOT["accessKey"], ROOT["secretKey"], UserType.SUPER)
    assert [tables.users[name] for name in ("carla", "root")] == [user, root]
    granted = {str(entry.resource): entry for entry in tables.acls["carla"].custom}
    assert granted.keys() == {"Topic:x*", "Group:g"}
    for entry in granted.values():
        assert (entry.actions, entry.decision) == (frozenset({Action.ALL}), Decision.ALLOW)


async def test_every_request_by_everybody(all_secured: Cluster, official_secured: Cluster) -> None:
    """Ours refuses whatever the official broker refuses, and what it forgets to check."""
    nobody, friend = User("nobody", "nobody-password"), User("friend", "friend-password")
    users = {
        "a stranger": None,
        "an impostor": User(ROOT["accessKey"], "a guess"),
        "without a grant": nobody,
        "with grants": friend,
    }
    found: dict[str, dict[str, dict[int, str]]] = {name: {} for name in users}
    for cluster in (official_secured, all_secured):
        address = cluster.broker.address
        await create_user(address, nobody)
        await create_user(address, friend, "Topic:*", "Group:*", "Cluster:*")
        for name, user in users.items():
            found[name][cluster.make] = await refusals(address, user)

    everything = set(found["a stranger"]["ours"])
    assert len(everything) > 80
    for name in ("a stranger", "an impostor"):
        for make in ("ours", "official"):
            assert set(found[name][make]) == everything, (name, make)
    our, theirs = (set(found["without a grant"][make]) for make in ("ours", "official"))
    assert everything - our == {code for code in everything if RULES[code] == NOTHING}
    assert our - theirs == UNCHECKED
    assert theirs <= our
    for answers in found["with grants"].values():
        for remark in answers.values():
            assert any(text in remark for text in OF_THE_REQUEST), remark
