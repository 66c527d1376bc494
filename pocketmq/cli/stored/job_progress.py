"""Shows the progress of the jobs of a Spark session on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.status import StatusTracker
    from rich.console import Console

SECONDS: Final = 0.5
"""Seconds between two updates."""


@contextmanager
def job_progress(
    tracker: StatusTracker, console: Console, seconds: float = SECONDS
) -> Iterator[None]:
    """Show during the block how many tasks of the running stages are done. Does nothing if
    `console` is not a terminal."""
    if not console.is_terminal:
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    ended = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def follow() -> None:
            while not ended.wait(seconds):
                done, total = tasks(tracker)
                if total:
                    progress.update(bar, completed=done, total=total)

        thread = threading.Thread(target=follow, name="job-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Return the number of completed tasks of the running stages, and of all their tasks."""
    found = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
    stages = [stage for stage in found if stage is not None]  # None if it has ended
    done = sum(stage.numCompletedTasks for stage in stages)
    return done, sum(stage.numTasks for stage in stages)
