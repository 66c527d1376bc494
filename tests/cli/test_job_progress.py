"""The progress of Spark jobs, with what Spark tells made up."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from pocketmq.cli.stored.job_progress import job_progress, tasks


class Tracker:
    """Two stages that run, and one that has ended since it was listed. `asked` is set by a look at
    them."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)

    def getActiveStageIds(self) -> list[int]:
        self.asked.release()
        return [1, 2, 3]

    def getStageInfo(self, stage: int) -> Any:
        if stage == 3:
            return None
        return SimpleNamespace(numTasks=10 * stage, numCompletedTasks=stage)


def test_tasks_of_all_running_stages_count() -> None:
    tracker: Any = Tracker()
    assert tasks(tracker) == (3, 30)


def test_a_terminal_shows_them() -> None:
    tracker: Any = Tracker()
    screen = io.StringIO()
    with job_progress(tracker, Console(file=screen, force_terminal=True, width=80), seconds=0.001):
        tracker.asked.acquire()
        tracker.asked.acquire()  # what the look before has found is shown
    assert "3/30" in screen.getvalue()


def test_what_is_not_a_terminal_stays_clean() -> None:
    tracker: Any = Tracker()
    output = io.StringIO()
    with job_progress(tracker, Console(file=output), seconds=0.001):
        pass
    assert output.getvalue() == ""
    assert not tracker.asked.acquire(blocking=False)
