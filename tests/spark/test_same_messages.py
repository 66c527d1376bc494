"""What two brokers stored, by each way of reading it. `python -m tests.spark.same_messages` sends
more messages, in more queues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.harness.process import killed_at_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from tests.spark.same_messages import Load, difference, run

pytestmark = pytest.mark.spark


def test_files_brokers_archive_and_export_have_what_was_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    told: list[str] = []
    with killed_at_the_end():
        found = run(spark, tmp_path, Load(2_000, queues=8, body=100), told.append)
    assert {name: (lacks, exceeds) for name, (lacks, exceeds, _) in found.items()} == {
        "files": (0, 0),
        "brokers": (0, 0),
        "archive": (0, 0),
        "export": (0, 0),
    }
    assert sum("2000 messages" in line for line in told) == 5, told


def test_a_message_that_lacks_comes_twice_or_is_another_is_found(spark: SparkSession) -> None:
    def view(*rows: tuple[str, str]) -> DataFrame:
        return spark.createDataFrame(
            [(msg_id, "T", content) for msg_id, content in rows],
            "msgId string, topic string, content string",
        )

    sent = view(("1", "a"), ("2", "b"), ("3", "c"), ("4", "d"))
    found = view(("1", "a"), ("2", "b"), ("2", "b"), ("3", "x"))
    lacks, exceeds, examples = difference(sent, found, "content")
    assert (lacks, exceeds) == (2, 2)  # one was changed: it lacks, and is too many
    assert sorted(examples) == [("2", "T", "b"), ("3", "T", "c"), ("3", "T", "x"), ("4", "T", "d")]
    assert difference(sent, sent, "content") == (0, 0, [])
