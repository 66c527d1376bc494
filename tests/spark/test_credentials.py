"""Reads and writes at a cluster that wants signatures, as workers call them, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from pocketmq.auth.users import User
from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import RemotingError
from pocketmq.sync import Admin
from tests.cli.running import Running
from tests.cli.test_credentials import AUTHENTICATION
from tests.interop.harness.secured import ROOT, SETTINGS, create_user_with
from tests.spark.test_group_offsets import progress
from tests.store.made_store import rows_of

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from pocketmq.spark import GroupOffsets
from pocketmq.spark.live.errors import BrokersNotRead, QueueNotRead
from pocketmq.spark.options.writer_options import WriterOptions
from pocketmq.spark.rows import Rows
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.writing.row_sender import RowsNotSent, send_rows

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


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    """A cluster with access lists, the topic T with messages, and the group G."""
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    ports = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")
    options = (*ports, "--set=autoCreateTopicEnable=true", *settings)
    with Running("serve", "--ephemeral", *options) as server:
        namesrv = server.wait_for(r"name server listening on (\S+:\d+)")[1]
        write(namesrv, **ROOT)
        GroupOffsets("G", namesrv=namesrv, **ROOT).commit(progress(1))
        yield namesrv


def stream(namesrv: str, **signed: str) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    asked = {"namesrv": namesrv, "subscribe": "T", "startingOffsets": "earliest", **signed}
    reader = RocketMQDataSource(asked).streamReader(BODY)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    found = (row for part in reader.partitions(start, end) for row in rows_of(reader.read(part)))
    assert len(list(found)) >= 100


def read_all(namesrv: str, **signed: str) -> None:
    asked = {"namesrv": namesrv, "timeout": "5", **signed}
    reader = RocketMQDataSource(asked).reader(BODY)
    assert len([row for part in reader.partitions() for row in rows_of(reader.read(part))]) >= 100


def commit(namesrv: str, **signed: str) -> None:
    GroupOffsets("G", namesrv=namesrv, **signed).commit(progress(2))


READ = [("Topic:T", "Sub"), ("Group:TOOLS_CONSUMER", "Sub")]
LIST = ("Cluster:*", "Get")
COMMIT = [("Group:G", "Sub"), ("Topic:T", "Sub"), LIST]


@pytest.mark.parametrize(
    ("job", "grants"),
    [
        (read, READ),
        (stream, READ),
        (read_all, [("Topic:*", "Sub"), ("Group:TOOLS_CONSUMER", "Sub"), LIST]),
        (write, [("Topic:T", "Pub")]),
        (commit, COMMIT),
    ],
)
def test_each_job_takes_the_grants_that_spark_md_lists(
    secured: str, job: Callable[..., object], grants: list[tuple[str, str]]
) -> None:
    """No more than these, and not one less."""
    with Admin(namesrv=secured, credentials=Credentials(*ROOT.values())) as admin:
        (broker,) = admin.cluster_info().broker_addr_table.values()
    user = User("reader", "secret of the reader")

    def grant(given: list[tuple[str, str]]) -> None:
        actions: dict[str, list[str]] = {}
        for resource, action in given:
            actions.setdefault(resource, []).append(action)
        asyncio.run(create_user_with(broker.broker_addrs[0], user, actions))

    signed = {"accessKey": user.username, "secretKey": user.password}
    if job is write:
        signed["retries"] = "0"
    grant(grants)
    job(secured, **signed)
    for missing in grants:
        grant([each for each in grants if each != missing])
        with pytest.raises(
            (BrokersNotRead, QueueNotRead, RowsNotSent, RemotingError), match="NO_PERMISSION"
        ):
            job(secured, **signed)
