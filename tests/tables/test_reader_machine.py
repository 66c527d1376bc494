"""Readers of a store to which anything may happen."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from tests.tables import reader_machine


def test_every_message_is_read_once_or_said_to_be_missing() -> None:
    reader_machine.run(examples=25, steps=25)
