"""The demo's second part: Spark SQL over the files of the stopped brokers."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.demo.ledger import Ledger
from pocketmq.demo.screen import Screen
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.spark import SparkUnavailable, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A store written by the official 5.3.3 broker, and its messages as pulled by the official client.
#: Only a checkout has them.
GOLDEN = Path(__file__).parents[2] / "tests" / "data" / "golden" / "store-5.3.3-clean.tar.gz"

SLOT_MS = 500

CARRIERS = """
SELECT tags AS carrier,
       count(*) AS messages,
       count_if(broker = '{0}') AS on_a,
       count_if(broker = '{1}') AS on_b,
       round(avg(get_json_object(string(body), '$.dep_delay')), 1) AS mean_delay,
       max_by(get_json_object(string(body), '$.dest'),
              int(get_json_object(string(body), '$.distance'))) AS farthest
FROM {topic} GROUP BY tags ORDER BY messages DESC, carrier
"""

TIMELINE = """
SELECT unix_millis(storeTimestamp) DIV {slot} AS slot,
       count_if(broker = '{0}') AS on_a,
       count_if(broker = '{1}') AS on_b
FROM {topic} GROUP BY slot ORDER BY slot
"""

SHOWN_CARRIERS = 6


def show(
    screen: Screen, stores: Mapping[str, Path], topic: str, ledger: Ledger, scratch: Path
) -> int:
    """Print the tables; return 0 if Spark's counts match the consumer's, 7 without Spark."""
    screen.title("Spark SQL over the files of both brokers, which are stopped")
    try:
        with screen.working("starting Spark: a Java virtual machine, some seconds"):
            spark = session("pocketmq demo", log=scratch / "spark.log", short_lived=True)
    except SparkUnavailable as error:
        screen.say(f"left out: {error}")
        return ExitCode.UNAVAILABLE
    try:
        agreed = _carriers(screen, spark, stores, topic, ledger)
        _timeline(screen, spark, stores, topic)
        agreed &= _official_store(screen, spark, scratch / "golden")
    finally:
        spark.stop()
    screen.say("Spark and the consumer agree" if agreed else "Spark and the consumer DISAGREE")
    return ExitCode.OK if agreed else ExitCode.FAILURE


def _carriers(
    screen: Screen, spark: SparkSession, stores: Mapping[str, Path], topic: str, ledger: Ledger
) -> bool:
    from pyspark.sql.functions import lit

    frames = [
        spark.read.format("rocketmq")
        .option("subscribe", topic)
        .load(str(store))
        .withColumn("broker", lit(broker))
        for broker, store in stores.items()
    ]
    union = reduce(lambda one, other: one.unionByName(other), frames)
    union.cache().createOrReplaceTempView(topic)
    with screen.working("SELECT tags, count(*), avg(dep_delay) ... GROUP BY tags"):
        rows = spark.sql(CARRIERS.format(*stores, topic=topic)).collect()
    counted = Counter({row["carrier"]: row["messages"] for row in rows})
    headers = ("carrier", "messages", "pulled", *stores, "mean delay, min", "farthest")
    shown = [
        (row["carrier"], row["messages"], ledger.by_tag[row["carrier"]], row["on_a"], row["on_b"],
         row["mean_delay"], row["farthest"])
        for row in rows[:SHOWN_CARRIERS]
    ]  # fmt: skip
    on_each = [sum(row[column] for row in rows) for column in ("on_a", "on_b")]
    total = ("all", counted.total(), ledger.pulled, *on_each, "", "")
    screen.table(headers, [*shown, total])
    return counted == ledger.by_tag


def _timeline(screen: Screen, spark: SparkSession, stores: Mapping[str, Path], topic: str) -> None:
    rows = spark.sql(TIMELINE.format(*stores, topic=topic, slot=SLOT_MS)).collect()
    found = {row["slot"]: (row["on_a"], row["on_b"]) for row in rows}
    first = min(found)
    screen.title(f"Messages stored every {SLOT_MS / 1000:g} s, by broker")
    screen.bars(
        list(stores),
        [
            (f"{(slot - first) * SLOT_MS / 1000:.1f} s", found.get(slot, (0, 0)))
            for slot in range(first, max(found) + 1)
        ],
    )


def _official_store(screen: Screen, spark: SparkSession, directory: Path) -> bool:
    if not GOLDEN.exists():
        screen.say("a checkout of the source also has a store of the official broker to read here")
        return True
    screen.title("The same over segments that the official RocketMQ 5.3.3 broker wrote")
    pulled = json.loads(GOLDEN.with_name(GOLDEN.name.replace(".tar.gz", ".json")).read_text())
    expected = Counter(message["storedTopic"] for message in pulled)
    with tarfile.open(GOLDEN) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(directory, filter="data")
        else:  # Python before 3.11.4; the archive is part of the checkout
            archive.extractall(directory)
    rows = (
        spark.read.format("rocketmq")
        .option("includeSystemTopics", "true")
        .load(str(directory))
        .groupBy("topic")
        .count()
        .collect()
    )
    counted = Counter({row["topic"]: row["count"] for row in rows})
    screen.table(
        ("topic", "messages", "pulled by the official client"),
        [(topic, count, expected[topic]) for topic, count in sorted(counted.items())],
    )
    return counted == expected
