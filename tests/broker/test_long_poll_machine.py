"""Long polls against a model: whatever changes under a recheck, each runs once and in time."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pocketmq.broker.waiting.hold_service import RECHECK_SECONDS
from pocketmq.remoting.serving.request import Request
from tests.broker.holding import TOPIC, A, B, FakeConnection, Holding
from tests.broker.virtual_loop import VirtualRunner

QUEUES = st.integers(0, 2)
SLACK = 0.2  # a bucket of deadlines, and a turn


class Waiting:
    def __init__(self, request: Request[Any], queue_id: int, offset: int, deadline: float) -> None:
        self.request = request
        self.queue_id = queue_id
        self.offset = offset
        self.deadline = deadline


class LongPollMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = VirtualRunner()
        self.holding = Holding(limit=10_000)
        self.failures: list[dict[str, Any]] = []
        self.connections = [FakeConnection() for _ in range(3)]
        self.waiting: list[Waiting] = []
        self.unnoticed: list[int] = []
        self.holding.store.before_max_offset = self.enter
        self.runner.run(self.listen_for_failures())

    async def listen_for_failures(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: self.failures.append(what))

    def teardown(self) -> None:
        self.holding.service.close()
        assert self.failures == []
        self.runner.close()

    def enter(self) -> None:
        """Messages that a look at a queue brings, as when it is opened."""
        queues, self.unnoticed = self.unnoticed, []
        for queue_id in queues:
            self.holding.store.append(A, queue_id)

    @rule(
        number=st.integers(0, 2),
        queue_id=QUEUES,
        tag=st.sampled_from([None, A, B]),
        seconds=st.sampled_from([1, 7, 60]),
        ahead=st.integers(0, 1),
    )
    def hold(self, number: int, queue_id: int, tag: int | None, seconds: int, ahead: int) -> None:
        async def held() -> None:
            offset = self.holding.store.ends.get((TOPIC, queue_id), 0) + ahead
            request = self.holding.hold(
                self.connections[number],
                queue_id=queue_id,
                offset=offset,
                codes=None if tag is None else frozenset({tag}),
                timeout_ms=seconds * 1000,
            )
            deadline = asyncio.get_running_loop().time() + seconds
            self.waiting.append(Waiting(request, queue_id, offset, deadline))

        self.runner.run(held())

    @rule(queue_id=QUEUES, tag=st.sampled_from([A, B]))
    def append(self, queue_id: int, tag: int) -> None:
        async def appended() -> None:
            self.holding.store.append(tag, queue_id)

        self.runner.run(appended())
        self.runner.settle()

    @rule(queues=st.lists(QUEUES, min_size=1, max_size=4))
    def recheck_that_brings_messages(self, queues: list[int]) -> None:
        self.unnoticed += queues
        self.pass_time(RECHECK_SECONDS + 0.1)

    @rule(number=st.integers(0, 2))
    def lose_connection(self, number: int) -> None:
        lost: Any = self.connections[number]
        self.connections[number] = FakeConnection()

        async def closed() -> None:
            lost.close()

        self.runner.run(closed())
        self.runner.settle()
        self.waiting = [each for each in self.waiting if each.request.connection is not lost]

    @rule()
    def delete_topic(self) -> None:
        async def deleted() -> None:
            self.holding.service.wake_topic(TOPIC)

        self.runner.run(deleted())
        self.runner.settle()
        assert len(self.holding.service) == 0

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.waiting))
        if self.holding.service.cancel(each.request):
            self.waiting.remove(each)

    @rule(seconds=st.sampled_from([0.3, 2]))
    def pass_time(self, seconds: float) -> None:
        waited = len(self.holding.service)
        self.runner.run(asyncio.sleep(seconds))
        if seconds > RECHECK_SECONDS and waited and len(self.holding.service) == waited:
            assert self.unnoticed == [], "there was no recheck"

    @invariant()
    def nothing_fails_and_nothing_is_left(self) -> None:
        assert self.failures == []
        executed = self.holding.executed
        assert len(executed) == len({id(request) for request in executed})
        for each in tuple(self.waiting):
            if any(request is each.request for request in executed):
                self.waiting.remove(each)
            else:
                assert each.request in self.holding.service
        assert len(self.holding.service) == len(self.waiting)
        now = self.runner.run(_now())
        assert all(now < each.deadline + SLACK for each in self.waiting)


async def _now() -> float:
    return asyncio.get_running_loop().time()


TestLongPolls = LongPollMachine.TestCase
TestLongPolls.settings = settings(stateful_step_count=20, deadline=None)
