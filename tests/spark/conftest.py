"""One Spark session for all tests here, and the golden stores unpacked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.store.made_store import unpack_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def _quick(quick_java: None) -> None:
    """Also where a command or a job starts Spark."""


@pytest.fixture(scope="session")
def spark(quick_java: None) -> Iterator[SparkSession]:
    """A session on two cores in which nothing is registered."""
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java

    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    # Workers are this Python, and have the packages from where these tests have them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def golden_clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_golden("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="session")
def golden_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_golden("killed", tmp_path_factory.mktemp("killed"))
