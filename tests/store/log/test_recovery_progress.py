"""What a long recovery says while it goes on."""

from __future__ import annotations

import pytest

from pocketmq.store.recovery.recovery_progress import INTERVAL, SAVE_INTERVAL, RecoveryProgress
from tests.store.conftest import StoreBench

WHY = "not stopped cleanly; the checkpoint knows everything to be on the disk up to"


class Seconds:
    """A clock that goes on by `step` at each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def said(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("recovering the store")]


def test_a_line_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Seconds()
    progress = RecoveryProgress(clock=clock)
    progress.because("not stopped cleanly")
    for number in range(100):
        progress.queues(number, 100)
        clock.now += INTERVAL / 8
    assert len(said(caplog.messages)) == 12
    assert said(caplog.messages)[0] == (
        "recovering the store: 8 of 100 queues are looked at (not stopped cleanly)"
    )


def test_the_log_in_gigabytes(caplog: pytest.LogCaptureFixture) -> None:
    clock = Seconds()
    progress = RecoveryProgress(clock=clock)
    progress.because("not stopped cleanly")
    clock.now += INTERVAL
    progress.reads(1_000_000_000, 7_000_000_000)
    for position in range(1_000_000_000, 4_000_000_000, 5_000_000):
        progress.log(position)
    (line,) = said(caplog.messages)
    assert line.startswith("recovering the store: 1.2")
    assert "of 6.00 GB of the commit log are read, from physical offset 1000000000 on" in line


def test_what_somebody_who_waits_is_told() -> None:
    progress = RecoveryProgress(clock=Seconds())
    assert progress.text == ""
    progress.begin()
    assert progress.text == "recovering: 0 %"
    progress.reads(1_000, 2_000)
    progress.log_many(1_417)
    assert progress.text == "recovering: 41 %"
    progress.log_many(2_100)  # more was written than there seemed to be
    assert progress.text == "recovering: 100 %"
    progress.end()
    assert progress.text == ""


async def test_a_start_that_takes_long_says_why(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.open()
    for n in range(1000):
        assert bench.put(store, f"T{n % 20}").ok
    crashed = bench.copy("crashed")
    crashed.recovery_clock = Seconds(INTERVAL)
    slow = crashed.open()
    told = said(caplog.messages)
    assert any("of 20 queues are looked at" in line and WHY in line for line in told)
    assert any("GB of the commit log are read" in line and WHY in line for line in told)
    await slow.close()
    caplog.clear()
    crashed.recovery_clock = Seconds()
    quick = crashed.open()
    assert said(caplog.messages) == []
    await quick.close()


def test_saving_takes_a_small_share_of_the_time() -> None:
    clock = Seconds()
    progress = RecoveryProgress(clock=clock)
    progress.begin()
    clock.now = SAVE_INTERVAL
    assert progress.is_save_due(10)
    assert not progress.is_save_due(10_000)
    clock.now = 100.0
    assert progress.is_save_due(10_000)
    clock.now = 150.0
    progress.saved(10_000)
    clock.now = 640.0
    assert not progress.is_save_due(10_000)
    clock.now = 651.0
    assert progress.is_save_due(10_000)
