"""Lines that peers cause are few, and say how many were left out."""

from __future__ import annotations

import logging

import pytest

from pocketmq.limited_log import INTERVAL, MOST_EVENTS, LimitedLog


class Lines:
    """A `LimitedLog` by a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = LimitedLog(logging.getLogger("lines"), clock=lambda: self.now)


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_one_warning_for_a_cause_and_then_how_many_were_left_out(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        lines.log.warning("client %d sent rubbish", number)
    assert caplog.messages == ["client 0 sent rubbish"]
    lines.now += INTERVAL
    lines.log.warning("client %d sent rubbish", 1000)
    lines.log.warning("client %d sent rubbish", 1001)
    assert caplog.messages[1:] == ["client 1000 sent rubbish (similar lines suppressed: 999)"]
    lines.now += INTERVAL
    lines.log.warning("client %d sent rubbish", 1002)
    assert caplog.messages[2:] == ["client 1002 sent rubbish (similar lines suppressed: 1)"]


def test_causes_do_not_hide_each_other(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        lines.log.warning("a")
        lines.log.error("b")
        lines.log.warning("c", cause="one")
        lines.log.warning("c", cause="two")
    assert caplog.messages == ["a", "b", "c", "c"]


def test_what_is_no_fault_may_be_told_more_often(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(10 * MOST_EVENTS):
        lines.log.info("client %d joined", number)
    assert len(caplog.messages) == MOST_EVENTS


def test_a_failure_is_logged_with_its_traceback_and_place(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise LookupError("on purpose")
    except LookupError:
        lines.log.exception("it failed", extra={"mq_topic": "T"})
    (record,) = caplog.records
    assert "on purpose" in caplog.text
    assert record.funcName == "test_a_failure_is_logged_with_its_traceback_and_place"
    assert record.__dict__["mq_topic"] == "T"


def test_causes_without_number_cause_few_lines(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5000):
        lines.log.warning("x", cause=number)
    assert len(caplog.messages) == 1001  # a thousand, and one for all the others
    lines.now += INTERVAL
    caplog.clear()
    for number in range(4998, 15_000):
        lines.log.warning("x", cause=number)
    assert caplog.messages[:2] == ["x", "x"]
    assert len(caplog.messages) <= 1002


def test_what_is_logged_in_each_interval_keeps_its_count(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    lines.log.warning("x", cause="first")
    for number in range(999):
        lines.log.warning("x", cause=number)
    lines.now += INTERVAL
    lines.log.warning("x", cause="first")
    lines.log.warning("x", cause="first")
    for number in range(1000, 1999):
        lines.log.warning("x", cause=number)
    lines.now += INTERVAL
    caplog.clear()
    lines.log.warning("x", cause="first")
    assert caplog.messages == ["x (similar lines suppressed: 1)"]


def test_a_line_is_short_and_one_line_whatever_a_peer_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = LimitedLog(logging.getLogger("test"))
    limited.warning("group %s: %s left", "g" * 1_000_000, "c")
    limited.warning("%s is new", "c\n2026-01-01 all is well")
    limited.warning("cannot do it: %s", ValueError("v" * 1_000_000))
    assert [len(message) < 2_100 for message in caplog.messages] == [True] * 3
    assert not any("\n" in message for message in caplog.messages)
