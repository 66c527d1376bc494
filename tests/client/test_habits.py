"""What users of asyncio clients expect of every client, whichever it is.

Where a habit is about one client, its test is with that client's: an empty poll is an empty list
(test_pull_consumer), `async with message` acknowledges (test_push_consumer), losses are told
(test_push_consumer), shutdown lets handlers end, flushes, commits and unregisters
(test_push_consumer, test_accumulator), NAMESRV_ADDR (test_name_servers), py.typed
(test_public_api).
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import NotRunning, RemotingError, SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.message.message import Message
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeBroker, FakeCluster, FakeNameServer
from tests.client.impatient import impatient
from tests.client.waiting import until

#: Enough to tell work for each of them from noise.
PENDING = 3000

Make = Callable[..., Any]


async def ignore(message: ConsumedMessage) -> None:
    pass


MAKERS: dict[str, Make] = {
    "Admin": Admin,
    "Producer": lambda **options: Producer("G", linger_ms=5, trace=True, **options),
    "PullConsumer": lambda **options: PullConsumer("G", trace=True, **options),
    "PushConsumer": lambda **options: PushConsumer(
        "G", {"T": "*"}, handler=ignore, orderly=True, trace=True, **options
    ),
    "TransactionProducer": lambda **options: TransactionProducer(
        "G", check=lambda message: TransactionState.UNKNOWN, **options
    ),
}


@pytest.fixture(params=sorted(MAKERS))
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


def test_constructors_touch_no_loop_and_connect_nothing(
    make: Make, unused_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[object] = []
    connect = socket.socket.connect

    def noting(self: socket.socket, address: Any) -> None:
        if self.type == socket.SOCK_STREAM:
            connected.append(address)
        connect(self, address)

    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", noting)
        patch.setattr(asyncio, "get_running_loop", None)
        patch.setattr(asyncio, "get_event_loop", None)
        client = make(
            namesrv=unused_port, tls=False, namespace="ns", credentials=Credentials("a", "b")
        )
    assert connected == []

    async def use() -> None:
        name_server, broker = FakeNameServer(), FakeBroker("a")
        name_server.port = int(unused_port.rpartition(":")[2])
        await name_server.start()
        await broker.start()
        name_server.put("ns%T", [broker])
        async with client:
            assert client is not None
        await broker.stop()
        await name_server.stop()

    asyncio.run(use())  # in a loop that did not exist when it was made


async def test_start_and_shutdown_may_be_called_again(make: Make, cluster: FakeCluster) -> None:
    client = make(namesrv=cluster.namesrv)
    async with client:
        await client.start()
        await client.start()
    await client.shutdown()
    await client.shutdown()
    if isinstance(client, PullConsumer | PushConsumer):  # these can be started again
        await client.start()
        await client.shutdown()
    else:
        with pytest.raises(NotRunning, match="cannot be started again; make a new one"):
            await client.start()
    never = make(namesrv=cluster.namesrv)
    await never.shutdown()
    await never.shutdown()


async def test_errors_carry_what_programs_need(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    cluster["a"].mode = ResponseCode.SYSTEM_BUSY
    async with Producer("G", namesrv=cluster.namesrv, retries=1) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("T", b"x"))
    cause = caught.value.__cause__
    assert isinstance(cause, RemotingError)
    assert (cause.code, cause.broker, cause.retriable) == (ResponseCode.SYSTEM_BUSY, "a", True)
    assert cause.remark == "as the test says"
    assert {each.queue.broker_name for each in caught.value.tries} == {"a"}
    assert len(caught.value.tries) >= 2


async def calls_of(work: Callable[[], Any]) -> int:
    """Calls of functions, of Python and of C, until `work` is done; the least of three times, for
    what happens to end or to be due beside it."""
    return min([await _calls_of(work) for _ in range(3)])


async def _calls_of(work: Callable[[], Any]) -> int:
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return count


async def test_a_send_is_as_much_work_with_thousands_of_topics(cluster: FakeCluster) -> None:
    async with Producer("G", namesrv=cluster.namesrv, timeout=60) as producer:

        async def send() -> None:
            for _ in range(50):
                await producer.send(Message("T", b"x"))

        await send()
        few = await calls_of(send)
        for number in range(5000):
            cluster.put(f"T{number}", "a", queues=1)
        for first in range(0, 5000, 100):
            await asyncio.gather(*(producer.queues(f"T{first + n}") for n in range(100)))
        many = await calls_of(send)
    # 5000 topics that are looked at once in 50 sends would be 100 calls for each.
    assert many < few * 1.2


async def test_a_send_is_as_much_work_with_thousands_pending(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    cluster.put("slow", "b")
    async with Producer(
        "G", namesrv=cluster.namesrv, timeout=60, retries=0, accumulate=False
    ) as producer:

        async def send() -> None:
            for _ in range(50):
                await producer.send(Message("T", b"x"))

        await send()
        few = await calls_of(send)
        cluster["b"].mode = "hang"
        pending = [
            asyncio.create_task(producer.send(Message("slow", b"x"))) for _ in range(PENDING)
        ]
        await until(lambda: cluster["b"].seen[310] == PENDING, 60)
        many = await calls_of(send)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    assert many < few * 1.2


async def test_a_consumer_comes_back_after_a_thousand_failures(cluster: FakeCluster) -> None:
    """The pause between two grows no further than its limit, and its computation never fails."""
    failures = 0

    def refuse(request: object) -> Response:
        nonlocal failures
        failures += 1
        return Response(ResponseCode.SYSTEM_ERROR, "not now")

    cluster.put("T", "a", queues=1)
    cluster["a"].pull_answer = refuse
    seen: list[bytes] = []
    async with impatient(PushConsumer, Pauses(longest_failure=0))(
        "G", {"T": "*"}, namesrv=cluster.namesrv, start="begin",
        handler=lambda message: seen.append(message.body),
    ):  # fmt: skip
        await until(lambda: failures > 1100, 60)
        cluster["a"].pull_answer = None
        cluster["a"].store("T", 0, b"at last")
        await until(lambda: seen == [b"at last"])


@pytest.mark.parametrize("kind", ["Admin", "Producer", "TransactionProducer"])
def test_another_event_loop_is_refused_at_once(kind: str) -> None:
    """Instead of a future of another loop, or a call that never ends."""
    make = MAKERS[kind]
    client: Any = None

    async def begin() -> None:
        nonlocal client
        client = make(namesrv="127.0.0.1:1")
        await client.start()

    first = asyncio.new_event_loop()
    first.run_until_complete(begin())

    async def use() -> None:
        calls: dict[str, Any] = {
            "send": lambda: client.send(Message("T", b"x")),
            "post": lambda: client.post(Message("T", b"x")),
            "send_batch": lambda: client.send_batch([Message("T", b"x")]),
            "request": lambda: client.request(Message("T", b"x")),
            "queues": lambda: client.queues("T"),
        }
        for name, call in calls.items():
            if hasattr(type(client), name):
                with pytest.raises(NotRunning, match="another event loop"):
                    await call()

    asyncio.run(use())
    first.run_until_complete(client.shutdown())
    first.close()


def test_a_producer_that_was_never_shut_down_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def forget() -> None:
        producer = Producer("G", namesrv="127.0.0.1:1", linger_ms=60_000)
        await producer.start()
        for _ in range(5):
            await producer.post(Message("T", b"x"))

    def collected() -> None:
        asyncio.run(forget())  # a collection may come before it ends
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"Producer\('G'.* was never shut down"):
        collected()
    assert "5 messages that were posted are lost" in caplog.text
