"""A stream whose driver is killed. `python -m tests.spark.stream_kills` kills it more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.spark.java import SparkUnavailable, find_java

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from tests.spark.stream_kills import run

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def test_each_message_arrives_once(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="pip install 'pocketmq[tables]'")
    try:
        find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    outcome = run(tmp_path, kills=1, sink="delta")
    assert outcome.kills == 1
    assert outcome.sent == outcome.rows == outcome.distinct > 0
