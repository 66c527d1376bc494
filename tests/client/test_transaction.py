from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.client.errors import InvalidMessage, RemotingError, TransactionNotPrepared
from pocketmq.client.observation.send_hooks import SendContext, SendKind
from pocketmq.client.producer.transaction import (
    MAX_CHECKS,
    Check,
    TransactionProducer,
    TransactionState,
)
from pocketmq.client.send_result import SendResult
from pocketmq.message import properties as names
from pocketmq.message.message import Message, MessageExt
from pocketmq.message.record import decode
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.waiting import until

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


class Ends(list[EndTransactionRequestHeader]):
    """The END_TRANSACTION requests that a broker got; it answers sends with `status`."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__()
        self.status = ResponseCode.SUCCESS
        self.connection: Any = None
        self.broker = broker
        broker.on(RequestCode.END_TRANSACTION, self.end, EndTransactionRequestHeader)
        send = broker.send

        def prepare(request: Request[SendMessageRequestHeaderV2]) -> Response | None:
            self.connection = request.connection
            response = send(request)
            if response is not None:
                response.code = self.status
            return response

        broker.dispatcher.wrap(RequestCode.SEND_MESSAGE_V2, lambda _: prepare)

    def end(self, request: Request[EndTransactionRequestHeader]) -> None:
        assert request.oneway
        self.append(request.header)

    def check(self, index: int = 0, bname: str | None = "a") -> None:
        """Ask for the half message with that offset."""
        self.connection.send_oneway(
            RequestCode.CHECK_TRANSACTION_STATE,
            CheckTransactionStateRequestHeader(
                tran_state_table_offset=index,
                commit_log_offset=7000,
                topic="T",
                msg_id="ID",
                transaction_id="TID",
                bname=bname,
            ),
            self.broker.records["T", 0][index],
        )


@pytest.fixture
def ends(cluster: FakeCluster) -> Ends:
    cluster.put("T", "a", queues=1)
    return Ends(cluster["a"])


def nobody_asks(message: MessageExt) -> TransactionState:
    raise AssertionError(message)


def nobody_runs(message: Message, half: SendResult) -> TransactionState:
    raise AssertionError(message)


def producer(
    cluster: FakeCluster, check: Check = nobody_asks, **options: Any
) -> TransactionProducer:
    return TransactionProducer("PG", check=check, namesrv=cluster.namesrv, **options)


async def test_leaving_commits(cluster: FakeCluster, ends: Ends) -> None:
    async with producer(cluster) as p:
        async with p.transaction(Message("T", b"x", keys=["k"])) as begun:
            assert begun.half.queue_offset == 0
            assert not ends
        await until(lambda: ends)
    [header] = cluster["a"].sent
    assert header.sys_flag & 0xC == 4
    properties = names.decode(header.properties)
    assert (properties[names.TRAN_MSG], properties[names.PGROUP]) == ("true", "PG")
    assert ends == [
        EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id=begun.half.msg_id,
            topic="T",
            transaction_id="ID",
            bname="a",
        )
    ]


async def test_what_the_user_says_counts(cluster: FakeCluster, ends: Ends) -> None:
    async with producer(cluster) as p:
        for say in ("commit", "rollback", "unknown"):
            async with p.transaction(Message("T", b"x")) as begun:
                getattr(begun, say)()
        await until(lambda: len(ends) == 3)
    assert [header.commit_or_rollback for header in ends] == [8, 12, 0]
    assert [header.tran_state_table_offset for header in ends] == [0, 1, 2]


async def test_an_exception_leaves_it_to_the_check(cluster: FakeCluster, ends: Ends) -> None:
    async with producer(cluster) as p:

        async def fail(after: str) -> None:
            async with p.transaction(Message("T", b"x")) as begun:
                getattr(begun, after)()
                raise ZeroDivisionError

        for after in ("commit", "rollback"):
            with pytest.raises(ZeroDivisionError):
                await fail(after)
        await until(lambda: len(ends) == 2)
    assert [header.commit_or_rollback for header in ends] == [0, 12]


async def test_callbacks(cluster: FakeCluster, ends: Ends) -> None:
    async def later(message: Message, half: SendResult) -> TransactionState:
        assert half.queue_offset == 1
        return ROLLBACK

    async with producer(cluster) as p:
        one = await p.send_in_transaction(Message("T", b"x"), lambda message, half: COMMIT)
        two = await p.send_in_transaction(Message("T", b"x"), later)
        three = await p.send_in_transaction(Message("T", b"x"), lambda message, half: None)
        with pytest.raises(ZeroDivisionError):
            await p.send_in_transaction(Message("T", b"x"), lambda message, half: 1 // 0)  # type: ignore[arg-type, return-value]
        await until(lambda: len(ends) == 4)
    assert [result.state for result in (one, two, three)] == [COMMIT, ROLLBACK, UNKNOWN]
    assert [header.commit_or_rollback for header in ends] == [8, 12, 0, 0]
    assert [header.msg_id for header in ends[:3]] == [r.half.msg_id for r in (one, two, three)]


async def test_a_half_that_is_not_safe_is_rolled_back(cluster: FakeCluster, ends: Ends) -> None:
    ends.status = ResponseCode.FLUSH_DISK_TIMEOUT
    async with producer(cluster) as p:
        with pytest.raises(TransactionNotPrepared, match="FLUSH_DISK_TIMEOUT") as caught:
            await p.send_in_transaction(Message("T", b"x"), nobody_runs)
        assert caught.value.retriable
        await until(lambda: ends)
    assert [header.commit_or_rollback for header in ends] == [12]


async def test_delays_are_refused(cluster: FakeCluster, ends: Ends) -> None:
    async with producer(cluster) as p:
        for delayed in (Message("T", b"x", delay_level=1), Message("T", b"x", deliver_at=1)):
            with pytest.raises(InvalidMessage, match="transaction"):
                await p.send_in_transaction(delayed, nobody_runs)


async def test_hooks_see_a_half(cluster: FakeCluster, ends: Ends) -> None:
    seen: list[SendContext] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            seen.append(context)

        def after_send(self, context: SendContext) -> None:
            pass

    async with producer(cluster, hooks=[Hook()]) as p, p.transaction(Message("T", b"x")) as begun:
        assert [(c.kind, c.results) for c in seen] == [(SendKind.HALF, [begun.half])]


@pytest.mark.parametrize("bname", ["a", "unknown", None])
async def test_the_broker_asks(cluster: FakeCluster, ends: Ends, bname: str | None) -> None:
    asked: list[MessageExt] = []

    async def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        return COMMIT

    async with producer(cluster, check) as p:
        async with p.transaction(Message("T", b"x" * 5000)) as begun:
            begun.unknown()
        await until(lambda: ends)
        ends.check(bname=bname)
        await until(lambda: len(ends) == 2)
    [message] = asked
    assert (message.topic, message.body, message.msg_id) == ("T", b"x" * 5000, begun.half.msg_id)
    assert ends[1] == EndTransactionRequestHeader(
        producer_group="PG",
        tran_state_table_offset=0,
        commit_log_offset=7000,
        commit_or_rollback=8,
        msg_id=begun.half.msg_id,
        topic="T",
        from_transaction_check=True,
        transaction_id="TID",
        bname=bname,
    )


@pytest.mark.parametrize(
    ("check", "error"),
    [(lambda message: 1 // 0, "ZeroDivisionError"), (lambda message: None, "ValueError")],
    ids=["raises", "no state"],
)
async def test_a_check_that_fails_answers_unknown(
    cluster: FakeCluster, ends: Ends, caplog: pytest.LogCaptureFixture, check: Any, error: str
) -> None:
    async with producer(cluster, check) as p:
        async with p.transaction(Message("T", b"x")):
            pass
        await until(lambda: ends)
        ends.check()
        await until(lambda: len(ends) == 2)
    assert ends[1].commit_or_rollback == 0
    assert error in caplog.text


async def test_checks_are_bounded(cluster: FakeCluster, ends: Ends) -> None:
    release = asyncio.Event()
    asked = 0

    async def check(message: MessageExt) -> TransactionState:
        nonlocal asked
        asked += 1
        await release.wait()
        return ROLLBACK

    async with producer(cluster, check) as p:
        async with p.transaction(Message("T", b"x")):
            pass
        await until(lambda: ends)
        for _ in range(MAX_CHECKS + 2):
            ends.check()
        await until(lambda: asked == MAX_CHECKS)
        release.set()
        await until(lambda: len(ends) == 1 + MAX_CHECKS)
        ends.check()
        await until(lambda: len(ends) == 2 + MAX_CHECKS)
    assert asked == MAX_CHECKS + 1


async def test_checks_that_are_not_ours(cluster: FakeCluster, ends: Ends) -> None:
    async with producer(cluster) as p:
        await p.send(Message("T", b"an ordinary message: no group in it"))
        ends.check(0)
        ends.broker.records["T", 0].append(b"no record")
        ends.check(1)
        async with p.transaction(Message("T", b"x")):
            pass
        await until(lambda: ends)
    assert len(ends) == 1
    record = decode(cluster["a"].records["T", 0][0])
    assert bytes(record.body) == b"an ordinary message: no group in it"


async def test_a_broker_that_is_gone_is_not_told(
    cluster: FakeCluster, ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(cluster, timeout=0.5) as p:
        async with p.transaction(Message("T", b"x")):
            await cluster["a"].stop()
            with pytest.raises(RemotingError):
                await p.send(Message("T", b"finds out"), timeout=0.05)
        assert "so the broker will check back" in caplog.text
