"""The sending of a task's rows, to a real broker but without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pocketmq.testing import RocketMQ
from tests.client.simulation import differ_most

pytest.importorskip("pyspark")

from pocketmq.spark.options.writer_options import WriterOptions
from pocketmq.spark.rows import RowError, Rows
from pocketmq.spark.writing.row_sender import RowsNotSent, send_rows


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def numbered(*numbers: int) -> Any:
    return batch(body=[b"%d" % number for number in numbers])


def send(server: RocketMQ, batches: Iterator[Any], **options: str) -> int:
    parsed = WriterOptions.parse(
        {"namesrv": server.namesrv, "topic": "T", **options}, streaming=False
    )
    rows = Rows("T", most_messages=parsed.batch_messages, most_bytes=parsed.batch_bytes)
    return send_rows(batches, rows, parsed)


def bodies(server: RocketMQ) -> list[bytes]:
    return [message.body for message in server.sync.drain("T")]


def test_all_rows_arrive_and_are_counted(rocketmq: RocketMQ) -> None:
    batches = [numbered(*range(1000 * n, 1000 * (n + 1))) for n in range(5)]
    assert send(rocketmq, iter(batches), batchMessages="70") == 5000
    assert sorted(map(int, bodies(rocketmq))) == list(range(5000))


def test_any_thousand_rows_are_spread_evenly(rocketmq: RocketMQ) -> None:
    rocketmq.sync.create_topic("T", queues=4)
    sizes = st.lists(st.sampled_from([3, 40, 250, 700]), min_size=1, max_size=5)

    @settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
    @given(sizes, st.sampled_from([10, 64, 1000]))
    def spread(sizes: list[int], batch_messages: int) -> None:
        numbers = count()
        parts: list[Any] = []
        for size in cycle(sizes):
            parts.append(numbered(*islice(numbers, size)))
            if sum(map(len, parts)) >= 1200:
                break
        sent = send(rocketmq, iter(parts), batchMessages=str(batch_messages))
        stored = sorted(rocketmq.sync.drain("T"), key=lambda message: int(message.body))
        used = [message.queue_id for message in stored]
        assert len(used) == sent
        largest = min(max(sizes), batch_messages)
        assert differ_most(used, range(4), len(used)) <= largest
        # The first of a thousand may find one queue ahead by a request, the last another.
        assert differ_most(used, range(4), 1000) <= 2 * largest

    spread()


def test_without_rows_nobody_is_asked() -> None:
    nowhere = WriterOptions.parse({"namesrv": "127.0.0.1:1", "timeout": "0.1"}, streaming=False)
    rows = Rows("T", most_messages=1, most_bytes=1)
    assert send_rows(iter([]), rows, nowhere) == 0
    assert send_rows(iter([numbered(), numbered()]), rows, nowhere) == 0


def test_rows_of_one_key_stay_in_order_in_one_queue(rocketmq: RocketMQ) -> None:
    rocketmq.sync.create_topic("T", queues=3)
    keys = [None if n % 5 == 0 else f"k{n % 4}" for n in range(400)]
    table = pa.table({"body": [b"%d" % n for n in range(400)], "shardingKey": keys})
    send(rocketmq, iter(table.to_batches(max_chunksize=90)), batchMessages="20")
    stored: dict[str | None, list[Any]] = {}
    for message in rocketmq.sync.drain("T"):
        stored.setdefault(keys[int(message.body)], []).append(message)
    assert sum(map(len, stored.values())) == 400
    for key in set(keys) - {None}:
        assert len({message.queue_id for message in stored[key]}) == 1
        numbers = [int(message.body) for message in stored[key]]
        assert numbers == [n for n in range(400) if keys[n] == key]


def test_after_a_failure_nothing_more_goes_to_that_queue(rocketmq: RocketMQ) -> None:
    rocketmq.sync.create_topic("T", queues=1)
    rows = batch(body=[b"%d" % n for n in range(10)], shardingKey=[1] * 10)
    requests = count()
    with (
        rocketmq.fail(
            "SEND_BATCH_MESSAGE",
            "MESSAGE_ILLEGAL",
            when=lambda request: next(requests) == 1,
        ),
        pytest.raises(RowsNotSent, match=r"2 rows from 2 on \(topic T\) not sent: .*made to fail"),
    ):
        send(rocketmq, iter([rows]), batchMessages="2", retries="0")
    assert bodies(rocketmq) == [b"0", b"1"]


def test_delayed_rows_go_one_by_one(rocketmq: RocketMQ) -> None:
    rows = batch(body=[b"0", b"1", b"2"], delayLevel=[None, 1, 0], shardingKey=["k", "k", None])
    assert send(rocketmq, iter([rows])) == 3
    assert sorted(bodies(rocketmq)) == [b"0", b"2"]
    rocketmq.sync.advance(1)
    assert bodies(rocketmq) == [b"1"]


def test_a_failed_attempt_is_repeated(rocketmq: RocketMQ) -> None:
    with rocketmq.fail("SEND_BATCH_MESSAGE", "SYSTEM_BUSY", times=1):
        send(rocketmq, iter([numbered(0, 1)]))
    assert bodies(rocketmq) == [b"0", b"1"]


def test_a_broker_that_takes_nothing(rocketmq: RocketMQ) -> None:
    with (
        rocketmq.fail("SEND_BATCH_MESSAGE", "SYSTEM_BUSY"),
        pytest.raises(
            RowsNotSent, match=r"3 rows from 0 on \(topic T\) not sent: 3 of 3"
        ) as caught,
    ):
        send(rocketmq, iter([numbered(0, 1, 2)]), timeout="0.2")
    assert caught.value.rows == (0, 1, 2)


def test_no_broker_for_a_sharding_key() -> None:
    options = WriterOptions.parse(
        {"namesrv": "127.0.0.1:1", "topic": "T", "timeout": "0.2"}, streaming=False
    )
    rows = Rows("T", most_messages=10, most_bytes=100)
    with pytest.raises(RowsNotSent, match=r"row 0 \(topic T\) not sent: .*name server"):
        send_rows(iter([batch(body=[b"0"], shardingKey=["k"])]), rows, options)


@pytest.mark.parametrize("shard", [None, "k"])
@pytest.mark.parametrize("delay", [0, 1])
def test_a_wrong_row_is_named(rocketmq: RocketMQ, shard: str | None, delay: int) -> None:
    rows = batch(
        body=[b"0", b"1", b"2"],
        tags=["a", "b", "c||d"],
        shardingKey=[shard] * 3,
        delayLevel=[0, 0, delay],
    )
    with pytest.raises(RowError, match=r"row 5 \(topic T\): tags must be one tag, not 'c\|\|d'"):
        send(rocketmq, iter([numbered(0, 1, 2), rows]))


def test_an_upstream_that_fails(rocketmq: RocketMQ) -> None:
    def batches() -> Iterator[Any]:
        yield numbered(0)
        raise ZeroDivisionError("upstream")

    with pytest.raises(ZeroDivisionError, match="upstream"):
        send(rocketmq, batches())


def test_spark_is_asked_for_no_more_while_enough_is_under_way(rocketmq: RocketMQ) -> None:
    rocketmq.sync.create_topic("T")
    taken: list[int] = []

    def batches() -> Iterator[Any]:
        for number in range(30):
            taken.append(number)
            yield numbered(0, 1)

    with ThreadPoolExecutor() as threads, rocketmq.hold("SEND_BATCH_MESSAGE") as held:
        sending = threads.submit(send, rocketmq, batches(), batchesInFlight="2")
        held.wait(2)
        with pytest.raises(TimeoutError):  # nothing tells that a third does not come
            held.wait(3, timeout=0.2)
        assert taken == [0, 1, 2]  # the third waits for a place
        held.release()
        assert sending.result() == 60


def test_the_queue_of_a_key_is_the_selectors(rocketmq: RocketMQ) -> None:
    rocketmq.sync.create_topic("T", queues=8)
    found = {}
    for selector in ("hash", "consistent"):
        keys = [f"k{n}" for n in range(40)]
        rows = batch(body=[key.encode() for key in keys], shardingKey=keys)
        send(rocketmq, iter([rows]), queueSelector=selector)
        found[selector] = {m.body: m.queue_id for m in rocketmq.sync.drain("T")}
    assert found["hash"] != found["consistent"]
    assert found["hash"][b"k0"] == 3365 % 8  # "k0".hashCode() of Java is 107 * 31 + 48
