"""`python -m bench.consumes`: what a message of 1 KiB costs our consumers, without a network.

The broker is a function that answers pulls with 256 KiB at once, so what is left is the
consumer's own work and that of the frame codec: microseconds of this thread's CPU time per message,
the least of many short runs, so the figures hold on a busy machine too. They leave out sockets
(some 1 µs per KiB).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.expression import EVERYTHING
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.routes.route import TopicRoute
from pocketmq.message.checksum import body_crc
from pocketmq.message.identity import pack_host
from pocketmq.message.message import MessageQueue
from pocketmq.message.record_layout import MAGIC_V1, QUEUE_OFFSET_AT, encode_into, record_size
from pocketmq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.frames.command import Command
from pocketmq.remoting.frames.frame import decode_command, encode_command

TOPIC = "consumes"
QUEUES = 4
PULLED = 256 * 1024 // 1200
MESSAGES = 2000
RUNS = 100

BODY = bytes(1024)
HOST = pack_host("127.0.0.1", 10911)
PROPERTIES = (
    b"UNIQ_KEY\x017F0000010000B4270000000000002977\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    b"CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
)
_OFFSET = Struct(">q")


def records() -> tuple[bytearray, int]:
    """The body of an answer to a pull, and the size of each record in it."""
    topic = TOPIC.encode()
    size = record_size(len(BODY), len(topic), len(PROPERTIES))
    body = bytearray(size * PULLED)
    for number in range(PULLED):
        encode_into(
            body, size * number, size, MAGIC_V1, body_crc(BODY), 0, 0, number, 0, 0, 1, HOST, 2,
            HOST, 0, 0, BODY, topic, PROPERTIES,
        )  # fmt: skip
    return body, size


RECORDS, SIZE = records()


async def answer(_address: str, _code: int, header: Any, **_: Any) -> Command:
    """What a broker does with a pull, as far as the consumer can tell."""
    offset = header.queue_offset
    for number in range(PULLED):
        _OFFSET.pack_into(RECORDS, SIZE * number + QUEUE_OFFSET_AT, offset + number)
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(offset + PULLED),
        "minOffset": "0",
        "maxOffset": str(1 << 40),
    }
    frame = encode_command(0, 1, flag=1, ext_fields=ext, body=bytes(RECORDS))
    return decode_command(memoryview(frame)[4:])


async def consumer(**options: Any) -> PushConsumer:
    """One that has its queues and runs, although there is nobody to connect to."""
    made = PushConsumer("consumes", namesrv="127.0.0.1:9876", share_polls=False, **options)
    instance = made._session.instance
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={0: "127.0.0.1:1"}, broker_name="b", cluster="c")],
        queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=QUEUES)],
    )
    instance.routes._learn(TopicRoute(TOPIC, route))
    instance.pool.request = answer  # type: ignore[method-assign, assignment]
    instance.running = made._session.begun = True
    instance.binding.enter()
    made._session.wanted.add(TOPIC, EVERYTHING, None)
    made._session.assignment._begin(
        TOPIC, Kind.SHARED, EVERYTHING, None, instance.routes.known(TOPIC)
    )
    for queue_id in range(QUEUES):
        pq = made._session.assignment.add(MessageQueue(TOPIC, "b", queue_id)).pq
        pq.next_offset = 0
        pq.locked_until = float("inf")
    await made._session.assignment.start_all()
    return made


async def end(made: PushConsumer) -> None:
    made._session.consumption.stop()
    made._session.assignment.stop()
    made._session.instance.running = False
    tasks = list(made._session.instance._tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def handled(*, orderly: bool) -> float:
    """Microseconds per message with a handler that does nothing."""
    least = float("inf")
    count = 0
    began = time.thread_time()
    ended = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        nonlocal count, began, least
        count += 1
        if count % MESSAGES == 0:
            now = time.thread_time()
            least = min(least, now - began)
            began = now
            if count == MESSAGES * RUNS:
                ended.set()

    made = await consumer(orderly=orderly)
    made._session.handlers[TOPIC] = handle
    made._session.consumption.wake()
    await ended.wait()
    await end(made)
    return least / MESSAGES * 1e6


async def iterated() -> float:
    """Microseconds per message in a loop that acknowledges each."""
    made = await consumer()
    least = float("inf")
    for _ in range(RUNS):
        began = time.thread_time()
        for _ in range(MESSAGES):
            async with await anext(made):
                pass
        least = min(least, time.thread_time() - began)
    await end(made)
    return least / MESSAGES * 1e6


async def main() -> None:
    ways: dict[str, Callable[[], Awaitable[float]]] = {
        "concurrent, a handler": lambda: handled(orderly=False),
        "orderly, a handler": lambda: handled(orderly=True),
        "concurrent, iteration": iterated,
    }
    for name, way in ways.items():
        cost = await way()
        print(f"{name:24} {cost:6.2f} µs  {1e6 / cost:9,.0f} messages/s")


if __name__ == "__main__":
    asyncio.run(main())
