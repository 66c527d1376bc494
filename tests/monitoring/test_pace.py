"""Pauses of long work."""

from __future__ import annotations

from pocketmq.monitoring.pace import PAUSE, WORK, Pace, paced


class Time:
    """A clock that work and pauses move; `slept` are the pauses, with the work before each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._since = 0.0

    def clock(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        assert seconds == PAUSE
        self.slept.append(self.now - self._since)
        self.now += seconds
        self._since = self.now


async def test_work_on_the_loop_pauses_after_each_millisecond() -> None:
    time = Time()

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    pace = Pace(time.clock, sleep)
    for _ in range(100):
        time.work(WORK / 4)
        await pace.breathe()
    assert len(time.slept) == 25
    assert max(time.slept) < WORK * 1.5


def test_work_in_a_thread_does_so_too_and_gets_every_item() -> None:
    time = Time()
    got = []
    for item in paced(range(100), clock=time.clock, sleep=time.sleep):
        time.work(WORK / 4)
        got.append(item)
    assert got == list(range(100))
    assert len(time.slept) == 25
