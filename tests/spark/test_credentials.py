"""Reads and writes at a cluster that wants signatures, as workers call them, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pocketmq.auth.users import User
from pocketmq.client.credentials import Credentials
from pocketmq.sync import Admin
from tests.cli.running import Running
from tests.cli.test_credentials import AUTHENTICATION
from tests.interop.harness.secured import ROOT, SETTINGS, create_user
from tests.store.made_store import rows_of

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from pocketmq.spark.live.errors import BrokersNotRead
from pocketmq.spark.row_sender import RowsNotSent, send_rows
from pocketmq.spark.rows import Rows
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.writer_options import WriterOptions

BODY = StructType([StructField("body", BinaryType())])
SIGNED = {"accessKey": "root", "secretKey": "root: password"}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    settings = [f"--set={setting}" for setting in (*AUTHENTICATION, "autoCreateTopicEnable=true")]
    ports = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")
    with Running("serve", "--ephemeral", *ports, *settings) as server:
        yield server.wait_for(r"name server listening on (\S+:\d+)")[1]


def write(namesrv: str, **credentials: str) -> int:
    given = {"namesrv": namesrv, "topic": "T", "timeout": "5", **credentials}
    parsed = WriterOptions.parse(given, streaming=False)
    batch = pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(100)]})
    return send_rows(iter([batch]), Rows("T", most_messages=50, most_bytes=1 << 20), parsed)


def read(namesrv: str, **credentials: str) -> list[int]:
    asked = {"namesrv": namesrv, "subscribe": "T", "timeout": "5", **credentials}
    reader = RocketMQDataSource(asked).reader(BODY)
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return sorted(int(row["body"]) for row in rows_of(batches))


def test_signed_rows_are_written_and_read(namesrv: str) -> None:
    assert write(namesrv, **SIGNED) == 100
    assert read(namesrv, **SIGNED) == list(range(100))


@pytest.mark.parametrize("given", [{}, SIGNED | {"secretKey": "another-secret"}])
def test_the_broker_refuses_other_requests(namesrv: str, given: dict[str, str]) -> None:
    with pytest.raises(RowsNotSent) as unsent:
        write(namesrv, retries="0", **given)
    with pytest.raises(BrokersNotRead) as unread:
        read(namesrv, **given)
    for error in (unsent, unread):
        assert "NO_PERMISSION" in str(error.value)
        assert "secret" not in str(error.value)


@pytest.fixture
def secured() -> Iterator[str]:
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    ports = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")
    options = (*ports, "--set=autoCreateTopicEnable=true", *settings)
    with Running("serve", "--ephemeral", *options) as server:
        yield server.wait_for(r"name server listening on (\S+:\d+)")[1]


def test_a_stream_takes_only_the_right_to_read_its_topics(secured: str) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    namesrv = secured
    write(namesrv, **ROOT)
    with Admin(namesrv=namesrv, credentials=Credentials(*ROOT.values())) as admin:
        (broker,) = admin.cluster_info().broker_addr_table.values()
    user = User("reader", "secret of the reader")
    resources = "Topic:T", "Group:TOOLS_CONSUMER"
    asyncio.run(create_user(broker.broker_addrs[0], user, *resources, actions=["Sub"]))
    signed = {"accessKey": user.username, "secretKey": user.password}
    asked = {"namesrv": namesrv, "subscribe": "T", "startingOffsets": "earliest", **signed}
    reader = RocketMQDataSource(asked).streamReader(BODY)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    found = (row for part in reader.partitions(start, end) for row in rows_of(reader.read(part)))
    assert len(list(found)) >= 100
    assert len(read(namesrv, **signed)) >= 100
