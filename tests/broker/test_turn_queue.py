"""Work in steps: in order, a bounded part of it in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pocketmq.broker.waiting.turn_queue import TURN_BYTES, TurnQueue
from tests.client.waiting import until


class Work:
    """Steps that take one second of their own clock each; `done` names them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []

    def clock(self) -> float:
        return self.now

    def steps(self, name: str, count: int, size: int = 0) -> Iterator[int]:
        for number in range(count):
            self.now += 1
            self.done.append(f"{name}{number}")
            yield size


@pytest.fixture
def work() -> Work:
    return Work()


async def turns(work: Work) -> list[int]:
    """How much was done after each turn of the loop, until there is nothing to do."""
    seen = [len(work.done)]
    for _ in range(20):
        await asyncio.sleep(0)
        seen.append(len(work.done))
    return list(dict.fromkeys(seen))


async def test_a_turn_has_its_time(work: Work) -> None:
    queue = TurnQueue(seconds=3, clock=work.clock)
    queue.add(work.steps("a", 5))
    queue.add(work.steps("b", 3))
    assert await turns(work) == [0, 3, 6, 8]
    assert work.done == ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2"]


async def test_a_step_that_takes_long_is_followed_by_a_rest_if_others_wait(work: Work) -> None:
    queue = TurnQueue(seconds=0.1, clock=work.clock)
    queue.light.heard(work.now)
    queue.add(work.steps("a", 2))
    assert await turns(work) == [0, 1]
    queue.begin(work.steps("b", 1))
    queue.run()
    assert work.done == ["a0"]
    await until(lambda: len(work.done) == 3)
    assert work.done == ["a0", "a1", "b0"]


async def test_nobody_waits_for_a_rest(work: Work) -> None:
    queue = TurnQueue(seconds=0.1, clock=work.clock)
    queue.light.heard(work.now - 5)
    queue.add(work.steps("a", 3))
    assert await turns(work) == [0, 1, 2, 3]


async def test_who_is_heard_after_a_long_step_gets_a_rest_after_the_next(work: Work) -> None:
    queue = TurnQueue(seconds=0.1, clock=work.clock)
    queue.add(work.steps("a", 3))
    await asyncio.sleep(0)
    assert work.done == ["a0"]
    queue.light.heard(work.now)
    assert await turns(work) == [1, 2]
    await until(lambda: len(work.done) == 3)


async def test_a_turn_has_its_bytes(work: Work) -> None:
    queue = TurnQueue(seconds=100, clock=work.clock)
    queue.add(work.steps("a", 5, TURN_BYTES // 2))
    assert await turns(work) == [0, 2, 4, 5]


async def test_work_begins_at_once_while_the_turn_has_time(work: Work) -> None:
    queue = TurnQueue(seconds=3, clock=work.clock)
    queue.begin(work.steps("a", 2))
    queue.begin(work.steps("b", 2))
    queue.begin(work.steps("c", 1))
    assert work.done == ["a0", "a1", "b0"]
    assert await turns(work) == [3, 5]
    assert work.done[3:] == ["b1", "c0"]
    queue.begin(work.steps("d", 1))
    assert work.done[5:] == ["d0"]


async def test_what_waits_can_be_run_in_this_turn(work: Work) -> None:
    queue = TurnQueue(seconds=3, clock=work.clock)
    ends: list[int] = []

    def after_turn() -> None:
        ends.append(len(work.done))
        queue.run()  # as answers that are sent do, which is no turn of its own

    queue.after_turn = after_turn
    queue.run()
    assert ends == []
    queue.add(work.steps("a", 2))
    queue.add(work.steps("b", 5))
    queue.run()
    assert work.done == ["a0", "a1", "b0"]
    queue.run()
    assert len(work.done) == 3
    assert await turns(work) == [3, 6, 7]
    assert ends == [3, 3, 6, 7]


async def test_what_waits_goes_before_what_begins(work: Work) -> None:
    queue = TurnQueue(seconds=3, clock=work.clock)
    queue.add(work.steps("a", 1))
    queue.begin(work.steps("b", 1))
    assert work.done == []
    await turns(work)
    assert work.done == ["a0", "b0"]


async def test_work_that_fails_holds_up_no_other(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    def failing() -> Iterator[int]:
        yield 0
        raise RuntimeError("its own fault")

    queue = TurnQueue(seconds=100, clock=work.clock)
    queue.add(failing())
    queue.add(work.steps("a", 2))
    await turns(work)
    assert work.done == ["a0", "a1"]
    assert "its own fault" in caplog.text


async def test_a_cleared_queue_does_nothing_more(work: Work) -> None:
    queue = TurnQueue(seconds=1, clock=work.clock)
    queue.add(work.steps("a", 2))
    queue.add(work.steps("b", 2))
    await asyncio.sleep(0)
    queue.clear()
    assert await turns(work) == [1]
    queue.add(work.steps("c", 1))
    await turns(work)
    assert work.done == ["a0", "c0"]


async def test_the_first_can_be_run_to_its_end(work: Work) -> None:
    queue = TurnQueue(seconds=1, clock=work.clock)
    assert not queue.finish_first()
    queue.add(work.steps("a", 3))
    queue.add(work.steps("b", 2))
    assert queue.finish_first()
    assert work.done == ["a0", "a1", "a2"]
    await turns(work)
    assert work.done[3:] == ["b0", "b1"]
