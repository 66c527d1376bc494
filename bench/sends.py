"""`python -m bench.sends`: what a message costs our producer, without a network.

The broker is a function that answers in the next turn of the event loop, so what is left is the
producer's own work and that of the frame codec: microseconds of this thread's CPU time per message,
the least of many short runs, so the figures hold on a busy machine too. They leave out sockets
(some 1 µs per KiB in batches, 15 µs for a single send) and the tasks that a caller makes to have
sends under way at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pocketmq.client.observation.send_hooks import SendContext
from pocketmq.client.producer.producer import Producer
from pocketmq.client.routes.route import TopicRoute
from pocketmq.message.message import Message
from pocketmq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.command import Command
from pocketmq.remoting.frames.frame import encode_request

TOPIC = "sends"
MESSAGES = 1000
RUNS = 100
OFFSET_ID = "7F0000010000B4270000000000002977"


async def answer(_address: str, code: int, header: Any, body: bytes, **_: Any) -> Command:
    """What a broker does with a send, as far as the producer can tell."""
    # No broker answers in the same turn; if it did, no send would have company.
    await asyncio.sleep(0)
    encode_request(code, 1, header, body)
    count = body.count(b"UNIQ_KEY") if code == RequestCode.SEND_BATCH_MESSAGE else 1
    ext = {
        "queueId": str(header.share.fields.queue_id),
        "queueOffset": "5",
        "msgId": ",".join([OFFSET_ID] * count),
        "transactionId": OFFSET_ID,
    }
    return Command(0, ext_fields=ext)


def producer(**options: Any) -> Producer:
    """One that has a route and runs, although there is nobody to connect to."""
    made = Producer("sends", namesrv="127.0.0.1:9876", **options)
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={0: "127.0.0.1:1"}, broker_name="b", cluster="c")],
        queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=4, write_queue_nums=4)],
    )
    made._routes._learn(TopicRoute(TOPIC, route))
    made._routes._published.add(TOPIC)
    made._pool.request = made._instance.batch_protocol.request = answer  # type: ignore[method-assign, assignment]
    made._instance.binding.enter()
    made._calls.begin()
    return made


async def one_by_one(made: Producer, messages: list[Message]) -> None:
    for message in messages:
        await made.send(message)


async def batched(made: Producer, messages: list[Message]) -> None:
    await made.send_batch(messages)


async def posted(made: Producer, messages: list[Message]) -> None:
    waiting = [await made.post(message) for message in messages]
    await made.flush()
    for each in waiting:
        await each


async def posted_by_key(made: Producer, messages: list[Message]) -> None:
    waiting = [await made.post(message, key=n % 16) for n, message in enumerate(messages)]
    await made.flush()
    for each in waiting:
        await each


async def gathered(made: Producer, messages: list[Message]) -> None:
    await asyncio.gather(*map(made.send, messages))


async def gathered_by_key(made: Producer, messages: list[Message]) -> None:
    await asyncio.gather(*(made.send(message, key=n % 16) for n, message in enumerate(messages)))


class Hook:
    """A hook that does nothing."""

    def before_send(self, context: SendContext) -> None:
        pass

    def after_send(self, context: SendContext) -> None:
        pass


Way = Callable[[Producer, list[Message]], Awaitable[None]]
WAYS: dict[str, tuple[Way, dict[str, Any]]] = {
    "send, one by one": (one_by_one, {}),
    "send, 1000 tasks": (gathered, {}),
    "send, 1000 tasks, by key": (gathered_by_key, {}),
    "send, 1000 tasks, with a hook": (gathered, {"hooks": [Hook()]}),
    "send, 1000 tasks, by key, hook": (gathered_by_key, {"hooks": [Hook()]}),
    "send, 1000 tasks, traced": (gathered, {"trace": True}),
    "send, 1000 tasks, not sharing": (gathered, {"accumulate": False}),
    "send, 1000 tasks, lingering": (gathered, {"linger_ms": 1}),
    "send_batch of 1000": (batched, {}),
    "post": (posted, {}),
    "post by key": (posted_by_key, {}),
}


async def least(way: Way, options: dict[str, Any], size: int) -> float:
    """Microseconds per message of the quickest of RUNS runs."""
    made = producer(**options)
    messages = [Message(TOPIC, b"0123456789abcdef" * (size // 16)) for _ in range(MESSAGES)]
    best = float("inf")
    for _ in range(RUNS):
        begin = time.thread_time_ns()
        await way(made, messages)
        best = min(best, time.thread_time_ns() - begin)
    return best / 1000 / MESSAGES


async def main() -> None:
    print(f"{'µs of CPU per message':30}{'128 B':>8}{'1 KiB':>8}")
    for name, (way, options) in WAYS.items():
        figures = [await least(way, options, size) for size in (128, 1024)]
        print(f"{name:30}" + "".join(f"{figure:8.2f}" for figure in figures))


if __name__ == "__main__":
    asyncio.run(main())
