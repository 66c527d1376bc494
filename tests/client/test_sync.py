"""The synchronous classes, against a cluster whose loop runs in another thread."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq import sync
from pocketmq.client.consumer import consumed_message
from pocketmq.client.errors import InvalidMessage, NoRouteInfo, NotRunning
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.client.send_result import SendStatus
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.sync_client import LoopThread
from tests.client.fake_cluster import FakeCluster

TIMEOUT = 10.0


@pytest.fixture
def elsewhere() -> Iterator[FakeCluster]:
    """A cluster with topic "T" on one broker."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def make() -> FakeCluster:
        cluster = FakeCluster("a")
        await cluster.start()
        cluster.put("T", queues=1)
        return cluster

    cluster = run(make())
    yield cluster
    run(cluster.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_sending_and_reading(elsewhere: FakeCluster) -> None:
    threads = threading.active_count()
    with sync.Producer("PG", namesrv=elsewhere.namesrv) as producer:
        result = producer.send(Message("T", b"0"), timeout=5.0)
        assert result.status is SendStatus.SEND_OK
        producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        posted = producer.post(Message("T", b"3"))
        assert posted.result().queue_offset == 3
        assert "@" in producer.client_id
        producer.timeout = 7.0
        assert producer.timeout == 7.0
    with sync.PullConsumer("CG", namesrv=elsewhere.namesrv, start="begin") as consumer:
        consumer.assign("T")
        got = []
        for message in consumer:
            got.append(message.body)
            if len(got) == 4:
                break
        assert consumer.poll(timeout=0.01) == []
    assert got == [b"0", b"1", b"2", b"3"]
    assert threading.active_count() == threads


def test_a_transaction(elsewhere: FakeCluster) -> None:
    ended = threading.Event()
    elsewhere["a"].on(
        RequestCode.END_TRANSACTION, lambda request: ended.set(), EndTransactionRequestHeader
    )
    with (
        sync.TransactionProducer(
            "PG", check=lambda message: TransactionState.COMMIT, namesrv=elsewhere.namesrv
        ) as producer,
        producer.transaction(Message("T", b"x")) as begun,
    ):
        assert begun.half.status is SendStatus.SEND_OK
        assert not ended.is_set()
    assert ended.wait(10)


def test_errors_come_through(elsewhere: FakeCluster) -> None:
    producer = sync.Producer("PG", namesrv=elsewhere.namesrv)
    with pytest.raises(NotRunning):
        producer.send(Message("T", b"x"))
    with producer:
        with pytest.raises(InvalidMessage):
            producer.send(Message("T", b""))
        with pytest.raises(NoRouteInfo):
            producer.send(Message("nowhere", b"x"), timeout=0.1)
        with pytest.raises(AttributeError):
            producer.no_such_thing  # type: ignore[attr-defined]  # noqa: B018
    producer.shutdown()
    with pytest.raises(NotRunning):
        producer.start()


def test_several_threads_use_one_client(elsewhere: FakeCluster) -> None:
    with sync.Producer("PG", namesrv=elsewhere.namesrv) as producer:
        results: list[int] = []

        def work() -> None:
            results.extend(producer.send(Message("T", b"x")).queue_offset for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == list(range(80))


def test_a_call_from_the_clients_own_thread_is_refused(elsewhere: FakeCluster) -> None:
    refused: list[BaseException] = []

    class Hook:
        def before_send(self, context: object) -> None:
            with pytest.raises(RuntimeError, match="own thread") as caught:
                producer.send(Message("T", b"y"))
            refused.append(caught.value)

        def after_send(self, context: object) -> None:
            pass

    with sync.Producer("PG", namesrv=elsewhere.namesrv, hooks=[Hook()]) as producer:
        producer.send(Message("T", b"x"))
    assert len(refused) == 1


def put(cluster: FakeCluster, *bodies: bytes) -> None:
    """Messages of topic "T"; ids are made of the bodies."""
    with sync.Producer("PG", namesrv=cluster.namesrv) as producer:
        for body in bodies:
            producer.send(Message("T", body))


def consumer(cluster: FakeCluster, *args: Any, **options: Any) -> sync.PushConsumer:
    return sync.PushConsumer("CG", *args, namesrv=cluster.namesrv, start="begin", **options)


def test_handlers_run_in_threads_side_by_side(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0", b"1", b"2")
    c = consumer(elsewhere, concurrency=3)
    together = threading.Barrier(3)
    seen: set[tuple[bytes, str]] = set()

    @c.on("T")
    def handle(message: sync.ConsumedMessage) -> None:
        assert isinstance(message, MessageExt)
        together.wait(TIMEOUT)  # blocks: only threads get past it
        seen.add((message.body, message.queue.broker_name))
        if message.body == b"1" and message.reconsume_times == 0:
            raise ReconsumeLater(delay_level=5)

    with c:
        until(lambda: len(seen) == 3 and elsewhere["a"].sent_back)
    assert {body for body, _ in seen} == {b"0", b"1", b"2"}
    assert [header.delay_level for header in elsewhere["a"].sent_back] == [5]
    assert elsewhere["a"].offsets["CG", "T", 0] == 3
    assert handle.__name__ == "handle"


def until(condition: Any) -> None:
    done = threading.Event()
    for _ in range(int(TIMEOUT / 0.005)):
        if condition():
            return
        done.wait(0.005)
    raise AssertionError("it did not come to that")


def test_run_ends_when_a_handler_says_so(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0", b"1")
    threads = threading.active_count()
    c: sync.PushConsumer = consumer(elsewhere, {"T": "*"}, handler=lambda message: c.shutdown())
    c.run()
    until(lambda: threading.active_count() == threads)
    assert elsewhere["a"].unregistered[-1].consumer_group == "CG"
    put(elsewhere, b"2")  # a consumer can be started again
    c.run()
    until(lambda: threading.active_count() == threads)


def test_a_batch_is_acknowledged_in_part(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0", b"1", b"2")
    c = consumer(elsewhere, concurrency=1)
    gone = threading.Event()

    @c.on("T", max_batch=3)
    def handle(messages: list[sync.ConsumedMessage]) -> None:
        messages[0].ack()
        messages[1].reconsume(2)
        gone.set()
        if len(messages) > 2:
            raise ReconsumeLater

    with c:
        assert gone.wait(TIMEOUT)
        until(lambda: len(elsewhere["a"].sent_back) == 2)
    assert [header.delay_level for header in elsewhere["a"].sent_back] == [2, 0]
    assert elsewhere["a"].offsets["CG", "T", 0] == 3


def test_iterating_over_what_is_to_be_acknowledged(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0", b"1", b"2", b"3")
    got = []
    with consumer(elsewhere, {"T": "*"}) as c:
        for message in c:
            with message:
                got.append(message.body)
                if message.body == b"1":
                    raise RuntimeError("comes again")
            if len(got) == 2:
                break
        third = next(iter(c))
        third.ack()
        assert c.assignment == [MessageQueue("T", "a", 0)]
        c.pause()
        c.resume()
    assert got == [b"0", b"1"]
    assert len(elsewhere["a"].sent_back) == 1
    assert elsewhere["a"].offsets["CG", "T", 0] == 3


def test_topics_are_added_while_it_runs(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0")
    seen = threading.Event()
    with consumer(elsewhere) as c:
        c.subscribe("T", handler=lambda message: seen.set())
        assert seen.wait(TIMEOUT)
        c.unsubscribe("T")
        assert c.assignment == []


def test_coroutine_functions_are_refused(elsewhere: FakeCluster) -> None:
    async def handle(message: object) -> None:
        pass

    with pytest.raises(TypeError, match="handle is a coroutine function"):
        consumer(elsewhere).on("T")(handle)


def test_plain_methods_run_in_the_clients_thread(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0", b"1")
    with sync.PullConsumer("CG", namesrv=elsewhere.namesrv, start="begin") as c:
        c.assign("T")
        c.pause()
        assert c.poll(timeout=0.05) == []
        c.resume()
        until(lambda: c.poll(timeout=0.05))
        assert c.position(c.assignment[0]) == 2


def test_methods_are_those_of_the_asyncio_class() -> None:
    public = {
        name for name, _ in inspect.getmembers(Producer, inspect.isfunction) if name[0] != "_"
    }
    assert public <= set(dir(sync.Producer))
    assert sync.Producer.send.__doc__ == Producer.send.__doc__
    assert list(inspect.signature(sync.Producer.send).parameters) == list(
        inspect.signature(Producer.send).parameters
    )
    assert sync.Producer.__name__ == "Producer"


def test_handlers_have_the_loop_until_the_drain_is_over(
    elsewhere: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(elsewhere, b"0", b"1")
    c = consumer(elsewhere, concurrency=1)
    gone = threading.Event()
    where: list[str] = []
    errors: list[Exception] = []
    plain_ack = consumed_message.ConsumedMessage.ack

    def ack(message: sync.ConsumedMessage) -> None:
        where.append(threading.current_thread().name)
        plain_ack(message)

    monkeypatch.setattr(consumed_message.ConsumedMessage, "ack", ack)

    @c.on("T", max_batch=2)
    def handle(messages: list[sync.ConsumedMessage]) -> None:
        gone.set()
        until(lambda: not c.running)
        try:
            messages[0].reconsume(1)
            messages[1].ack()
        except Exception as error:
            errors.append(error)

    c.start()
    assert gone.wait(TIMEOUT)
    c.shutdown()
    assert errors == []
    assert where == ["pocketmq.sync"]
    assert len(elsewhere["a"].sent_back) == 1
    assert elsewhere["a"].offsets["CG", "T", 0] == 2


def test_a_block_may_be_left_during_the_shutdown(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0")
    c = consumer(elsewhere, {"T": "*"})
    entered = threading.Event()
    ended: list[str] = []

    def work() -> None:
        for message in c:
            with message:
                entered.set()
                until(lambda: not c.running)
        ended.append("the iteration")

    with c:
        thread = threading.Thread(target=work)
        thread.start()
        assert entered.wait(TIMEOUT)
    thread.join()
    assert ended == ["the iteration"]
    assert elsewhere["a"].offsets["CG", "T", 0] == 1


def test_who_shuts_down_second_waits_for_the_end(elsewhere: FakeCluster) -> None:
    put(elsewhere, b"0")
    before = set(threading.enumerate())
    c = consumer(elsewhere)
    gone, release = threading.Event(), threading.Event()

    @c.on("T")
    def handle(message: sync.ConsumedMessage) -> None:
        gone.set()
        assert release.wait(TIMEOUT)

    c.start()
    assert gone.wait(TIMEOUT)
    first = threading.Thread(target=c.shutdown)
    first.start()
    until(lambda: not c.running)
    threading.Timer(0.05, release.set).start()
    c.shutdown()
    assert release.is_set()
    left = set(threading.enumerate()) - before
    assert not any(thread.name == "pocketmq.sync" for thread in left)
    first.join()


def test_what_outlasts_the_loop_is_told_so() -> None:
    thread = LoopThread("Client")
    begun, errors = threading.Event(), list[BaseException]()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        with pytest.raises(NotRunning, match="Client is not running") as caught:
            thread.run(work())
        errors.append(caught.value)

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(TIMEOUT)
    thread.close()
    caller.join()
    call()
    assert len(errors) == 2


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_handler_does_not_end_the_client(elsewhere: FakeCluster, error: Any) -> None:
    put(elsewhere, b"0")

    def handle(message: sync.ConsumedMessage) -> None:
        raise error

    with consumer(elsewhere, {"T": "*"}, handler=handle):
        until(lambda: elsewhere["a"].sent_back)
    assert elsewhere["a"].offsets["CG", "T", 0] == 1


def test_what_ends_a_program_does_not_end_the_loop() -> None:
    async def work() -> None:
        raise SystemExit

    thread = LoopThread("Client")
    with pytest.raises(SystemExit):
        thread.begin(work()).result(TIMEOUT)
    thread.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_is_told_to_make_a_client_of_its_own(elsewhere: FakeCluster) -> None:
    """Its thread stays in the parent: calls would wait for ever."""
    with sync.Producer("PG", namesrv=elsewhere.namesrv) as producer:
        producer.send(Message("T", b"x"))
        child = os.fork()
        if not child:
            told = b""
            try:
                producer.send(Message("T", b"x"))
            except NotRunning as error:
                told = str(error).encode()
            producer.shutdown()
            os._exit(0 if b"forked" in told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(Message("T", b"x"))
