"""Readers of a store to which anything may happen."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from tests.tables import reader_machine
from tests.tables.reader_machine import Readers

pytestmark = pytest.mark.timeout(1800)  # on a loaded machine

MOST_RUNS = 300
"""For a planted mistake to be found."""


def send(readers: Readers, count: int) -> None:
    readers.send(topic="T", queue_id=0, count=count, size=5, kind=1)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("reader", ["export", "read_files", "read_broker"])
def test_a_message_that_a_repair_found_lost_is_said_to_be_missing(
    reader: str, head: bool, last: bool
) -> None:
    readers = Readers(has_broker=True)
    try:
        send(readers, 6)
        getattr(readers, reader)()
        send(readers, 4)
        readers.lose(0 if last else 3, head)
        getattr(readers, reader)()
    finally:
        readers.close()


@pytest.mark.parametrize("reader", ["export", "read_files", "read_broker"])
@pytest.mark.parametrize("count", [4, 5, 6])
def test_a_topic_that_was_made_anew_is_read_however_many_messages_it_has(
    reader: str, count: int
) -> None:
    readers = Readers(has_broker=True)
    try:
        send(readers, 5)
        getattr(readers, reader)()
        readers.delete("T")
        send(readers, count)
        getattr(readers, reader)()
    finally:
        readers.close()


def test_every_message_is_read_once_or_said_to_be_missing() -> None:
    assert reader_machine.run(50) == 50


@pytest.mark.parametrize("plant", reader_machine.PLANTS)
def test_a_planted_mistake_is_found(plant: str) -> None:
    assert reader_machine.runs_until_found(plant, MOST_RUNS)
