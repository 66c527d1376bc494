"""Requests that travel together: gathering, falling back, failing alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from pocketmq.client.batch_protocol import MAX_PARENT_BYTES, BatchProtocol
from pocketmq.client.errors import (
    BodyError,
    RemoteSystemError,
    RemotingClosed,
    RemotingTimeout,
    SystemBusy,
)
from pocketmq.remoting.answers.batch import MAX_CHILDREN, child_frames
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command, decode_command, encode_response_frame
from pocketmq.remoting.headers.admin import BatchRequestHeader
from pocketmq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeServer
from tests.client.waiting import until

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


class Broker(FakeServer):
    """Answers each commit with its offset as remark; batches by `batch`, or not at all."""

    def __init__(self, *, batches: bool = True) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.batch: Callable[[list[Command]], Response] = self.answer_all
        self.on(COMMIT, lambda request: Response(remark=str(request.header.commit_offset)),
                UpdateConsumerOffsetRequestHeader)  # fmt: skip
        if batches:
            self.on(RequestCode.COMMON_BATCH_REQUEST, self._parent, BatchRequestHeader)

    def _parent(self, request: Request[Any]) -> Response:
        children = [decode_command(frame) for frame in child_frames(request.body)]
        self.sizes.append(len(children))
        return self.batch(children)

    def answer_all(self, children: list[Command]) -> Response:
        frames = [
            encode_response_frame(0, child.opaque, 0, child.ext_fields["commitOffset"])
            for child in children
        ]
        return Response(body=frames)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    server = Broker()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def old_broker() -> AsyncIterator[Broker]:
    server = Broker(batches=False)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    async with ConnectionPool() as pool:
        yield pool


@pytest.fixture
def batching(pool: ConnectionPool) -> BatchProtocol:
    return BatchProtocol(pool)


def commit(batching: BatchProtocol, broker: Broker, offset: int, **options: Any) -> Any:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic="T", queue_id=0, commit_offset=offset
    )
    options.setdefault("timeout", 5.0)
    return batching.request(broker.address, COMMIT, header, **options)


async def commits(batching: BatchProtocol, broker: Broker, count: int, **options: Any) -> list[Any]:
    return await asyncio.gather(
        *(commit(batching, broker, n, **options) for n in range(count)), return_exceptions=True
    )


def remarks(answers: Sequence[Any]) -> list[Any]:
    return [getattr(answer, "remark", answer) for answer in answers]


async def test_what_is_asked_at_once_is_one_request(
    batching: BatchProtocol, broker: Broker
) -> None:
    assert remarks(await commits(batching, broker, 50)) == [str(n) for n in range(50)]
    assert broker.seen == Counter({RequestCode.COMMON_BATCH_REQUEST: 1})
    assert broker.sizes == [50]


async def test_what_is_alone_goes_as_it_is(batching: BatchProtocol, broker: Broker) -> None:
    assert (await commit(batching, broker, 7)).remark == "7"
    assert broker.seen == Counter({COMMIT: 1})


async def test_brokers_without_batches_are_asked_one_by_one(
    batching: BatchProtocol, old_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for _ in range(2):
        assert remarks(await commits(batching, old_broker, 5)) == [str(n) for n in range(5)]
    assert old_broker.seen == Counter({COMMIT: 10})
    assert not batching.serves(old_broker.address)
    assert caplog.text.count("does not support batches") == 1


async def test_a_new_connection_may_lead_to_a_new_broker(
    batching: BatchProtocol, old_broker: Broker
) -> None:
    await commits(batching, old_broker, 2)
    await old_broker.stop()
    await until(lambda: batching.serves(old_broker.address))
    updated = Broker()
    updated.port = old_broker.port
    await updated.start()
    assert remarks(await commits(batching, updated, 3)) == ["0", "1", "2"]
    assert updated.sizes == [3]
    await updated.stop()


async def test_a_child_fails_alone_and_a_missing_one_too(
    batching: BatchProtocol, broker: Broker
) -> None:
    def answer(children: list[Command]) -> Response:
        frames = [encode_response_frame(0, children[0].opaque, 2, "busy")]
        return Response(body=[*frames, encode_response_frame(0, children[2].opaque, 0, "fine")])

    broker.batch = answer
    failed, missing, fine = await commits(batching, broker, 3)
    assert (failed.code, fine.remark) == (ResponseCode.SYSTEM_BUSY, "fine")
    assert isinstance(missing, BodyError)


async def test_after_a_failed_parent_only_what_may_be_repeated_is(
    batching: BatchProtocol, broker: Broker
) -> None:
    broker.batch = lambda children: Response(ResponseCode.SYSTEM_ERROR, "no")
    answers = await asyncio.gather(
        commit(batching, broker, 1, repeatable=True),
        commit(batching, broker, 2),
        commit(batching, broker, 3, repeatable=True),
        return_exceptions=True,
    )
    assert remarks(answers)[::2] == ["1", "3"]
    assert isinstance(answers[1], RemoteSystemError)
    assert broker.seen[COMMIT] == 2


def at_most(broker: Broker, children: int, remark: str) -> None:
    """From now on the broker refuses larger parents, as ours does."""

    def answer(given: list[Command]) -> Response:
        if len(given) <= children:
            return broker.answer_all(given)
        return Response(ResponseCode.SYSTEM_ERROR, f"system error in processor: {remark}")

    broker.batch = answer


async def test_a_broker_that_takes_fewer_children_is_given_fewer(
    batching: BatchProtocol, broker: Broker
) -> None:
    at_most(broker, 8, "more than 8 children")
    for sizes in ([20, 8, 8, 4], [8, 8, 4]):
        broker.sizes.clear()
        assert remarks(await commits(batching, broker, 20)) == [str(n) for n in range(20)]
        assert broker.sizes == sizes
    assert broker.seen[COMMIT] == 0
    assert batching.serves(broker.address)
    broker.drop_connections()
    await until(lambda: batching.limit(broker.address) == MAX_CHILDREN)


@pytest.mark.parametrize("takes", [0, 1])
async def test_a_broker_that_takes_one_child_is_asked_one_by_one(
    batching: BatchProtocol, broker: Broker, takes: int
) -> None:
    at_most(broker, takes, f"more than {takes} children")
    for _ in range(2):
        assert remarks(await commits(batching, broker, 3)) == ["0", "1", "2"]
    assert broker.sizes == [3]
    assert not batching.serves(broker.address)


async def test_a_limit_that_explains_nothing_is_halved(
    batching: BatchProtocol, broker: Broker
) -> None:
    at_most(broker, 5, "more than 100 children")
    assert remarks(await commits(batching, broker, 20)) == [str(n) for n in range(20)]
    assert broker.sizes == [20, 10, 10, 5, 5, 5, 5]


async def test_who_gave_up_is_not_in_the_smaller_parents(
    batching: BatchProtocol, broker: Broker
) -> None:
    tasks = [asyncio.ensure_future(commit(batching, broker, n)) for n in range(4)]

    def refuse(children: list[Command]) -> Response:
        tasks[1].cancel()
        at_most(broker, 2, "")
        return Response(ResponseCode.SYSTEM_ERROR, "more than 2 children")

    broker.batch = refuse
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(n) for n in (0, 2, 3)] == remarks([answers[n] for n in (0, 2, 3)])
    assert isinstance(answers[1], asyncio.CancelledError)
    assert (broker.sizes, broker.seen[COMMIT]) == ([4, 2], 1)


async def test_nonsense_in_a_parents_answer(batching: BatchProtocol, broker: Broker) -> None:
    broker.batch = lambda children: Response(body=b"\0\0\0\x05nonsense")
    assert all(isinstance(answer, BodyError) for answer in await commits(batching, broker, 2))


async def test_a_lost_connection_fails_all(batching: BatchProtocol, broker: Broker) -> None:
    def drop(children: list[Command]) -> Response:
        broker.drop_connections()
        return Response()

    broker.batch = drop
    answers = await commits(batching, broker, 3, repeatable=True)
    assert all(isinstance(answer, RemotingClosed) for answer in answers)


async def test_large_numbers_and_large_bodies_take_several_parents(
    batching: BatchProtocol, broker: Broker
) -> None:
    answers = await commits(batching, broker, 2 * MAX_CHILDREN + 1)
    assert remarks(answers) == [str(n) for n in range(2 * MAX_CHILDREN + 1)]
    assert broker.sizes == [MAX_CHILDREN, MAX_CHILDREN]
    broker.sizes.clear()
    large = await commits(batching, broker, 5, body=bytes(MAX_PARENT_BYTES // 3))
    assert remarks(large) == [str(n) for n in range(5)]
    assert broker.sizes == [2, 2]


async def test_a_caller_that_gives_up_does_not_disturb_the_others(
    batching: BatchProtocol, broker: Broker
) -> None:
    tasks = [asyncio.ensure_future(commit(batching, broker, n)) for n in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert remarks(answers)[::2] == ["0", "2"]
    assert isinstance(answers[1], asyncio.CancelledError)


async def test_different_codes_and_brokers_are_kept_apart(
    batching: BatchProtocol, broker: Broker, old_broker: Broker
) -> None:
    answers = await asyncio.gather(commits(batching, broker, 2), commits(batching, old_broker, 2))
    assert [remarks(each) for each in answers] == [["0", "1"]] * 2
    assert broker.sizes == [2]


async def test_an_overloaded_broker_is_not_asked_again_for_what_may_not_be_repeated(
    batching: BatchProtocol, broker: Broker
) -> None:
    broker.batch = lambda children: Response(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]")
    assert all(isinstance(answer, SystemBusy) for answer in await commits(batching, broker, 2))
    assert broker.seen[COMMIT] == 0


@pytest.mark.parametrize(
    "code", [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION]
)
async def test_who_gave_up_is_not_asked_for_alone(
    batching: BatchProtocol, broker: Broker, code: ResponseCode
) -> None:
    askers: list[asyncio.Task[Any]] = []

    def refuse(children: list[Command]) -> Response:
        askers[1].cancel()
        return Response(code, "as the test says")

    broker.batch = refuse
    askers += [asyncio.create_task(commit(batching, broker, n, repeatable=True)) for n in range(3)]
    answers = await asyncio.gather(*askers, return_exceptions=True)
    assert isinstance(answers.pop(1), asyncio.CancelledError)
    assert remarks(answers) == ["0", "2"]
    assert broker.seen[COMMIT] == 2


async def test_each_waits_as_long_as_it_said(batching: BatchProtocol, broker: Broker) -> None:
    broker.batch = lambda children: None  # type: ignore[assignment, return-value]  # no answer
    patient = asyncio.ensure_future(commit(batching, broker, 1, timeout=60.0))
    async with asyncio.timeout(10):
        with pytest.raises(RemotingTimeout):
            await commit(batching, broker, 0, timeout=0.1)
    assert broker.sizes == [2]
    assert not patient.done()
    patient.cancel()


async def test_what_is_asked_again_has_only_the_rest_of_its_time(
    batching: BatchProtocol,
    old_broker: Broker,
    pool: ConnectionPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeouts: list[float] = []
    request = pool.request

    def asked(*arguments: Any, timeout: float) -> Any:
        timeouts.append(timeout)
        return request(*arguments, timeout=timeout)

    monkeypatch.setattr(pool, "request", asked)
    assert remarks(await commits(batching, old_broker, 2, timeout=5.0)) == ["0", "1"]
    parent, *alone = timeouts
    assert len(alone) == 2
    assert max(alone) < parent
