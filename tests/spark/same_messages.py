"""Sends messages of all kinds to two brokers, and compares what each way of reading them returns.

    python -m tests.spark.same_messages --messages 1000000 --queues 16 --body 128

Every acknowledged message has to be there once, with its id, topic, body, tag, keys, flag and
properties: in the files of the stores, from the running brokers, in an archive, and in an export.
All columns of these four have to be equal.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from bench.work_directory import work_directory
from pocketmq import Message, Producer
from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.client.admin import Admin
from pocketmq.message.message import MessageQueue
from pocketmq.spark import session
from pocketmq.store.scan.records.columns import ALL_COLUMNS
from pocketmq.tables.exports import export
from pocketmq.tables.table import open_table
from pocketmq.types import SendStatus
from tests.interop.harness import ours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS_AT_ONCE: Final = 4
ROUND_BYTES: Final = 16 << 20
MOST_IN_ROUND: Final = 500
MOST_QUEUES: Final = 500
"""Of a topic on one broker."""
GROUP_ROWS: Final = 50_000
PATIENCE: Final = 600.0
"""Seconds that a send may take on a busy machine, and delayed messages after the last send."""

#: Of 20 messages in turn; those of a batch share one with others of their round.
KINDS: Final = ("batch",) * 13 + ("single",) * 2 + ("keyed",) * 2 + ("compressed", "level", "timer")
SENT: Final = pa.schema([("msgId", pa.string()), ("topic", pa.string()), ("content", pa.string())])

Row: TypeAlias = tuple[str, str, str]
"""Id, topic and hash of a message."""


class Load(NamedTuple):
    """What is sent. `queues` is their number on all brokers, and `body` the mean bytes."""

    messages: int
    queues: int
    body: int
    brokers: int = 2

    def topics(self) -> Iterator[tuple[str, int]]:
        """Each topic, and how many queues it has on each broker."""
        left = -(-self.queues // self.brokers)
        most = min(MOST_QUEUES, max(left // 4, 1))
        for number in count():
            if left <= 0:
                return
            yield f"Same-{number}", min(most, left)
            left -= most


class Difference(NamedTuple):
    """How many messages a view lacks, and how many it has too often, with some of them."""

    lacks: int
    exceeds: int
    examples: Sequence[Row]


def message_of(number: int, topic: str, noise: bytes, body: int) -> tuple[str, Message]:
    """The kind of a message, and the message."""
    kind = KINDS[number * 7 % len(KINDS)]
    size = body // 2 + number * 7919 % (body + 1)
    at = number * 37 % 65_536
    text = b"%d " % number + (bytes(size) if kind == "compressed" else noise[at : at + size])
    message = Message(
        topic,
        text,
        tags=f"tag{number % 5}" if number % 3 else None,
        keys=[f"key{number}", "all"][: number % 4],
        properties={"number": str(number), "größe": f"{size}\u00a0B"} if number % 7 else {},
        flag=number % 11,
        delay_level=int(kind == "level"),
        delay=1.0 if kind == "timer" else 0.0,
    )
    return kind, message


def content_of(message: Message) -> str:
    """The hash of what a consumer gets, as `content_column` makes it."""
    own = message.properties
    parts = [
        hashlib.sha256(message.body).hexdigest(),
        message.tags or "",
        " ".join(message.keys),
        str(message.flag),
        own.get("number", ""),
        own.get("größe", ""),
    ]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


async def fill(namesrv: str, load: Load, file: Path) -> None:
    """Send the messages, write what was acknowledged to a Parquet file, and return when delayed
    messages are in their queues."""
    async with (
        Admin(namesrv=namesrv) as admin,
        # A message that is sent again could be stored twice.
        Producer("same", namesrv=namesrv, retries=0, timeout=PATIENCE) as producer,
        Producer("small", namesrv=namesrv, retries=0, timeout=PATIENCE, compress_over=1) as small,
    ):
        queues: list[MessageQueue] = []
        for topic, on_broker in load.topics():
            await admin.create_topic(topic, queues=on_broker)
            queues += await producer.queues(topic)
        assert len(queues) >= load.queues, f"{len(queues)} queues"
        noise = random.Random(1).randbytes(65_536 + 2 * load.body)
        size = load.messages // len(queues)
        size = max(1, min(size, MOST_IN_ROUND, ROUND_BYTES // load.body))
        rounds = iter(enumerate(range(0, load.messages, size)))

        async def send(numbers: range, queue: MessageQueue) -> list[Row]:
            batch: list[Message] = []
            others: list[Message] = []
            calls = []
            for number in numbers:
                kind, message = message_of(number, queue.topic, noise, load.body)
                if kind == "batch":
                    batch.append(message)
                    continue
                others.append(message)
                if kind == "single":
                    calls.append(producer.send(message))
                elif kind == "keyed":
                    calls.append(producer.send(message, key=f"key{number % 100}"))
                elif kind == "compressed":
                    calls.append(small.send(message, queue=queue))
                else:
                    calls.append(producer.send(message, queue=queue))
            results = await producer.send_batch(batch, queue=queue) if batch else []
            results += await asyncio.gather(*calls)
            assert all(result.status is SendStatus.SEND_OK for result in results)
            return [
                (result.msg_id, message.topic, content_of(message))
                for message, result in zip(batch + others, results, strict=True)
            ]

        with ParquetWriter(file, SENT) as writer:
            sent: list[Row] = []

            def write() -> None:
                columns = zip(*sent, strict=True)
                writer.write_batch(pa.record_batch([pa.array(each) for each in columns], SENT))
                sent.clear()

            async def work() -> None:
                for turn, first in rounds:
                    numbers = range(first, min(first + size, load.messages))
                    sent.extend(await send(numbers, queues[turn % len(queues)]))
                    if len(sent) >= GROUP_ROWS:
                        write()

            async with asyncio.TaskGroup() as workers:
                for _ in range(ROUNDS_AT_ONCE):
                    workers.create_task(work())
            if sent:
                write()
        async with asyncio.timeout(PATIENCE):
            while (stored := await stored_in(admin, load)) < load.messages:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert stored == load.messages, f"{stored} messages are stored"


async def stored_in(admin: Admin, load: Load) -> int:
    tables = [(await admin.topic_stats(topic)).offset_table for topic, _ in load.topics()]
    return sum(bounds.max_offset for table in tables for bounds in table.values())


def hashed(messages: DataFrame) -> DataFrame:
    """The ids and topics of messages, the hash of what was sent, and that of all columns."""
    others = [name for name in ALL_COLUMNS if name not in ("body", "bornTimestamp")]
    return messages.selectExpr("*", "sha2(body, 256) AS hash").selectExpr(
        "msgId",
        "topic",
        "sha2(concat_ws('|', hash, coalesce(tags, ''), concat_ws(' ', keys), flag,"
        " coalesce(properties['number'], ''), coalesce(properties['größe'], '')), 256) AS content",
        "sha2(to_json(struct(hash, unix_micros(bornTimestamp) AS born,"
        f" {', '.join(others)})), 256) AS columns",
    )


def difference(expected: DataFrame, found: DataFrame, column: str) -> Difference:
    """Compare how often each message is in two views, by its id, topic and the hash in `column`."""
    names = ["msgId", "topic", column]
    left = expected.selectExpr(*names, "1 AS n").union(found.selectExpr(*names, "-1 AS n"))
    different = left.groupBy(names).sum("n").withColumnRenamed("sum(n)", "n").where("n <> 0")
    different = different.cache()
    lacks, exceeds = different.selectExpr(
        "coalesce(sum(greatest(n, 0)), 0)", "coalesce(sum(greatest(-n, 0)), 0)"
    ).first() or (0, 0)
    examples = [(row[0], row[1], row[2]) for row in different.limit(5).collect()]
    different.unpersist()
    return Difference(lacks, exceeds, examples)


def run(
    spark: SparkSession, directory: Path, load: Load, told: Callable[[str], None]
) -> dict[str, Difference]:
    """Fill brokers, and return how each way of reading differs: the files from what was sent, and
    the others from the files. Their hashes are left in `directory`."""
    clock = time.monotonic()

    def tell(text: str) -> None:
        told(f"{time.monotonic() - clock:.0f} s: {text}")

    def hashes(name: str) -> DataFrame:
        return spark.read.parquet(str(directory / name))

    found: dict[str, Difference] = {}

    def view(name: str, messages: DataFrame) -> None:
        hashed(messages).write.parquet(str(directory / name))
        tell(f"{name}: {hashes(name).count()} messages")
        expected, column = ("sent", "content") if name == "files" else ("files", "columns")
        found[name] = difference(hashes(expected), hashes(name), column)
        tell(f"{name}: compared with {expected}, {found[name]}")

    reader = spark.read.format("rocketmq").options(
        includeMetadata="true", subscribe=",".join(topic for topic, _ in load.topics())
    )
    settings = {
        "autoCreateTopicEnable": False,
        "mappedFileSizeCommitLog": 256 << 20,
        "mappedFileSizeConsumeQueue": 20_000 if load.queues > 1_000 else 2_000_000,
    }
    name_server = ours.start_name_server(directory)
    brokers = [
        ours.start_broker(
            directory, name_server.address, name=f"broker-{number}", settings=settings
        )
        for number in range(load.brokers)
    ]
    stores = [broker.store for broker in brokers if broker.store is not None]
    asyncio.run(fill(name_server.address, load, directory / "sent"))
    tell(f"sent: {hashes('sent').count()} messages")
    view("files", reader.load([str(store) for store in stores]))
    view("brokers", reader.option("namesrv", name_server.address).load())
    for server in (*brokers, name_server):
        server.process.terminate()
    archives = Location(f"file://{directory}/archives")
    for store in stores:
        sync(store, archives.open(), everything=True, clock=lambda: time.time_ns() // 1_000_000)
    reader = spark.read.format("rocketmq").options(includeMetadata="true")
    view("archive", reader.load(str(directory / "archives")))
    table = open_table(directory / "table", "parquet")
    try:
        export(table, stores, columns=tuple(ALL_COLUMNS))
    finally:
        table.close()
    view("export", spark.read.parquet(str(directory / "table" / "*.parquet")))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.same_messages", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=16, help="of all brokers (16)")
    parser.add_argument("--body", type=int, default=128, help="mean bytes of a body (128)")
    parser.add_argument("--brokers", type=int, default=2)
    options = parser.parse_args()
    load = Load(options.messages, options.queues, options.body, options.brokers)
    with work_directory("pocketmq-same-") as directory:
        spark = session(
            master="local[2]",
            config={"spark.sql.shuffle.partitions": "16", "spark.driver.memory": "2g"},
            log=directory / "spark.log",
        )
        found = run(spark, directory, load, lambda text: print(text, flush=True))
        spark.stop()
    return int(any(lacks or exceeds for lacks, exceeds, _ in found.values()))


if __name__ == "__main__":
    sys.exit(main())
