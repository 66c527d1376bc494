"""What a flood of urgent messages does to others: `python -m bench.priority`.

Consumers of a topic of priority messages have a fixed capacity: they pop one message at a time, at
a fixed rate. Beside a few messages of the lowest priority, a producer sends urgent ones, for a part
of the capacity or for more than it. The table shows for groups with several values of
priority.factor which part of either kind is received, and how long those waited. What is not
received counts with the time that it has waited up to the end. Each line has a topic and a group of
its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

from pocketmq.client.admin.admin import Admin
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.message.record import iter_records
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import PopMessageRequestHeader
from tests.interop.harness import ours

from .wake_flood import quantile
from .work_directory import work_directory

QUEUES = 8
URGENT, LOW = QUEUES - 1, 0
HEADING = (
    "urgent, of the capacity", "priority.factor", "urgent received", "wait p50", "wait worst",
    "low received", "wait p50", "wait worst",
)  # fmt: skip

Waits = dict[int, list[float]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.priority", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    parser.add_argument("--capacity", type=float, default=100.0, help="pops per second (100)")
    parser.add_argument("--low", type=float, default=0.05, help="low messages, of that (0.05)")
    parser.add_argument("--loads", nargs="+", type=float, default=[0.5, 0.9, 1.2])
    parser.add_argument("--factors", nargs="+", type=int, default=[100, 90, 50, 0])
    return parser.parse_args()


def main() -> int:
    options = arguments()
    with work_directory("pocketmq-bench-") as directory:
        namesrv = ours.start_name_server(directory)
        broker = ours.start_broker(directory, namesrv.address, name="priority")
        print(
            f"{options.capacity:g} pops per second, low messages for {options.low:.0%} of them, "
            f"{options.seconds:g} s, times in s\n\n| {' | '.join(HEADING)} |"
        )
        print(f"|{'---|' * len(HEADING)}", flush=True)
        for load in options.loads:
            for factor in options.factors:
                asyncio.run(measure(namesrv.address, broker.address, load, factor, options))
    return 0


async def measure(
    namesrv: str, address: str, load: float, factor: int, options: argparse.Namespace
) -> None:
    """Measure one line, and print it."""
    name = f"Load{load * 100:.0f}Factor{factor}"
    connection = await Connection.open(address)
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(name, queues=QUEUES, attributes={"message.type": "PRIORITY"})
    group = SubscriptionGroupConfig(group_name=name, attributes={"+priority.factor": f"{factor}"})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await connection.request(code, None, group.encode())).code == 0
    sent: dict[int, dict[bytes, float]] = {URGENT: {}, LOW: {}}
    numbers = itertools.count()
    waits: Waits = {URGENT: [], LOW: []}
    header = PopMessageRequestHeader(
        consumer_group=name, topic=name, queue_id=-1, max_msg_nums=1, invisible_time=600_000,
        poll_time=0, init_mode=0,
    )  # fmt: skip

    async with Producer("bench", namesrv=namesrv) as producer:

        async def send(priority: int) -> None:
            body = b"%d %d" % (priority, next(numbers))
            sent[priority][body] = time.perf_counter()
            await producer.send(Message(name, body, priority=priority))

        async def pop() -> None:
            # It stays invisible: an acknowledgement would not change what others get.
            answer = await connection.request(RequestCode.POP_MESSAGE, header, timeout=30.0)
            for record in iter_records(answer.body):
                body = bytes(record.body)
                priority = int(body.split()[0])
                waits[priority].append(time.perf_counter() - sent[priority].pop(body))

        rates: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (lambda: send(URGENT), load * options.capacity),
            (lambda: send(LOW), options.low * options.capacity),
            (pop, options.capacity),
        ]
        await asyncio.gather(*(repeat(act, rate, options.seconds) for act, rate in rates))
    await connection.close()
    now = time.perf_counter()
    figures = []
    for priority in (URGENT, LOW):
        received = len(waits[priority])
        every = waits[priority] + [now - since for since in sent[priority].values()]
        share = received / len(every)
        figures += [f"{share:.0%}", f"{quantile(every, 0.5):.2f}", f"{max(every):.2f}"]
    print(f"| {load:.0%} | {factor} | {' | '.join(figures)} |", flush=True)


async def repeat(act: Callable[[], Awaitable[None]], rate: float, seconds: float) -> None:
    """Do something `rate` times a second; what is late is done at once."""
    begin = time.perf_counter()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        await act()


if __name__ == "__main__":
    raise SystemExit(main())
