"""Shows the progress of a long job on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def progress_bar(
    what: str, unit: Literal["bytes", "messages"] = "bytes", console: Console | None = None
) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show the progress of the block on stderr, if that is a terminal. The two functions take the
    total, and the amount done since the last call.

    `console`: where to show it instead of stderr.
    """
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ImportError:  # not in a base install
        yield lambda _: None, lambda _: None
        return
    columns = {
        "bytes": (DownloadColumn(), TransferSpeedColumn()),
        "messages": (MofNCompleteColumn(), TimeRemainingColumn()),
    }[unit]
    console = console or Console(stderr=True)
    with Progress(
        TextColumn(what),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield (
            lambda total: progress.update(task, total=total),
            lambda done: progress.advance(task, done),
        )
