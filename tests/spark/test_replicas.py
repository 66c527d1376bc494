"""A master and its slave, as processes: each message is read once, from files and from brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.message import Message
from pocketmq.sync import Producer
from tests.interop.harness import ours
from tests.interop.harness.replicas import Group, wait_connected, wait_copied
from tests.store.made_store import MadeStore, rows_of

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pocketmq.spark.options.option_error import OptionError
from pocketmq.spark.source import RocketMQDataSource

BODY = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])
SENT = 3000


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Both have all messages, but the last few, which only the master has."""
    directory = tmp_path_factory.mktemp("group")
    namesrv = ours.start_name_server(directory)
    group = Group(directory, namesrv)
    group.start("ours", 0)
    group.start("ours", 1)
    wait_connected(group)
    with Producer("tests", namesrv=namesrv.address) as producer:

        def send(begin: int, end: int) -> None:
            for number in range(begin, end, 50):
                producer.send_batch(
                    [
                        Message("T", b"%d" % each + bytes(each % 1500))
                        for each in range(number, number + 50)
                    ]
                )

        send(0, SENT - 100)
        wait_copied(group)
        group.slave.process.terminate()
        send(SENT - 100, SENT)
    group.restart(1, haMasterAddress="127.0.0.1:9")
    yield group
    group.stop_all()
    namesrv.process.terminate()


def bodies(reader: DataSourceReader) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for partition in reader.partitions():
        found.update(bodies_in(reader.read(partition)))
    return found


def bodies_in(batches: Iterable[Any]) -> Iterator[bytes]:
    return (bytes(row["body"]).rstrip(b"\0") for row in rows_of(batches))


def read(**options: Any) -> Counter[bytes]:
    return bodies(RocketMQDataSource({"subscribe": "T", **options}).reader(BODY))


EACH_ONCE = Counter(b"%d" % number for number in range(SENT))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_both_stores(group: Group, order: tuple[int, int]) -> None:
    paths = ",".join(str(group.members[number].store) for number in order)
    assert read(path=paths) == EACH_ONCE
    assert read(path=paths, minPartitions="5") == EACH_ONCE


def test_brokers(group: Group) -> None:
    assert read(namesrv=group.namesrv.address) == EACH_ONCE


def test_the_files_of_the_slave_and_the_rest_from_brokers(group: Group) -> None:
    assert read(namesrv=group.namesrv.address, path=str(group.slave.store)) == EACH_ONCE


def test_a_stream_whose_master_is_killed(group: Group) -> None:
    """While tasks read, and while the driver looks for new messages. The slave lacks the last ones;
    it is never asked, and the query waits until the master is back."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    source = RocketMQDataSource(
        {
            "namesrv": group.namesrv.address,
            "subscribe": "T",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(SENT // 3),
            "maxRecordsPerPartition": str(SENT // 9),
        }
    )
    reader: Any = source.streamReader(BODY)
    found: Counter[bytes] = Counter()

    def trigger(start: dict[str, Any], kill_while: str = "") -> dict[str, Any]:
        """One trigger, and a restart of the master after some of its first or its second half."""
        with ThreadPoolExecutor(1) as pool:
            if kill_while == "looking":
                group.master.process.kill()
                restarted = pool.submit(group.restart, 0)
            end: dict[str, Any] = reader.latestOffset(start, reader.getDefaultReadLimit())
            for number, partition in enumerate(reader.partitions(start, end)):
                batches = reader.read(partition)
                if kill_while == "reading" and number == 1:
                    found.update(bodies_in([next(batches)]))
                    group.master.process.kill()
                    restarted = pool.submit(group.restart, 0)
                found.update(bodies_in(batches))
            if kill_while:
                restarted.result()
        return end

    at = trigger(reader.initialOffset())
    at = trigger(at, kill_while="reading")
    at = trigger(at, kill_while="looking")
    assert found == EACH_ONCE
    assert trigger(at) == at
    assert found == EACH_ONCE


def test_history_that_only_the_shorter_copy_has(tmp_path: Path) -> None:
    """A slave may keep files longer than its master."""
    master, slave = (MadeStore(tmp_path / name / "store", 4096) for name in ("a", "b"))
    for number in range(100):
        master.put(body=b"%d" % number)
        if number < 90:
            slave.put(body=b"%d" % number)
    paths = [master.write(), slave.write()]
    min((paths[0] / "commitlog").iterdir()).unlink()
    once = Counter(b"%d" % number for number in range(100))
    assert read(path=",".join(map(str, paths))) == once


def test_brokers_of_one_name_that_are_no_copies(tmp_path: Path) -> None:
    paths = []
    for broker in ("a", "b"):
        store = MadeStore(tmp_path / broker / "store")
        for number in range(10):
            store.put(body=f"{broker}{number}".encode())
        paths.append(str(store.write()))
    assert len(read(path=",".join(paths))) == 20


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_copies_that_end_with_other_messages_are_refused(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    """As when a master loses its newest messages in a crash, and its slave does not."""
    master, slave = (MadeStore(tmp_path / name / "store", 4096) for name in ("a", "b"))
    for number in range(100):
        master.put(queue_id=number % 3, body=b"%d" % number)
        slave.put(queue_id=number % 3, body=b"%d" % number)
    for number in range(10):
        slave.put(body=b"lost %d" % number)
    for number in range(5):
        master.put(body=b"new %d" % number)
    paths = [str(master.write()), str(slave.write())]
    with pytest.raises(OptionError, match="were copies, but end with different messages"):
        read(path=",".join(paths[number] for number in order))
    assert len(read(path=paths[0])) == 105
