"""Half messages that cannot be put again, or bring along what an earlier life left in them: the
checks go on behind them, and their producers are asked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.limits import TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.store.files import Files, MappedFile
from tests.broker.transacting import (
    ROLLBACK,
    SECOND,
    Clock,
    Producer,
    broker,
    clock,
    halves,
    produce,
    producer,
    records,
    start_clocked,
)

__all__ = ["broker", "clock", "produce", "producer", "start_clocked"]


async def asked(producer: Producer, broker: Broker) -> list[bytes]:
    return [bytes(check.half.body) for check in await producer.asked(broker)]


@pytest.mark.parametrize("immunity", [{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}])
async def test_a_half_message_without_room_for_a_property_does_not_hold_up_the_others(
    broker: Broker,
    producer: Producer,
    clock: Clock,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    immunity: dict[str, str],
) -> None:
    # What the broker adds to a send fits, what it adds to a copy does not.
    own = {"X": "x" * (32_767 - 260), **immunity}
    room = 32_767 - await length(broker, producer, clock, topic, own)
    own["X"] += "x" * room
    await producer.begin(topic, clock, b"full", **own)
    await producer.begin(topic, clock, b"behind")
    clock.forward(10 * SECOND)
    checks = await producer.asked(broker)
    assert [bytes(check.half.body) for check in checks] == [b"full", b"behind"]
    assert "cannot be stored again" in caplog.text

    clock.forward(60 * SECOND)
    assert await asked(producer, broker) == [b"behind"]
    await producer.end(checks[0].place, from_transaction_check=True)
    assert [bytes(record.body) for record in records(broker, topic)] == [b"full"]


async def length(
    broker: Broker, producer: Producer, clock: Clock, topic: str, own: dict[str, str]
) -> int:
    """Bytes of the properties of a half message with these of its producer's."""
    half = await producer.begin(topic, clock, b"trial", **own)
    await producer.end(half, ROLLBACK)
    return len(halves(broker)[-1].properties_text.encode())


async def test_a_smaller_limit_of_size_is_for_those_that_come_then(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    await producer.begin(topic, clock, b"l" * 2000)
    await producer.begin(topic, clock, b"behind")
    broker.config.max_message_size = 1024  # an admin may change it
    for _ in range(2):
        clock.forward(60 * SECOND)
        assert await asked(producer, broker) == [b"l" * 2000, b"behind"]


async def test_the_queue_of_those_given_up_can_not_get_a_file(
    broker: Broker,
    producer: Producer,
    clock: Clock,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def create(files: Files, path: Path, *rest: Any, **more: Any) -> MappedFile:
        if TRANS_CHECK_MAX_TIME_TOPIC in str(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return original(files, path, *rest, **more)

    original = Files.create
    monkeypatch.setattr(Files, "create", create)
    await producer.begin(topic, clock, b"old")
    clock.forward(80 * 3600 * SECOND)
    await producer.begin(topic, clock, b"behind")
    clock.forward(10 * SECOND)
    assert await asked(producer, broker) == [b"behind"]

    monkeypatch.undo()
    clock.forward(10 * SECOND)
    assert await asked(producer, broker) == [b"behind"]
    assert [bytes(r.body) for r in records(broker, TRANS_CHECK_MAX_TIME_TOPIC)] == [b"old"]


async def test_a_message_sent_on_as_it_was_consumed_is_a_transaction_of_its_own(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    first = await producer.begin(topic, clock, b"first")
    await producer.end(first)
    # All properties of a committed one that was asked about before go along.
    await producer.begin(
        topic,
        clock,
        b"second",
        TRAN_PREPARED_QUEUE_OFFSET=str(first.queue_offset),
        TRANSACTION_CHECK_TIMES="15",
    )
    clock.forward(10 * SECOND)
    [check] = await producer.asked(broker)
    assert bytes(check.half.body) == b"second"
    assert check.half.properties["TRANSACTION_CHECK_TIMES"] == "1"
