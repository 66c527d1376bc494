"""Every request code that the servers serve, asked by strangers, by impostors, and by users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pocketmq.auth.permissions import NOTHING, RULES
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.users import User
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.settings.properties_file import config_properties
from tests.security.conftest import ADMIN, NOBODY, Connect
from tests.security.requests import ask

NO_PERMISSION = 16


def both(server: EmbeddedServer) -> list[tuple[str, Dispatcher]]:
    return [
        (server.broker.address, server.broker.dispatcher),
        (server.namesrv, server.name_server.dispatcher),
    ]


async def refusals(server: EmbeddedServer, connect: Connect, user: User | None) -> set[str]:
    """What a user hears on asking for everything; the code is that of a refusal."""
    remarks = set()
    for address, dispatcher in both(server):
        connection = await connect(address, user)
        for code in sorted(dispatcher.codes):
            answer = await ask(dispatcher, connection, code)
            assert answer.code == NO_PERMISSION, (code, answer)
            remarks.add(answer.remark or "")
    return remarks


async def test_a_stranger_gets_nothing(server: EmbeddedServer, connect: Connect) -> None:
    assert await refusals(server, connect, None) == {"username cannot be null."}


async def test_an_unknown_user_gets_nothing(server: EmbeddedServer, connect: Connect) -> None:
    unknown = User("mallory", "password-1")
    assert await refusals(server, connect, unknown) == {"User:mallory is not found."}


@pytest.mark.parametrize("name", ["root", "nobody"])
async def test_a_wrong_password_gets_nothing(
    server: EmbeddedServer, connect: Connect, name: str
) -> None:
    impostor = User(name, "a guess")
    assert await refusals(server, connect, impostor) == {"check signature failed."}


async def test_a_user_without_grants_may_change_and_read_nothing(
    server: EmbeddedServer, connect: Connect
) -> None:
    for address, dispatcher in both(server):
        connection = await connect(address, NOBODY)
        for code in sorted(dispatcher.codes):
            answer = await ask(dispatcher, connection, code)
            if RULES[code] == NOTHING:
                assert answer.code != NO_PERMISSION
            else:
                assert answer.code == NO_PERMISSION, (code, answer)
                assert "User:nobody has no permission to access" in (answer.remark or "")


@pytest.mark.parametrize("user", [ADMIN, NOBODY], ids=["admin", "nobody"])
async def test_requests_without_header_or_body_fail_in_plain_words(
    server: EmbeddedServer, connect: Connect, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that the other server serves, whose headers this one does not know."""
    for address, dispatcher in both(server):
        connection = await connect(address, user)
        for code in sorted({*RULES, *dispatcher.codes}):
            answer = await connection.request(code)
            assert "AttributeError" not in (answer.remark or ""), (code, answer)
    assert not [record for record in caplog.records if record.exc_info]


def state(server: EmbeddedServer) -> dict[str, Any]:
    """What the servers know: topics, groups, offsets, clients, messages, routes, users."""
    broker, name_server = server.broker, server.name_server
    tables = broker.tables
    assert broker.auth is not None
    users = broker.auth.tables
    return {
        "topics": msgspec.json.encode(tables.topics.table),
        "deleted topics": dict(tables.topics.deleted),
        "groups": msgspec.json.encode(tables.groups.table),
        "forbidden": dict(tables.groups.forbidden),
        "deleted groups": dict(tables.groups.deleted),
        "offsets": dict(tables.offsets.table),
        "consumers": tables.consumers.names(),
        "producers": dict(tables.producers.all()),
        "client ids": len(tables.client_ids),
        "locks": tables.locks.has_live_locks("G"),
        "puts": dict(tables.statistics.topic_put),
        "messages": broker.store.flushed_offset + broker.store.dispatch_behind,
        "modes": dict(broker.components.pop.modes.table),
        "held pulls": len(broker.components.pulls.holds),
        "settings": config_properties(broker.config),
        "users": dict(users.users),
        "access lists": dict(users.acls),
        "clusters": name_server.routes.cluster_info().encode(),
        "routes": sorted(name_server.routes.topics.names()),
        "key-value table": name_server.kv_config.namespace("G"),
        "settings of the name server": config_properties(name_server.config),
    }


UNRELATED = ("Topic:Other", "Group:Others", "Cluster:elsewhere")


@pytest.mark.parametrize("grants", [None, (), UNRELATED], ids=["stranger", "none", "unrelated"])
async def test_a_refused_request_changes_nothing(
    server: EmbeddedServer, connect: Connect, grants: Sequence[str] | None
) -> None:
    """Whatever the code: refused are all that need a right, and nothing is different afterwards."""
    assert server.broker.auth is not None
    entries = (
        Entry(Resource.parse(r), frozenset({Action.ALL}), Decision.ALLOW) for r in grants or ()
    )
    server.broker.auth.tables.put_acl("nobody", Acl(custom=tuple(entries)))
    before = state(server)
    for address, dispatcher in both(server):
        connection = await connect(address, None if grants is None else NOBODY)
        for code in sorted(dispatcher.codes):
            answer = await ask(dispatcher, connection, code)
            if grants is None or RULES[code] != NOTHING:
                assert answer.code == NO_PERMISSION, (code, answer)
            assert state(server) == before, code


async def test_a_super_user_is_refused_nothing(server: EmbeddedServer, connect: Connect) -> None:
    for address, dispatcher in both(server):
        connection = await connect(address, ADMIN)
        for code in sorted(dispatcher.codes):
            if code == RequestCode.END_TRANSACTION:
                continue  # an undecided one gets no answer
            answer = await ask(dispatcher, connection, code)
            assert "permission to access" not in (answer.remark or "")
            assert "signature" not in (answer.remark or "")


async def test_every_served_code_has_a_rule(server: EmbeddedServer) -> None:
    for _, dispatcher in both(server):
        assert not set(dispatcher.codes) - set(RULES)


@pytest.mark.parametrize(
    ("user", "code", "remark"),
    [
        (None, NO_PERMISSION, "username cannot be null."),
        (NOBODY, NO_PERMISSION, "request 54321 needs a super user"),
        (ADMIN, 3, " request type 54321 not supported"),
    ],
)
async def test_an_unknown_code(
    server: EmbeddedServer, connect: Connect, user: User | None, code: int, remark: str
) -> None:
    for address, _ in both(server):
        answer = await (await connect(address, user)).request(54321)
        assert (answer.code, answer.remark) == (code, remark)
