"""Names that no topic or group has are neither kept nor repeated."""

from __future__ import annotations

import logging
import tracemalloc
from pathlib import Path

import pytest

from pocketmq.auth.errors import AuthError
from pocketmq.auth.guard import Guard, SignedCaller
from pocketmq.auth.permissions import on_topic
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.security.conftest import NOBODY, Connect
from tests.security.resident import WIDE

LONG = "n" * 400_000


@pytest.fixture
def guard() -> Guard:
    tables = AuthTables(Path())
    tables.put_user(NOBODY)
    entry = Entry(Resource.parse("Group:g*"), frozenset({Action.SUB}), Decision.ALLOW)
    tables.put_acl(NOBODY.username, Acl(custom=(entry,)))
    return Guard(tables)


@pytest.mark.parametrize(
    ("count", "width"),
    [
        # More characters than are remembered, of fewer names than may be.
        (9_999, 255),
        # More names than are remembered, of fewer characters than may be.
        (30_000, 5),
    ],
)
def test_what_is_remembered_is_bounded(guard: Guard, count: int, width: int) -> None:
    tracemalloc.start()
    try:
        for number in range(count):
            # Each character takes four bytes.
            assert not guard.may_send(NOBODY, f"{number}".ljust(width, WIDE), "127.0.0.1")
        # Without the bounds it would be 13 MB and 9 MB.
        assert tracemalloc.get_traced_memory()[1] < 7_000_000
    finally:
        tracemalloc.stop()


def test_a_name_that_is_too_long_is_refused_whatever_a_grant_says(guard: Guard) -> None:
    caller = SignedCaller(NOBODY, "127.0.0.1", guard)
    assert caller.may_consume("g" * 255)
    assert not caller.may_consume("g" * 256)


@pytest.mark.parametrize("field", ["topic", "AccessKey"])
async def test_a_refusal_repeats_the_beginning_of_a_name(
    server: EmbeddedServer, connect: Connect, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = await connect(server.broker.address, NOBODY if field == "topic" else None)
    with caplog.at_level(logging.INFO):
        answer = await nobody.request(
            RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": "T", field: LONG[:200_000]}
        )
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "nnn..." in (answer.remark or "")
    assert len(answer.remark or "") < 300
    assert max(map(len, caplog.messages)) < 400


async def test_no_answer_repeats_a_whole_request(connect: Connect) -> None:
    async with EmbeddedServer() as server:
        for address in (server.broker.address, server.namesrv):
            connection = await connect(address, None)
            for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_ROUTEINFO_BY_TOPIC):
                answer = await connection.request(code, ext_fields={"topic": LONG})
                assert answer.code
                assert len(answer.remark or "") < 5_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"clientID":"%b"}',
        b'{"clientID":"c","producerDataSet":[{"groupName":"%b"}]}',
    ],
)
async def test_a_heartbeat_with_a_long_name_is_refused(
    server: EmbeddedServer, connect: Connect, body: bytes
) -> None:
    nobody = await connect(server.broker.address, NOBODY)
    answer = await nobody.request(RequestCode.HEART_BEAT, None, body % LONG.encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert len(answer.remark or "") < 300
    assert not server.broker.tables.producers.all()
    assert not len(server.broker.tables.client_ids)


def test_a_user_keeps_the_whole_name_in_short_refusals(guard: Guard) -> None:
    caller = SignedCaller(User("nobody", NOBODY.password), "127.0.0.1", guard)
    with pytest.raises(AuthError, match=r"permission to access Topic:orders from 127\.0\.0\.1"):
        guard.require(caller, on_topic("orders", Action.PUB))
