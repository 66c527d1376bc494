"""What a session tells the source when that is registered with it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType

from pocketmq.spark import register
from pocketmq.spark.source import RocketMQDataSource
from tests.store.made_store import MadeStore

MIB = 1024 * 1024


class Session:
    """As much of a session as `register` uses."""

    def __init__(self, parallelism: int) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=parallelism)
        self.dataSource = self
        self._jsparkSession = None

    def register(self, source: type[RocketMQDataSource]) -> None:
        self.sent = cloudpickle.dumps(source)  # type: ignore[no-untyped-call]

    def source(self, root: Path) -> RocketMQDataSource:
        """What a worker makes of it."""
        made: Any = cloudpickle.loads(self.sent)({"path": str(root)})
        assert isinstance(made, RocketMQDataSource)
        return made


class ConnectSession(Session):
    """One that has no context."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.conf = conf
        self.dataSource = self


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = MadeStore(tmp_path_factory.mktemp("store"), segment_size=32 * MIB)
    for _ in range(24):
        made.put(body=bytes(MIB))
    return made.write()


def partitions(source: RocketMQDataSource) -> int:
    reader = source.reader(StructType([StructField("queueOffset", LongType())]))
    return len(reader.partitions())


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_partitions_follow_the_session(store: Path, parallelism: int) -> None:
    session: Any = Session(parallelism)
    register(session)
    assert partitions(session.source(store)) == parallelism


def test_partitions_follow_the_setting_of_a_session_elsewhere(store: Path) -> None:
    session: Any = ConnectSession({"spark.default.parallelism": "3"})
    register(session)
    assert partitions(session.source(store)) == 3
    session = ConnectSession({})
    register(session)
    assert session.source(store).parallelism is None
