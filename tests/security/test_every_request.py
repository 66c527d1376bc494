"""Every request code that the servers serve, asked by strangers, by impostors, and by users."""

from __future__ import annotations

import pytest

from pocketmq.auth.permissions import NOTHING, RULES
from pocketmq.auth.users import User
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import Dispatcher
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
