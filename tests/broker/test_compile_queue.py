"""New expressions are compiled a little at a time, in turns of their connections."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.waiting.compile_queue import CompileQueue
from pocketmq.message.sql_filter import SqlFilter, SqlSyntaxError, compile_sql, known_sql
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.request import Request, Response
from tests.broker.holding import FakeConnection, pull
from tests.client.waiting import until

_numbers = itertools.count()


def expression(comparisons: int) -> str:
    """A new one."""
    new = next(_numbers)
    return " OR ".join(f"new{new} = {number}" for number in range(comparisons))


class Asking:
    """Requests whose expressions are compiled; `handled` has them in order."""

    def __init__(self, **options: Any) -> None:
        self.queue = CompileQueue(**options)
        self.handled: list[str] = []
        self.replies: list[Response] = []

    def respond(self, _: Request[Any], response: Response) -> None:
        self.replies.append(response)

    def ask(self, connection: FakeConnection, *texts: str) -> None:
        request = pull(connection)
        request.channel = self  # type: ignore[assignment]

        def handle(_: Request[Any]) -> Response:
            assert all(known_sql(text) is not None for text in texts)
            self.handled.append(texts[0])
            return Response()

        self.queue.then(request, handle, *texts)

    async def turns(self, done: Callable[[], bool]) -> int:
        """How many turns of the loop it takes."""
        for count in range(20_000):
            if done():
                return count
            await asyncio.sleep(0)
        raise AssertionError("it is never done")


async def test_a_long_expression_takes_many_turns() -> None:
    asking = Asking()
    text = expression(500)
    asking.ask(FakeConnection(), text)
    assert await asking.turns(lambda: bool(asking.replies)) > 100
    assert compile_sql(text) is known_sql(text)
    assert len(asking.queue) == 0


async def test_short_ones_and_other_connections_do_not_wait_for_long_ones() -> None:
    asking = Asking()
    greedy, other = FakeConnection(), FakeConnection()
    for _ in range(20):
        asking.ask(greedy, expression(500))
        asking.ask(greedy, expression(20))
    asking.ask(other, short := expression(8))
    asking.ask(FakeConnection(), long := expression(100))
    assert await asking.turns(lambda: short in asking.handled) < 30
    await asking.turns(lambda: long in asking.handled)
    assert len([text for text in asking.handled if len(text) > 1000]) == 2


async def test_clients_that_send_little_have_most_of_the_time() -> None:
    now, light = 0.0, LightClients()

    def clock() -> float:
        nonlocal now
        now += 0.001  # what a step takes
        return now

    light.heard(1000.0)
    asking = Asking(light=light, clock=clock)
    asking.ask(FakeConnection(), text := expression(12))
    for _ in range(2):
        await asyncio.sleep(0)
    assert known_sql(text) is None
    for _ in range(100):  # a rest is a timer, not a turn
        await asyncio.sleep(0)
        if known_sql(text) is not None:
            break
    await until(lambda: bool(asking.replies))


async def test_the_same_expression_is_compiled_once() -> None:
    asking = Asking()
    text = expression(30)
    for _ in range(3):
        asking.ask(FakeConnection(), text)
    assert len(asking.queue) == 1
    await asking.turns(lambda: len(asking.replies) == 3)


async def test_requests_that_wait_for_the_same_expression_are_handled_in_turns() -> None:
    ticks = itertools.count()
    asking = Asking(clock=lambda: next(ticks) / 1000)
    text, other = expression(30), expression(40)
    greedy = FakeConnection()
    for _ in range(50):
        asking.ask(greedy, text)
    asking.ask(FakeConnection(), other)
    handled = [0]
    while handled[-1] < 51:
        await asyncio.sleep(0)
        handled.append(len(asking.handled))
    assert {after - before for before, after in itertools.pairwise(handled)} == {0, 1}
    assert asking.handled.index(other) < 50


async def test_a_request_with_several_expressions_finds_all_of_them() -> None:
    asking = Asking()
    texts = [expression(20) for _ in range(30)]
    wrong = [f"{expression(20)} OR" for _ in range(30)]
    asking.ask(FakeConnection(), *texts, *wrong)
    await asking.turns(lambda: bool(asking.replies))
    assert isinstance(known_sql(texts[-1]), SqlFilter)
    assert isinstance(known_sql(wrong[-1]), SqlSyntaxError)


async def test_what_waits_is_bounded_and_goes_with_its_connection() -> None:
    asking = Asking(max_bytes=100_000)
    greedy = FakeConnection()
    asking.ask(greedy, expression(500))
    with pytest.raises(RemotingError, match="too many new SQL92 expressions"):
        asking.ask(greedy, expression(500))
    asking.ask(FakeConnection(), other := expression(8))
    greedy.close()
    assert await asking.turns(lambda: len(asking.queue) == 0) < 20
    assert asking.handled == [other]
    asking.ask(again := FakeConnection(), expression(500))
    again.close()


async def test_a_failing_request_is_answered() -> None:
    asking = Asking()
    request = pull(FakeConnection())
    request.channel = asking  # type: ignore[assignment]

    def fail(_: Request[Any]) -> Response:
        raise RuntimeError("its own fault")

    asking.queue.then(request, fail, expression(12))
    await asking.turns(lambda: bool(asking.replies))
    assert asking.replies[0].code == 1
    assert len(asking.queue) == 0


async def test_a_filter_in_use_stays_known() -> None:
    kept = compile_sql(text := expression(12))
    for _ in range(150):
        compile_sql(expression(1))
    assert known_sql(text) is kept
