"""`run`: signals drain the consumer, and nothing waits for ever in silence."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import NoNameServer, NotRunning
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.testing import RocketMQ
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def sigint() -> Iterator[None]:
    """The usual handler of SIGINT: a SparkContext of an earlier test leaves its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


#: A worker as it is deployed: it says what it has handled, and is ended by SIGTERM.
WORKER = """
import asyncio, sys, time
from pocketmq import PushConsumer, sync
from pocketmq import Router

kind, namesrv, wait = sys.argv[1:]
router = Router()

def say(line):
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()

if kind == "asyncio":
    @router.on("orders")
    async def handle(message):
        say("begun")
        await asyncio.sleep(float(wait))
        say(f"done {message.body.decode()}")

    consumer = PushConsumer("G", router, namesrv=namesrv, start="begin", commit_interval=600,
                            concurrency=4)
    asyncio.run(consumer.run())
else:
    @router.on("orders")
    def handle(message):
        say("begun")
        time.sleep(float(wait))
        say(f"done {message.body.decode()}")

    consumer = sync.PushConsumer("G", router, namesrv=namesrv, start="begin", commit_interval=600,
                                 concurrency=4)
    consumer.run()
say("ended")
"""


@contextmanager
def worker(kind: str, namesrv: str, wait: float) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, kind, namesrv, str(wait)],
        cwd=PROJECT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def lines_until(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def rest_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.read().splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["asyncio", "sync"])
async def test_a_signal_drains_and_commits(
    rocketmq: RocketMQ, kind: str, number: signal.Signals
) -> None:
    """No message is handled twice, and none is lost, over a deployment."""
    await rocketmq.create_topic("orders", queues=2)
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        await producer.send_batch([Message("orders", b"%d" % n) for n in range(40)])
    handled: list[str] = []
    with worker(kind, rocketmq.namesrv, 0.05) as first:
        begun = await asyncio.to_thread(lines_until, first, 6)
        first.send_signal(number)
        handled += begun + await asyncio.to_thread(rest_of, first)
        assert first.wait(60) == 0
    assert handled[-1] == "ended"
    done = [line for line in handled if line.startswith("done")]
    assert len(done) < 40
    assert handled.count("begun") == len(done)  # what had begun has ended
    seen: list[str] = []
    async with PushConsumer(
        "G",
        {"orders": "*"},
        handler=lambda message: seen.append(message.body.decode()),
        namesrv=rocketmq.namesrv,
        start="begin",
    ):
        await until(lambda: len(done) + len(seen) >= 40, timeout=30)
    assert sorted(seen + [line.split()[1] for line in done], key=int) == [str(n) for n in range(40)]


async def test_a_second_signal_does_not_wait_for_handlers(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")
    begun = asyncio.Event()
    cancelled = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        begun.set()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    consumer = PushConsumer(
        "G", {"T": "*"}, handler=handle, namesrv=cluster.namesrv, start="begin",
        shutdown_timeout=3600,
    )  # fmt: skip
    running = asyncio.create_task(consumer.run())
    await begun.wait()
    await until(lambda: not consumer.running)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(30):
        await running
    assert cancelled.is_set()
    assert cluster["a"].offsets.get(("G", "T", 0)) in (None, 0)
    assert cluster["a"].unregistered


async def test_the_timeout_bounds_the_drain(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")
    begun = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    consumer = PushConsumer(
        "G", {"T": "*"}, handler=handle, namesrv=cluster.namesrv, start="begin",
        shutdown_timeout=3600,
    )  # fmt: skip
    running = asyncio.create_task(consumer.run(timeout=0.01))
    await begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
    async with asyncio.timeout(30):
        await running


async def test_signals_are_as_before_afterwards(cluster: FakeCluster) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    consumer = PushConsumer(
        "G", {"T": "*"}, handler=lambda m: consumer.shutdown(), namesrv=cluster.namesrv,
        start="begin",
    )  # fmt: skip
    cluster["a"].store("T", 0, b"x")
    await consumer.run()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_signal_stops_every_consumer_of_the_loop(rocketmq: RocketMQ) -> None:
    """The second one found a handler, that of the first, and took it for the program's own."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    await rocketmq.create_topic("orders", queues=1)
    consumers = [
        PushConsumer(group, {"orders": "*"}, handler=lambda m: None, namesrv=rocketmq.namesrv)
        for group in ("G", "H", "I")
    ]
    runs = [asyncio.create_task(consumer.run()) for consumer in consumers]
    await until(lambda: all(consumer.running for consumer in consumers))
    await consumers[0].shutdown()  # whoever came first takes nothing with it
    await runs[0]
    assert signal.getsignal(signal.SIGTERM) != before[0]  # or the next line ends the tests
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: not any(consumer.running for consumer in consumers))
    await asyncio.gather(*runs)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_handlers_of_the_program_stay(cluster: FakeCluster) -> None:
    calls: list[int] = []
    own = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    try:
        cluster["a"].store("T", 0, b"x")
        begun = asyncio.Event()
        consumer = PushConsumer(
            "G", {"T": "*"}, handler=lambda m: begun.set(), namesrv=cluster.namesrv, start="begin"
        )
        running = asyncio.create_task(consumer.run())
        await begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: calls == [signal.SIGTERM])
        assert not running.done()
        await consumer.shutdown()
        await running
    finally:
        signal.signal(signal.SIGTERM, own)


async def test_run_outside_the_main_thread(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")
    consumer = PushConsumer(
        "G", {"T": "*"}, handler=lambda m: consumer.shutdown(), namesrv=cluster.namesrv,
        start="begin",
    )  # fmt: skip
    thread = threading.Thread(target=lambda: asyncio.run(consumer.run()))
    thread.start()
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()


# Nothing waits for ever in silence


async def test_run_without_a_handler() -> None:
    for consumer in (
        PushConsumer("G", namesrv="127.0.0.1:1"),
        PushConsumer("G", {"T": "*"}, namesrv="127.0.0.1:1"),
    ):
        with pytest.raises(NotRunning, match=r"PushConsumer\('G'\).*no handler.*@consumer.on"):
            await consumer.run()


async def test_iteration_over_a_consumer_that_is_not_started() -> None:
    for consumer in (
        PushConsumer("G", {"T": "*"}, namesrv="127.0.0.1:1"),
        PullConsumer("G", namesrv="127.0.0.1:1"),
    ):
        with pytest.raises(NotRunning, match="start it"):
            async for _ in consumer:
                pass


async def test_iteration_without_a_topic(cluster: FakeCluster) -> None:
    async with PushConsumer("G", namesrv=cluster.namesrv) as consumer:
        with pytest.raises(NotRunning, match="subscribes to no topic"):
            await anext(consumer)
    async with PullConsumer("G", namesrv=cluster.namesrv) as reader:
        with pytest.raises(NotRunning, match="reads no topic"):
            await anext(reader)
        with pytest.raises(NotRunning, match="reads no topic"):
            await reader.poll()


async def test_use_in_another_event_loop(cluster: FakeCluster) -> None:
    async with (
        PushConsumer("G", {"T": "*"}, namesrv=cluster.namesrv) as consumer,
        PullConsumer("G2", namesrv=cluster.namesrv) as reader,
    ):
        await reader.assign("T")

        async def elsewhere() -> None:
            for call in (
                lambda: anext(consumer), consumer.start, consumer.shutdown,
                lambda: consumer.subscribe("T2"), lambda: anext(reader), reader.poll, reader.start,
                reader.commit, reader.shutdown,
            ):  # fmt: skip
                with pytest.raises(NotRunning, match="another event loop"):
                    await call()

        await asyncio.to_thread(asyncio.run, elsewhere())


def test_a_loop_that_was_closed_with_the_consumer_running(unused_port: str) -> None:
    reader = PullConsumer("G", namesrv=unused_port, start_timeout=None)
    asyncio.run(reader.start())

    async def again() -> None:
        with pytest.raises(NotRunning, match="another event loop"):
            await reader.queues("T")
        await reader.start()
        await reader.shutdown()

    asyncio.run(again())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_use_after_a_fork(unused_port: str) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pocketmq import PullConsumer\n"
        "from pocketmq.errors_for_test import NotRunning\n"
    ).replace("pocketmq.errors_for_test", "pocketmq")
    program += (
        "async def main():\n"
        f"    consumer = PullConsumer('G', namesrv={unused_port!r}, start_timeout=None)\n"
        "    await consumer.start()\n"
        "    if os.fork() == 0:\n"
        "        try:\n"
        "            await consumer.poll()\n"
        "        except NotRunning as error:\n"
        "            os._exit(7 if 'fork' in str(error) else 1)\n"
        "        os._exit(2)\n"
        "    _, status = await asyncio.to_thread(os.wait)\n"
        "    await consumer.shutdown()\n"
        "    sys.exit(os.waitstatus_to_exitcode(status))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, timeout=60, check=False)
    assert done.returncode == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "call", ["send(Message('T', b'x'))", "post(Message('T', b'x'))", "queues('T')"]
)
def test_a_producer_after_a_fork(call: str, unused_port: str) -> None:
    program = f"""
import asyncio, os, sys
from pocketmq import Message, NotRunning, Producer

producer = Producer("P", namesrv={unused_port!r})
loop = asyncio.new_event_loop()
loop.run_until_complete(producer.start())
if os.fork() == 0:
    try:
        asyncio.run(producer.{call})
    except NotRunning as error:
        os._exit(7 if "fork" in str(error) else 1)
    os._exit(2)
_, status = os.wait()
loop.run_until_complete(producer.shutdown())
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, timeout=60, check=False)
    assert done.returncode == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("where", ["in the loop", "outside of it"])
@pytest.mark.parametrize(
    "call",
    [
        "send(Message('T', b'x'))",
        "post(Message('T', b'x'))",
        "send_oneway(Message('T', b'x'))",
        "flush()",
        "shutdown()",
    ],
)
def test_a_child_does_not_use_its_parents_producer_in_its_parents_loop(
    call: str, where: str, unused_port: str
) -> None:
    program = f"""
import asyncio, os, sys
from pocketmq import Message, NotRunning, Producer

producer = Producer("P", namesrv={unused_port!r}, timeout=1)
loop = asyncio.new_event_loop()
loop.run_until_complete(producer.start())

async def use():
    try:
        await producer.{call}
    except NotRunning as error:
        os._exit(7 if "fork" in str(error) else 1)
    os._exit(2)

async def fork():
    if {where == "in the loop"} and os.fork() == 0:
        await use()

loop.run_until_complete(fork())
if {where != "in the loop"} and os.fork() == 0:
    loop.run_until_complete(use())
_, status = os.wait()
loop.run_until_complete(producer.shutdown())
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, timeout=60, check=False)
    assert done.returncode == 7


# A name server that is away at the start


WAITING = "Consumer('G') waits up to 30 s for a name server"


async def test_the_start_waits_for_a_name_server(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["a"].store("T", 0, b"x")
    await cluster.name_server.stop()
    seen: list[bytes] = []
    consumer = PushConsumer(
        "G",
        {"T": "*"},
        handler=lambda m: seen.append(m.body),
        namesrv=cluster.namesrv,
        start="begin",
    )
    start = asyncio.create_task(consumer.start())
    await until(lambda: WAITING in caplog.text, timeout=30)
    await cluster.name_server.start()
    await start
    await until(lambda: seen == [b"x"], timeout=30)
    await consumer.shutdown()
    assert caplog.text.count("waits up to") == 1


async def test_an_assignment_waits_for_a_name_server(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["a"].store("T", 0, b"x")
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin") as consumer:
        await cluster.name_server.stop()
        assign = asyncio.create_task(consumer.assign("T"))
        await until(lambda: WAITING in caplog.text, timeout=30)
        await cluster.name_server.start()
        await assign
        assert [m.body for m in await consumer.poll(timeout=30)] == [b"x"]
    assert caplog.text.count("waits up to") == 1


@pytest.mark.parametrize("kind", ["producer", "PullConsumer", "admin"])
async def test_every_client_waits_for_a_name_server_in_the_same_words(
    kind: str, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pocketmq")
    address = cluster.namesrv
    clients: dict[str, Producer | PullConsumer | Admin] = {
        "producer": Producer("P", namesrv=address, start_timeout=30),
        "PullConsumer": PullConsumer("G", namesrv=address),
        "admin": Admin(namesrv=address, start_timeout=30),
    }
    await cluster.name_server.stop()
    start = asyncio.create_task(clients[kind].start())
    await until(lambda: "waits up to 30 s for a name server" in caplog.text, timeout=30)
    await cluster.name_server.start()
    await start
    await clients[kind].shutdown()
    told = [r.getMessage() for r in caplog.records if address in r.getMessage()]
    assert [line.partition(" after ")[0] for line in told] == [
        f"name server does not answer: {address}: Connection refused",
        f"name server {address} answers again",
    ]


async def test_the_start_waits_no_longer_than_it_should(unused_port: str) -> None:
    consumer = PushConsumer("G", {"T": "*"}, namesrv=unused_port, start_timeout=0.2)
    with pytest.raises(NoNameServer, match="no name server answered"):
        await consumer.start()


async def test_a_signal_ends_the_wait_for_a_name_server(
    unused_port: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PushConsumer(
        "G", {"T": "*"}, handler=lambda m: None, namesrv=unused_port, start_timeout=3600
    )
    running = asyncio.create_task(consumer.run())
    await until(lambda: "waits up to 3600 s for a name server" in caplog.text, timeout=30)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(30):
        await running
