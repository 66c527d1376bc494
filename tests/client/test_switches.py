from __future__ import annotations

import logging

import pytest

from pocketmq.client.selector.switches import Switches


def test_values_of_the_table_go_over_the_local_ones() -> None:
    local = Switches(detect_interval=5000)
    table = {
        "sendLatencyEnable": "false",
        "startDetectorEnable": " True ",
        "detectTimeout": "350",
        "someoneElses": "key",
    }
    assert local.overridden(table) == Switches(
        send_latency_enable=False,
        start_detector_enable=True,
        detect_interval=5000,
        detect_timeout=350,
    )


def test_an_empty_table_changes_nothing() -> None:
    assert Switches(detect_timeout=7).overridden({}) == Switches(detect_timeout=7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sendLatencyEnable", "maybe"),
        ("detectInterval", "fast"),
        ("detectInterval", "0"),
        ("detectInterval", "-5"),
        ("detectTimeout", "99999999999"),
        ("detectTimeout", ""),
    ],
)
def test_a_bad_value_is_named_and_ignored(
    key: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert Switches().overridden({key: value, "detectTimeout": "300"} | {key: value}) in (
            Switches(),
            Switches(detect_timeout=300),
        )
    assert key in caplog.text
    assert repr(value) in caplog.text
