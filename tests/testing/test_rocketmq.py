"""The fixture's server, used as its users do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingTimeout, SendError, SystemBusy, TopicNotExist
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message, MessageExt
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.request import Request
from pocketmq.testing import RocketMQ
from tests.broker.batch.batches import batch
from tests.broker.batch.batches import send as sent
from tests.broker.conftest import Client

pytest_plugins = ["pocketmq.testing.plugin"]

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def rocketmq_properties() -> dict[str, str]:
    return {"brokerName": "mine"}


def producer_of(rocketmq: RocketMQ, **options: object) -> Producer:
    return Producer("tests", namesrv=rocketmq.namesrv, retries=0, **options)  # type: ignore[arg-type]


async def send(rocketmq: RocketMQ, *bodies: bytes, topic: str = "orders", **options: int) -> None:
    async with producer_of(rocketmq) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **options))  # type: ignore[arg-type]


async def drained(rocketmq: RocketMQ, topic: str = "orders") -> list[bytes]:
    return [message.body for message in await rocketmq.drain(topic)]


async def test_topics_are_created_and_drained(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    assert await drained(rocketmq) == []
    bodies = [b"%d" % i for i in range(40)]
    await send(rocketmq, *bodies)
    messages = await rocketmq.drain("orders")
    assert [message.body for message in messages] == bodies
    assert {(m.queue.broker_name, m.queue.queue_id) for m in messages} == {("mine", 0)}
    assert await drained(rocketmq) == []
    await send(rocketmq, b"more")
    assert await drained(rocketmq) == [b"more"]
    with pytest.raises(TopicNotExist, match="topic unknown does not exist"):
        await drained(rocketmq, "unknown")


async def test_a_restarted_broker_has_its_port_and_its_messages(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    async with producer_of(rocketmq) as producer:
        await producer.send(Message("orders", b"before"))
        broker = rocketmq.broker
        await rocketmq.restart_broker()
        assert rocketmq.broker is not broker
        assert rocketmq.broker.port == broker.port
        await producer.send(Message("orders", b"after"))
    assert await drained(rocketmq) == [b"before", b"after"]


async def test_it_can_be_started_again_and_is_empty_then() -> None:
    server = RocketMQ()
    with pytest.raises(RuntimeError, match="not running"):
        await server.restart_broker()
    for _ in range(2):
        async with server:
            await server.create_topic("orders", queues=1)
            await send(server, b"1")
            assert await drained(server) == [b"1"]


async def test_chosen_requests_fail(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    async with producer_of(rocketmq) as producer:
        with rocketmq.fail(SEND, ResponseCode.SYSTEM_BUSY, "too much", times=2):
            for _ in range(2):
                with pytest.raises(SendError, match="too much") as caught:
                    await producer.send(Message("orders", b"never"))
                assert isinstance(caught.value.__cause__, SystemBusy)
            await producer.send(Message("orders", b"third"))
        with rocketmq.fail(SEND, when=lambda request: request.header.topic == "other"):
            await producer.send(Message("orders", b"fourth"))
            with pytest.raises(SendError):
                await producer.send(Message("other", b"never"))
        await producer.send(Message("other", b"fifth"))
    assert await drained(rocketmq) == [b"third", b"fourth"]


async def test_a_fault_of_one_code_leaves_its_like_in_a_batch_alone(rocketmq: RocketMQ) -> None:
    client = Client()
    await client.open(rocketmq.broker.address)
    children = [sent("orders"), sent("orders", code=RequestCode.SEND_MESSAGE)]
    with rocketmq.fail(SEND):
        failed, served = await batch(client, children)
    await client.close()
    assert (failed.remark, served.code) == ("made to fail by the test", 0)


@pytest.mark.parametrize("accumulate", [True, False])
async def test_sends_at_the_same_moment_fail(rocketmq: RocketMQ, accumulate: bool) -> None:
    await rocketmq.create_topic("orders", queues=1)
    messages = [Message("orders", b"never")] * 10
    async with producer_of(rocketmq, accumulate=accumulate) as producer:
        await producer.queues("orders")
        with contextlib.ExitStack() as faults:
            faults.enter_context(rocketmq.fail(SEND))
            if accumulate:
                faults.enter_context(rocketmq.fail(RequestCode.SEND_BATCH_MESSAGE))
            sends = (producer.send(message) for message in messages)
            results = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(result) for result in results] == [SendError] * 10


async def test_the_newest_fault_decides_and_faults_outlive_a_restart(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    with rocketmq.fail(SEND, remark="outer"):
        with rocketmq.fail(SEND, remark="inner"), pytest.raises(SendError, match="inner"):
            await send(rocketmq, b"never")
        await rocketmq.restart_broker()
        with pytest.raises(SendError, match="outer"):
            await send(rocketmq, b"never")
    await send(rocketmq, b"served")
    assert await drained(rocketmq) == [b"served"]


async def test_a_restart_counts_no_request_twice(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    meant: list[Request[Any]] = []

    def when(request: Request[Any]) -> bool:
        meant.append(request)
        return True

    with (
        rocketmq.hold(RequestCode.GET_ROUTEINFO_BY_TOPIC, when=when) as routes,
        rocketmq.hold(SEND, when=when) as sends,
    ):
        routes.release()
        sends.release()
        await rocketmq.restart_broker()
        await rocketmq.start()  # runs already
        await send(rocketmq, b"x")
    assert {request.code for request in meant} == {RequestCode.GET_ROUTEINFO_BY_TOPIC, SEND}
    assert len(set(map(id, meant))) == len(meant)


async def test_requests_to_the_name_server_fail_too(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    with rocketmq.fail(RequestCode.GET_ROUTEINFO_BY_TOPIC, remark="no routes today"):
        async with producer_of(rocketmq) as producer:
            with pytest.raises(Exception, match="no routes today"):
                await producer.send(Message("orders", b"x"))


async def test_codes_are_given_by_name_or_number(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    for code in ("SEND_MESSAGE_V2", int(SEND), SEND):
        with rocketmq.fail(code, "SYSTEM_BUSY", "too much"):
            with pytest.raises(SendError, match="too much") as caught:
                await send(rocketmq, b"never")
            assert isinstance(caught.value.__cause__, SystemBusy)
    assert await drained(rocketmq) == []


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((31999,), {}, ValueError, "31999, which neither broker nor name server serves"),
        (("SEND_MESAGE_V2",), {}, ValueError, "did you mean SEND_MESSAGE_V2"),
        (("send_message_v2",), {}, ValueError, "did you mean SEND_MESSAGE_V2"),
        (("nonsense",), {}, ValueError, "'nonsense', which is not the name of a RequestCode"),
        ((SEND, "BUSY"), {}, ValueError, "not the name of a ResponseCode"),
        ((None,), {}, TypeError, "code is None"),
        ((True,), {}, TypeError, "code is True"),
        ((SEND,), {"times": 0}, ValueError, "times is 0"),
        ((SEND,), {"times": "2"}, TypeError, "times is '2'"),
    ],
)
async def test_arguments_of_faults(
    rocketmq: RocketMQ,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text), rocketmq.fail(*arguments, **options):
        pass


def test_a_property_is_a_text() -> None:
    properties: Any = {"autoCreateTopicEnable": True}
    with pytest.raises(TypeError, match=r"\['autoCreateTopicEnable'\] is True; .* 'true'"):
        RocketMQ(properties=properties)


async def test_it_says_when_it_does_not_run() -> None:
    with pytest.raises(RuntimeError, match="not running: enter it"):
        await RocketMQ().drain("orders")


class Billing:
    """A push consumer whose handler fails so many times; it waits while `open` is not set."""

    def __init__(self, rocketmq: RocketMQ, *, failures: int = 0, tags: str = "*") -> None:
        self.attempts: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()
        self._failures = failures
        self.consumer = PushConsumer("billing", namesrv=rocketmq.namesrv, start="begin")
        self.consumer.on("orders", tags)(self.bill)

    async def bill(self, message: ConsumedMessage) -> None:
        await self.open.wait()
        self.attempts.append(message.body)
        if len(self.attempts) <= self._failures:
            raise ReconsumeLater("not yet")


async def test_idle_waits_until_everything_is_consumed(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=4)
    billing = Billing(rocketmq)
    bodies = [b"%d" % i for i in range(100)]
    async with billing.consumer:
        await rocketmq.idle("billing", timeout=60)
        billing.open.clear()
        await send(rocketmq, *bodies)
        # However little time there is, it says what is left.
        with pytest.raises(TimeoutError, match=r"billing.*within 1e-06 s: .*queue"):
            await rocketmq.idle("billing", timeout=1e-6)
        billing.open.set()
        await rocketmq.idle("billing", timeout=timedelta(seconds=60))
        assert sorted(billing.attempts) == sorted(bodies)
    with pytest.raises(TimeoutError, match="no consumer of the group is connected"):
        await rocketmq.idle("billing", timeout=1e-6)


async def test_idle_does_not_wait_for_what_is_filtered_out(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    billing = Billing(rocketmq, tags="paid")
    async with billing.consumer:
        async with producer_of(rocketmq) as producer:
            for tag in ("paid", "refunded", "refunded"):
                await producer.send(Message("orders", tag.encode(), tags=tag))
        await rocketmq.idle("billing", timeout=60)
        assert billing.attempts == [b"paid"]


async def test_idle_takes_the_commits_of_a_pull_consumer(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    await send(rocketmq, b"1", b"2")
    async with PullConsumer("audit", namesrv=rocketmq.namesrv, start="begin") as consumer:
        await consumer.subscribe("orders")
        assert len(await consumer.poll(timeout=60)) == 2
        await consumer.commit()
        await rocketmq.idle("audit", timeout=60)


async def test_retries_happen_within_the_time_that_the_clock_is_moved(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    billing = Billing(rocketmq, failures=3)
    async with billing.consumer:
        await send(rocketmq, b"1")
        # The handler has not failed yet. Its retries are due after 10, 30 and 60 seconds.
        await rocketmq.advance(timedelta(seconds=50), patience=60)
        assert len(billing.attempts) == 3
        await rocketmq.advance(60, patience=60)
        assert billing.attempts == [b"1"] * 4


async def test_a_consumer_that_is_older_than_its_topic_is_waited_for_by_idle(
    rocketmq: RocketMQ,
) -> None:
    """The broker hears of it when it has found the topic, which docs/testing.md says."""
    billing = Billing(rocketmq, failures=1)
    async with billing.consumer:
        await send(rocketmq, b"1")  # makes the topic
        await rocketmq.idle("billing", timeout=60)
        await rocketmq.advance(10, patience=60)
    assert billing.attempts == [b"1"] * 2


async def test_a_handler_that_takes_long_does_not_stop_the_clock(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    billing = Billing(rocketmq)
    billing.open.clear()
    async with billing.consumer:
        await send(rocketmq, b"1")
        await send(rocketmq, b"after 10 s", delay_level=3)
        await rocketmq.advance(10, patience=0.05)
        assert await drained(rocketmq) == [b"1", b"after 10 s"]
        billing.open.set()
        await rocketmq.idle("billing", timeout=60)
    assert sorted(billing.attempts) == [b"1", b"after 10 s"]


async def test_requests_are_held_until_released(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    async with producer_of(rocketmq) as producer:
        with rocketmq.hold(SEND) as held:
            sending = [
                asyncio.create_task(producer.send(Message("orders", body))) for body in (b"a", b"b")
            ]
            await held.arrived(2)
            assert held.count == 2
            assert not any(task.done() for task in sending)
            assert await drained(rocketmq) == []
            held.release()
            await asyncio.gather(*sending)
            await producer.send(Message("orders", b"c"))
        assert held.count == 0
        with rocketmq.hold(SEND, times=1) as held:
            late = asyncio.create_task(producer.send(Message("orders", b"e")))
            await held.arrived()
            await producer.send(Message("orders", b"d"))
        await late
    assert await drained(rocketmq) == [b"a", b"b", b"c", b"d", b"e"]


async def test_a_request_can_stay_without_an_answer(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    async with producer_of(rocketmq, timeout=0.1) as producer:
        with rocketmq.ignore(SEND, times=1):
            with pytest.raises(SendError) as caught:
                await producer.send(Message("orders", b"lost"))
            assert isinstance(caught.value.__cause__, RemotingTimeout)
            await producer.send(Message("orders", b"kept"), timeout=3)
    assert await drained(rocketmq) == [b"kept"]


async def test_delayed_messages_come_when_the_clock_is_moved(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    await send(rocketmq, b"after 10 s", delay_level=3)
    await send(rocketmq, b"after 5 s", delay_level=2)
    await send(rocketmq, b"now")
    assert await drained(rocketmq) == [b"now"]
    await rocketmq.advance(6)
    assert await drained(rocketmq) == [b"after 5 s"]
    await rocketmq.advance(6)
    assert await drained(rocketmq) == [b"after 10 s"]


async def test_many_delayed_messages_are_all_there_when_the_clock_was_moved(
    rocketmq: RocketMQ,
) -> None:
    await rocketmq.create_topic("orders", queues=1)
    bodies = [b"%d" % i for i in range(200)]
    await send(rocketmq, *bodies, delay_level=18)
    await rocketmq.advance(2 * 3600)
    assert await drained(rocketmq) == bodies


async def test_timed_messages_come_when_the_clock_is_moved(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    async with producer_of(rocketmq) as producer:
        at = rocketmq.clock() + 60_000
        timed = Message("orders", b"timed", properties={"TIMER_DELIVER_MS": str(at)})
        await producer.send(timed)
    await rocketmq.advance(50)
    assert await drained(rocketmq) == []
    # To the second: the broker's timerPrecisionMs.
    await rocketmq.advance(12)
    assert await drained(rocketmq) == [b"timed"]


class Shop:
    """A producer whose checks are answered from a list; it ends no transaction itself."""

    def __init__(self, rocketmq: RocketMQ, *answers: TransactionState) -> None:
        self.asked = 0
        self._answers = list(answers)
        self.producer = TransactionProducer("shop", check=self.check, namesrv=rocketmq.namesrv)

    def check(self, message: MessageExt) -> TransactionState:
        self.asked += 1
        return self._answers.pop(0) if self._answers else TransactionState.UNKNOWN

    async def begin(self) -> None:
        async with self.producer.transaction(Message("orders", b"half")) as begun:
            begun.unknown()


async def test_transactions_are_checked_when_the_clock_is_moved(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    shop = Shop(rocketmq, TransactionState.UNKNOWN, TransactionState.COMMIT)
    async with shop.producer:
        await shop.begin()
        await rocketmq.advance(29)
        assert shop.asked == 0
        await rocketmq.advance(1)
        assert shop.asked == 1
        assert await drained(rocketmq) == []
        await rocketmq.advance(29)
        assert shop.asked == 1
        await rocketmq.advance(60)
        assert shop.asked == 2
    assert await drained(rocketmq) == [b"half"]


async def test_all_rounds_of_a_long_time_are_done_and_a_restart_does_not_matter(
    rocketmq: RocketMQ,
) -> None:
    await rocketmq.create_topic("orders", queues=1)
    shop = Shop(rocketmq)
    async with shop.producer:
        await shop.begin()
        await rocketmq.advance(75)
        assert shop.asked == 2
        await rocketmq.restart_broker()
        await shop.producer.send(Message("orders", b"known again"))
        # transactionCheckMax: then it is given up.
        await rocketmq.advance(3600)
    assert shop.asked == 15
    assert [message.body for message in await rocketmq.drain("TRANS_CHECK_MAX_TIME_TOPIC")] == [
        b"half"
    ]
    assert await drained(rocketmq) == [b"known again"]


async def test_the_end_of_a_transaction_within_the_block_is_ignored(rocketmq: RocketMQ) -> None:
    """It has no answer, so that nobody waits for it."""
    await rocketmq.create_topic("orders", queues=1)
    shop = Shop(rocketmq, *[TransactionState.COMMIT] * 20)
    async with shop.producer:
        for _ in range(20):
            with rocketmq.ignore(RequestCode.END_TRANSACTION):
                async with shop.producer.transaction(Message("orders", b"paid")):
                    pass
        assert await drained(rocketmq) == []
        await rocketmq.advance(60)
        assert shop.asked == 20
        assert len(await drained(rocketmq)) == 20


async def test_a_producer_that_does_not_answer_holds_nobody_up(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    shop = Shop(rocketmq, TransactionState.COMMIT)
    async with shop.producer:
        await shop.begin()
        with rocketmq.ignore(RequestCode.END_TRANSACTION):
            await rocketmq.advance(90)
        assert shop.asked >= 1
    assert await drained(rocketmq) == []


async def test_the_clock_goes_on_by_itself_and_never_back(rocketmq: RocketMQ) -> None:
    before = rocketmq.clock()
    assert abs(before - time.time() * 1000) < 60_000
    await rocketmq.advance(100)
    assert rocketmq.clock() - before >= 100_000
    with pytest.raises(ValueError, match=r"seconds is -1.* back"):
        await rocketmq.advance(-1)
