"""Delayed messages whose destination cannot be written: they wait longer, the others do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.message.limits import SCHEDULE_TOPIC
from tests.broker.delayed_broker import DelayedBroker, broker, time, unwritable
from tests.fake_time import FakeTime

__all__ = ["broker", "time", "unwritable"]


def waiting(broker: DelayedBroker, level: int) -> list[bytes]:
    """The bodies in the queue of a level, those delivered as well."""
    return broker.bodies(SCHEDULE_TOPIC, level - 1)


async def test_it_does_not_hold_up_those_behind_it(
    broker: DelayedBroker, time: FakeTime, caplog: pytest.LogCaptureFixture, unwritable: list[str]
) -> None:
    broker.send(b"stuck", topic="Stuck", queue_id=3, DELAY="1", TAGS="A")
    broker.send(b"behind", DELAY="1")
    time.advance(1_000)
    assert broker.bodies() == [b"behind"]
    assert waiting(broker, 2) == [b"stuck"]
    assert len([line for line in caplog.messages if "topic Stuck: a delayed message" in line]) == 1

    time.advance(4_999)  # tried once more with level 2, then with level 3
    assert waiting(broker, 3) == []
    time.advance(1)
    assert waiting(broker, 3) == [b"stuck"]
    unwritable.clear()
    time.advance(10_000)
    [record] = broker.records("Stuck", 3)
    assert record.properties == {
        "UNIQ_KEY": "stuck",
        "DELAY": "3",
        "TAGS": "A",
        "REAL_TOPIC": "Stuck",
        "REAL_QID": "3",
    }
    time.advance(7_200_000)
    assert broker.bodies("Stuck", 3) == [b"stuck"]
    assert time.sleeping == 0


@pytest.mark.usefixtures("unwritable")
async def test_it_survives_a_restart(broker: DelayedBroker, time: FakeTime) -> None:
    broker.send(b"stuck", topic="Stuck", DELAY="1")
    time.advance(1_000)
    await broker.stop()
    async with DelayedBroker(broker.root, time) as again:
        time.advance(5_000)
        assert waiting(again, 2) == [b"stuck"]
        assert waiting(again, 3) == [b"stuck"]


async def test_at_the_highest_level_it_stays(
    tmp_path: Path, time: FakeTime, unwritable: list[str]
) -> None:
    async with DelayedBroker(tmp_path, time, message_delay_level="1s 1m") as broker:
        broker.send(b"stuck", topic="Stuck", DELAY="2")
        time.advance(3 * 60_000)
        assert waiting(broker, 2) == [b"stuck"] * 4
        unwritable.clear()
        time.advance(60_000)
        assert broker.bodies("Stuck") == [b"stuck"]


async def test_the_queue_of_the_longer_level_can_not_get_a_file_either(
    broker: DelayedBroker, time: FakeTime, unwritable: list[str]
) -> None:
    unwritable.append(f"{SCHEDULE_TOPIC}/1")
    broker.send(b"stuck", topic="Stuck", DELAY="1")
    broker.send(b"behind", DELAY="1")
    time.advance(1_000)
    assert broker.bodies() == [b"behind"]
    unwritable.clear()
    time.advance(1_000)
    assert broker.bodies("Stuck") == [b"stuck"]


async def test_a_store_that_refuses_all_keeps_the_order(
    broker: DelayedBroker, time: FakeTime, unwritable: list[str]
) -> None:
    unwritable.clear()
    for body in (b"1", b"2", b"3"):
        broker.send(body, DELAY="1")
    broker.store.refuse("the disk is full")
    time.advance(5_000)
    broker.store.accept()
    time.advance(1_000)
    assert broker.bodies() == [b"1", b"2", b"3"]
    assert waiting(broker, 2) == []
