"""One Spark session for all tests here, what every Java process of theirs does, and the golden
stores unpacked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.unpacked_home import unpacked_home
from tests.store.made_store import unpack_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java compiles less: most of these tests are over before it pays."""


@pytest.fixture(scope="session", autouse=True)
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Settings of every Spark that is started here, also by commands and jobs, and where it is."""
    directory = tmp_path_factory.mktemp("spark-conf")
    settings = (f"spark.{where}.extraJavaOptions {_QUICK}\n" for where in ("driver", "executor"))
    (directory / "spark-defaults.conf").write_text("".join(settings))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_CONF_DIR", str(directory))
        if find_spec("pyspark") is not None:
            home = unpacked_home(tmp_path_factory.mktemp("spark") / "home")
            environment.setenv("SPARK_HOME", str(home))
        yield


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
