"""Shares of what the requests of many clients keep."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.headers import Header, PullMessageRequestHeader
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.request import USUAL_HEAD, Request


class Connection:
    def __init__(self, address: str = "192.0.2.1", port: int = 1) -> None:
        self.peer = (address, port)


def request(connection: Connection, user: str | None = None) -> Request[Any]:
    caller: Any = SimpleNamespace(username=user) if user is not None else None
    return Request(code=1, header=Header(), connection=connection, caller=caller)  # type: ignore[arg-type]


def budget(limit: int = 100) -> Budget:
    return Budget(limit, "held pulls", "bytes", LimitedLog(logging.getLogger("test")))


def test_a_connection_takes_a_tenth() -> None:
    held, one, other = budget(), request(Connection()), request(Connection(port=2))
    assert held.take(one, 10)
    assert not held.take(one, 1)
    assert held.take(other, 10)

    held.give_back(one, 4)
    assert held.take(one, 4)
    assert held.taken == 20


def test_an_address_takes_half_and_all_together_take_all() -> None:
    held = budget()
    for port in range(5):
        assert held.take(request(Connection(port=port)), 10)
    assert not held.take(request(Connection(port=9)), 1)
    for port in range(5):
        assert held.take(request(Connection("192.0.2.2", port)), 10)
    assert not held.take(request(Connection("192.0.2.3")), 1)


def test_users_at_one_address_take_nothing_from_each_other() -> None:
    """Nor does whoever signs nothing there: behind a load balancer, all have one address."""
    held = budget(1_000)
    for user, most in (("eve", 500), (None, 400)):
        for port in range(5):
            assert held.take(request(Connection(port=port), user), most // 5)
    assert not held.take(request(Connection(port=9), "eve"), 1)
    assert held.take(request(Connection(port=9), "alice"), 100)


def test_what_requests_of_a_connection_share_counts_once() -> None:
    held, one, other = budget(), request(Connection()), request(Connection(port=2))
    thing = object()
    assert all(held.take_shared(one, thing, 10) for _ in range(3))
    assert held.take_shared(other, thing, 10)
    assert held.taken == 20

    held.give_back_shared(one, thing, 10)
    held.give_back_shared(one, thing, 10)
    assert not held.take(one, 1)
    held.give_back_shared(one, thing, 10)
    assert held.take(one, 1)


def test_a_refusal_names_connection_and_user(caplog: pytest.LogCaptureFixture) -> None:
    held = budget()
    assert not held.take(request(Connection(port=4711), user="eve"), 11)
    assert not held.take(request(Connection(port=4712)), 12)

    assert caplog.messages == [
        "held pulls: request from 192.0.2.1:4711 (user eve) is not held: the connection would "
        "use 11 bytes, the limit is 10"
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.booleans())))
@example([(0, 0, False), (0, 0, False), (0, 0, True), (0, 0, True)])
def test_nothing_is_lost_or_left(steps: list[tuple[int, int, bool]]) -> None:
    held = budget()
    connections = [request(Connection(f"192.0.2.{n // 2}", n)) for n in range(4)]
    taken: list[tuple[int, int]] = []
    for number, amount, back in steps:
        if back and taken:
            which, size = taken.pop()
            held.give_back(connections[which], size)
        elif held.take(connections[number], amount):
            taken.append((number, amount))
        assert held.taken == sum(size for _, size in taken) <= 100
        for which in range(4):
            assert sum(size for owner, size in taken if owner == which) <= 10


def held_pull(subscription: str, head: bytes, *, child: bool = False) -> Request[Any]:
    connection: Any = Connection()
    header = PullMessageRequestHeader("G", "T", 0, 0, 32, 2, 0, 15_000, 0, subscription)
    return Request(
        code=11,
        header=header,
        head=head,
        body=b"body",
        remark="remark",
        connection=connection,
        channel=object() if child else connection,  # type: ignore[arg-type]
    )


def test_a_request_that_waits_keeps_what_it_needs() -> None:
    usual = held_pull("*", b"h" * 400)
    assert usual.keep() == 0
    assert (usual.head, usual.body, usual.remark) == (b"", b"", None)
    assert usual.header.subscription == "*"

    # Of two megabytes that nobody reads, nothing stays.
    assert held_pull("*", b"h" * 2_000_000).keep() == 0
    assert held_pull("t" * 5_000, b"h" * 2_000_000).keep() in range(5_000, 6_000)


def test_a_child_keeps_its_header_s_bytes() -> None:
    usual = held_pull("*", memoryview(b"h" * 400), child=True)  # type: ignore[arg-type]
    assert usual.keep() == 0
    assert usual.head == b"h" * 400
    assert type(usual.head) is bytes
    assert usual.body == b""
    assert held_pull("*", b"h" * (USUAL_HEAD + 1), child=True).keep() > USUAL_HEAD
