"""A stream whose driver is killed. `python -m tests.spark.stream_kills` kills it more often."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from tests.spark.stream_kills import run

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def test_each_message_arrives_once(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="pip install 'pocketmq[tables]'")
    outcome = run(spark, tmp_path, kills=1, sink="delta")
    assert outcome.kills == 1
    assert outcome.sent == outcome.rows == outcome.distinct > 0
