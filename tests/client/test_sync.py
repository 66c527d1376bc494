"""The synchronous classes, against a cluster whose loop runs in another thread."""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from client.errors import InvalidMessage, NoRouteInfo, NotRunning
from client.producer.producer import Producer
from client.producer.result import SendStatus
from client.producer.transaction import TransactionState
from message.message import Message
from pocketmq import sync
from remoting.codes import RequestCode
from remoting.headers.transaction import EndTransactionRequestHeader
from tests.client.fake_cluster import FakeCluster


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
        assert producer.client_id.startswith("127.0.0.1@")
        producer.timeout = 7.0
        assert producer._client.timeout == 7.0
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
            producer.send(Message("nowhere", b"x"))
        with pytest.raises(AttributeError):
            producer.no_such_thing  # noqa: B018
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


def test_methods_are_those_of_the_asyncio_class() -> None:
    public = {
        name for name, _ in inspect.getmembers(Producer, inspect.isfunction) if name[0] != "_"
    }
    assert public <= set(dir(sync.Producer))
    assert sync.Producer.send.__doc__ == Producer.send.__doc__  # type: ignore[attr-defined]
    assert list(inspect.signature(sync.Producer.send).parameters) == list(  # type: ignore[attr-defined]
        inspect.signature(Producer.send).parameters
    )
    assert sync.Producer.__name__ == "Producer"
