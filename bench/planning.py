"""Measure how long Spark's driver plans a read of a store with many queues.

The store is closed, as after a clean stop. A plan of one topic opens the queues of that topic only;
a plan of all topics goes by what the broker has noted of them, and opens a sample. Spark is not
started.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from bench.work_directory import work_directory
from pocketmq.message.identity import pack_host
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

TARGET: Final = 0.1
QUEUES_OF_A_TOPIC: Final = 100
_HOST: Final = pack_host("127.0.0.1", 10911)
_COLUMNS: Final = StructType(
    [StructField("queueOffset", LongType()), StructField("body", BinaryType())]
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000, help="in all (10000)")
    parser.add_argument("--records", type=int, default=1_000_000, help="in all (1000000)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    options = parser.parse_args()
    with work_directory("pocketmq-planning-") as root:
        print(f"writing {options.records} records to {options.queues} queues")
        asyncio.run(write(root, options.queues, options.records))
        reads: dict[str, dict[str, str]] = {"one topic": {"subscribe": "topic0"}, "all topics": {}}
        times: dict[str, list[float]] = {name: [] for name in reads}
        for turn in range(options.rounds + 1):
            for name, choice in reads.items():
                taken = plan(root, choice)
                if turn:  # the first warms up
                    times[name].append(taken)
    for name, each in times.items():
        print(f"  {name:10} {statistics.median(each) * 1e3:6.0f} ms (best {min(each) * 1e3:.0f})")
    print(f"  target: at most {TARGET * 1e3:.0f} ms")
    return 1 if options.check and max(map(statistics.median, times.values())) > TARGET else 0


def plan(root: Path, choice: Mapping[str, str]) -> float:
    """Seconds in which a read is planned, from its options to its partitions."""
    started = time.perf_counter()
    reader = RocketMQDataSource({"path": str(root), **choice}).reader(_COLUMNS)
    if not reader.partitions():
        raise RuntimeError(f"{root} has no messages")
    return time.perf_counter() - started


async def write(root: Path, queues: int, records: int) -> None:
    """Fill a store: every queue gets as many records."""
    config = StoreConfig(store_path_root_dir=str(root), mapped_file_size_consume_queue=20_000)
    store = MessageStore(config, store_host=_HOST)
    store.open()
    store.start()
    now = int(time.time() * 1000)
    try:
        for number in range(records):
            topic, queue_id = divmod(number % queues, QUEUES_OF_A_TOPIC)
            store.put(
                f"topic{topic}",
                queue_id,
                bytes(50),
                "",
                born_timestamp=now,
                born_host=_HOST,
                tags_code=0,
            )
            if number % 1000 == 0:
                await asyncio.sleep(0)  # the store makes its files beside us
    finally:
        await store.close()


if __name__ == "__main__":
    sys.exit(main())
