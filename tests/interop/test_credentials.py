"""Official clients with right, wrong and no credentials, producers and consumers: what becomes of
them is the same with an official broker and with ours.

A cell is one client in one role as one user. CI runs a sample, `--long` all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import pytest

from pocketmq.auth.users import User
from pocketmq.client.admin.admin import Admin
from pocketmq.client.credentials import Credentials

from .harness.cluster import Cluster
from .harness.go_client import GoClient
from .harness.official import VERSION, JavaPeer, Server
from .harness.secured import ROOT, create_user

#: Client, role, and user.
Cell: TypeAlias = tuple[str, str, str]
Player: TypeAlias = Callable[..., "dict[Cell, Outcome]"]

TOPIC = "Signed"
CLIENT = User("client", "client-password-1")

#: Who comes, by what is wrong with them; None signs nothing.
USERS: dict[str, User | None] = {
    "right": CLIENT,
    "no topic": User("groups", "groups-password-1"),
    "no group": User("topics", "topics-password-1"),
    "wrong": User(CLIENT.username, "a guess"),
    "unknown": User("mallory", "a guess"),
    "missing": None,
}
ROLES = {"java": ("send", "pull", "lite-pull", "push"), "go": ("send", "pull", "push")}
SAMPLE = [
    (client, role, user)
    for client, role in (("java", "send"), ("java", "push"), ("go", "send"))
    for user in ("right", "wrong", "missing")
]
WHOLE = [(client, role, user) for client in ROLES for role in ROLES[client] for user in USERS]
_groups = itertools.count(1)


SIZES = pytest.mark.parametrize(
    "cells",
    [pytest.param(SAMPLE, id="sample"), pytest.param(WHOLE, id="whole", marks=pytest.mark.long)],
)
#: What our broker gives to a consumer with Sub, and the official one to a user with Get.
DIFFERENT = {("java", "pull", "right"), ("java", "pull", "no group")}
#: Go's pull consumer signs requests to brokers only, so a name server with users refuses it.
UNSIGNED = ("go", "pull", "right")
_groups = itertools.count(1)


class Outcome(NamedTuple):
    """Whether it sent or received, and why not."""

    done: bool
    told: str = ""  # what the client says to its caller
    refused: tuple[str, ...] = ()  # the servers' remarks, as a hook of the Java client sees them


def expected(cell: Cell) -> tuple[bool, str]:
    """Whether it sends or receives, and what the server says otherwise."""
    _, role, who = cell
    denied = "has no permission to access"
    remark = {
        "right": "",
        "no topic": f"User:groups {denied} Topic:{TOPIC} from 127.0.0.1, no matched policies.",
        "no group": f"User:topics {denied} Group:GROUP from 127.0.0.1, no matched policies.",
        "wrong": "check signature failed.",
        "unknown": "User:mallory is not found.",
        "missing": "username cannot be null.",
    }[who]
    return who == "right" or (who, role) == ("no group", "send"), remark


def play(java: JavaPeer, go: GoClient, cluster: Cluster, cell: Cell) -> Outcome:
    client, role, who = cell
    user, group = USERS[who], f"Signed_{next(_groups)}"

    def plain(text: str) -> str:
        text = text.replace(group, "GROUP").replace(cluster.broker.address, "BROKER")
        return re.sub(r"cost \[\d+\]ms", "", text)

    if client == "java":
        keys = {} if user is None else {"accessKey": user.username, "secretKey": user.password}
        at: dict[str, Any] = {"namesrv": cluster.address, "topic": TOPIC, "group": group}
        got = java("signed", role=role, **at, **keys)
        return Outcome(got["done"], plain(got["error"] or ""), tuple(map(plain, got["refused"])))
    words: list[object] = ["-namesrv", cluster.address, "-topic", TOPIC, "-group", group, "-n", 1]
    if user is not None:
        words += ["-access-key", user.username, "-secret-key", user.password]
    try:
        go(role, *words, "-timeout", "12s")
    except AssertionError as failed:
        return Outcome(False, plain(str(failed)))
    return Outcome(True)


def prepare(java: JavaPeer, go: GoClient, cluster: Cluster, *servers: Server) -> Cluster:
    """Create the topic, with a message, and the users on these servers."""

    async def create() -> None:
        rights = {"client": ("Topic", "Group"), "groups": ("Group",), "topics": ("Topic",)}
        for server in servers:
            for name, kinds in rights.items():
                user = next(user for user in USERS.values() if user and user.username == name)
                granted = [f"{kind}:{TOPIC}*" for kind in kinds]
                await create_user(server.address, user, *granted, actions=("Pub", "Sub"))
        root = Credentials(ROOT["accessKey"], ROOT["secretKey"])
        async with Admin(namesrv=cluster.address, credentials=root) as admin:
            await admin.create_topic(TOPIC, queues=1)

    asyncio.run(create())
    assert play(java, go, cluster, ("java", "send", "right")) == Outcome(True)
    return cluster


@pytest.fixture(scope="module")
def player(java_peers: Callable[[str], JavaPeer], go: GoClient) -> Player:
    java = java_peers(VERSION)

    def run(cluster: Cluster, cells: list[Cell], *servers: Server) -> dict[Cell, Outcome]:
        prepare(java, go, cluster, *servers)
        with ThreadPoolExecutor(8) as pool:
            outcomes = pool.map(lambda cell: play(java, go, cluster, cell), cells)
        return dict(zip(cells, outcomes, strict=True))

    return run


@SIZES
def test_the_same_with_both_brokers(
    player: Player, half_secured: Cluster, official_secured: Cluster, cells: list[Cell]
) -> None:
    our = player(half_secured, cells, half_secured.broker)
    for cell, outcome in our.items():
        done, remark = expected(cell)
        assert outcome.done == done, (cell, outcome)
        if not done and cell[0] == "java":
            assert outcome.refused == (remark,), (cell, outcome)
        elif not done and cell[1] == "send":
            assert remark in outcome.told, (cell, outcome)
    theirs = player(official_secured, cells, official_secured.broker)
    assert {cell for cell in cells if our[cell] != theirs[cell]} == DIFFERENT & set(cells)


@SIZES
def test_a_name_server_with_users(player: Player, all_secured: Cluster, cells: list[Cell]) -> None:
    """Clients then get no route, and say so instead of what the server says."""
    outcomes = player(all_secured, cells, all_secured.broker, all_secured.namesrv)
    for cell, outcome in outcomes.items():
        done, remark = expected(cell)
        assert outcome.done == (done and cell != UNSIGNED), (cell, outcome)
        if not outcome.done and cell[0] == "java":
            assert remark in outcome.refused, (cell, outcome)
        if not outcome.done and cell[1] == "send":
            assert re.search("(?i)route info", outcome.told), (cell, outcome)
