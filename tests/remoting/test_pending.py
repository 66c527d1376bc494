from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from pocketmq.remoting.pending import TICK, PendingRequests


class SteppedLoop:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.real = asyncio.get_running_loop()
        self.timers: list[SteppedTimer] = []

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[str]:
        return self.real.create_future()

    def call_at(self, when: float, callback: Callable[[], object]) -> SteppedTimer:
        timer = SteppedTimer(when, callback)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [t for t in self.timers if t.when <= end and not t.cancelled]:
            first = min(due, key=lambda t: t.when)
            self.timers.remove(first)
            self.now = max(self.now, first.when)
            first.callback()
        self.now = end


class SteppedTimer:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def make(**options: int) -> tuple[SteppedLoop, PendingRequests[str]]:
    loop = SteppedLoop()
    return loop, PendingRequests(
        loop,  # type: ignore[arg-type]  # what is used of a loop
        lambda timeout: TimeoutError(f"{timeout} s"),
        **options,
    )


async def test_an_answer_reaches_its_request_once() -> None:
    _, pending = make()
    first, one = pending.add(3.0)
    second, two = pending.add(3.0)
    assert first != second
    assert pending.resolve(second, "b")
    assert not pending.resolve(second, "again")
    assert two.result() == "b"
    assert not one.done()
    assert len(pending) == 1


async def test_a_request_times_out_soon_after_its_timeout_and_never_before() -> None:
    loop, pending = make()
    _, short = pending.add(0.2)
    _, long = pending.add(5.0)
    loop.advance(0.2 - 0.001)
    assert not short.done()
    loop.advance(TICK + 0.002)
    with pytest.raises(TimeoutError, match=r"0\.2 s"):
        short.result()
    assert not long.done()
    loop.advance(5.0)
    assert long.exception() is not None
    assert len(pending) == 0


async def test_a_shorter_timeout_added_later_is_not_late() -> None:
    loop, pending = make()
    _, long = pending.add(30.0)
    _, short = pending.add(0.2)
    loop.advance(0.2 + 2 * TICK)
    assert short.exception() is not None
    loop.advance(30.0)
    assert long.exception() is not None


async def test_a_late_answer_and_an_unknown_opaque_are_ignored() -> None:
    loop, pending = make()
    opaque, future = pending.add(0.1)
    loop.advance(1.0)
    assert future.exception() is not None
    assert not pending.resolve(opaque, "late")
    assert not pending.resolve(123456, "never asked")
    pending.discard(123456)


async def test_discarded_requests_leave_nothing() -> None:
    loop, pending = make()
    for _ in range(100):
        opaque, _ = pending.add(3.0)
        pending.discard(opaque)
    assert len(pending) == 0
    loop.advance(10.0)
    assert not [t for t in loop.timers if not t.cancelled], "an empty table needs no timer"


async def test_all_fail_when_the_connection_goes_each_with_an_error_of_its_own() -> None:
    loop, pending = make()
    futures = [pending.add(3.0)[1] for _ in range(3)]
    pending.fail_all(lambda: ConnectionError("gone"))
    errors = [future.exception() for future in futures]
    assert len({id(error) for error in errors}) == 3
    assert len(pending) == 0
    loop.advance(10.0)


async def test_ten_thousand_pending_need_one_timer() -> None:
    loop, pending = make()
    entries = [pending.add(3.0) for _ in range(10_000)]
    assert len(loop.timers) == 1
    random.Random(7).shuffle(entries)
    for opaque, future in entries[:9_000]:
        assert pending.resolve(opaque, "ok")
        assert future.result() == "ok"
    loop.advance(3.0 + 2 * TICK)
    assert all(future.exception() for _, future in entries[9_000:])
    assert len(pending) == 0


async def test_opaques_wrap_and_skip_those_in_use() -> None:
    _, pending = make(max_opaque=5)
    assert [pending.add(3.0)[0] for _ in range(4)] == [1, 2, 3, 4]
    for opaque in (2, 4):
        pending.resolve(opaque, "ok")
    assert [pending.add(3.0)[0] for _ in range(3)] == [5, 2, 4]
