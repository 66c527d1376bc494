"""Readers of a store to which anything may happen."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from tests.tables import reader_machine


@pytest.mark.parametrize("lost", [b"6", b"9"])
@pytest.mark.parametrize("reader", ["export", "read_files", "read_broker"])
def test_a_message_that_a_repair_found_lost_is_said_to_be_missing(reader: str, lost: bytes) -> None:
    readers = reader_machine.Readers()
    readers.begin(live=0)

    def read() -> None:
        if reader == "export":
            readers.export(killed="")
        else:
            getattr(readers, reader)(killed=False)

    try:
        for _ in range(2):
            readers.send(topic="T", queue_id=0, count=6, far=False)
            if lost in readers.sent:
                readers.lose(lost)
            read()
    finally:
        readers.teardown()


def test_every_message_is_read_once_or_said_to_be_missing() -> None:
    reader_machine.run(examples=25, steps=25)
