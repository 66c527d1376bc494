"""Measure Spark's writer against the client's own `send_batch` in as many processes.

Both send the same messages, ids of rows included, in batches of the same size to one broker of
ours, in turn (A B A B; the first pair warms up). The plain senders are connected and have their
messages ready when the clock starts. Spark has its session and its Python workers, and makes the
rows of a range; its clock runs for the whole `save()`. The target is 0.6 of the rate of
`send_batch`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from typing import Final

from pyspark.sql import SparkSession

from bench.paired_times import report
from bench.scan import start_session
from bench.work_directory import work_directory
from pocketmq import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.spark.options.writer_options import BATCH_MESSAGES, BATCHES_IN_FLIGHT
from pocketmq.spark.rows import ROW_ID
from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java
from tests.interop.harness import ours

TARGET: Final = 0.6
TOPIC: Final = "SparkWrite"
PROCESSES: Final = 2
QUEUES: Final = 8
WRITE_ID: Final = "0" * 36  # as long as the id that each write has by default


def main() -> int:
    options = arguments()
    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        print(f"no benchmark: {missing}")
        return 1
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-spark-write-"))
        namesrv = ours.start_name_server(directory).address
        ours.start_broker(directory, namesrv)
        asyncio.run(create_topic(namesrv))
        spark = start_session()
        cleanup.callback(spark.stop)
        ratios = [
            measure(spark, namesrv, size, options.messages, options.rounds) for size in options.body
        ]
    return 1 if options.check and min(ratios) < TARGET else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_write", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="in each write (200000)")
    parser.add_argument("--body", type=int, nargs="+", default=[100, 1024], help="bytes (100 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    return parser.parse_args()


async def create_topic(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)


def measure(spark: SparkSession, namesrv: str, size: int, messages: int, rounds: int) -> float:
    """The ratio of the rates of Spark's writer and `send_batch`, printed with both."""
    times: dict[str, list[float]] = {"send_batch": [], "spark": []}
    for turn in range(rounds + 1):
        plain = send_plain(namesrv, size, messages)
        written = write(spark, namesrv, size, messages)
        if turn:  # the first warms up
            times["send_batch"].append(plain)
            times["spark"].append(written)
    print(f"{messages} messages of {size} bytes, {PROCESSES} processes")
    return report(times, messages, "messages", TARGET)


def write(spark: SparkSession, namesrv: str, size: int, messages: int) -> float:
    """Seconds of one batch write."""
    frame = spark.range(0, messages, 1, PROCESSES).selectExpr(
        f"CAST(repeat('x', {size} + CAST(id * 0 AS INT)) AS BINARY) body"
    )
    started = time.perf_counter()
    frame.write.format("rocketmq").options(namesrv=namesrv, topic=TOPIC).mode("append").save()
    return time.perf_counter() - started


def send_plain(namesrv: str, size: int, messages: int) -> float:
    """Seconds in which the client sends as many in as many processes."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES + 1)
    senders = [
        context.Process(
            target=run_sender, args=(namesrv, size, messages // PROCESSES, number, barrier)
        )
        for number in range(PROCESSES)
    ]
    for sender in senders:
        sender.start()
    barrier.wait()
    started = time.perf_counter()
    barrier.wait()
    taken = time.perf_counter() - started
    for sender in senders:
        sender.join()
    return taken


def run_sender(namesrv: str, size: int, messages: int, number: int, barrier: Barrier) -> None:
    asyncio.run(send(namesrv, size, messages, number, barrier))


async def send(namesrv: str, size: int, messages: int, number: int, barrier: Barrier) -> None:
    made = [
        Message(TOPIC, b"x" * size, properties={ROW_ID: f"{WRITE_ID}/{number}/{row}"})
        for row in range(messages)
    ]
    batches = [made[at : at + BATCH_MESSAGES] for at in range(0, messages, BATCH_MESSAGES)]
    async with Producer("bench", namesrv=namesrv) as producer:
        await producer.send(made[0])
        waiting = iter(batches)

        async def work() -> None:
            for batch in waiting:
                await producer.send_batch(batch)

        barrier.wait()
        async with asyncio.TaskGroup() as group:
            for _ in range(BATCHES_IN_FLIGHT):
                group.create_task(work())
        barrier.wait()


if __name__ == "__main__":
    sys.exit(main())
