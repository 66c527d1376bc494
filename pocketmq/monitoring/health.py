"""Whether a server is alive and ready, for orchestrators.

Alive: the process runs, and its event loop takes turns. Ready: clients should come. A server
that is not alive should be restarted; one that is not ready has a reason, which may pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

#: A condition of being ready: returns what it lacks, if it lacks anything.
Condition = Callable[[], str | Sequence[str]]

STARTING = "the server is starting"
STOPPING = "the server is stopping"


class Answer(NamedTuple):
    """Whether all is well, and what is not."""

    well: bool
    reasons: tuple[str, ...] = ()

    def text(self) -> str:
        """One line for each reason, or `ok`."""
        return "\n".join(self.reasons or ("ok",)) + "\n"


class Health:
    """The state of one server."""

    def __init__(self) -> None:
        self._state = STARTING
        self._progress: Condition = tuple
        self._conditions: Mapping[str, Condition] = {}

    @property
    def is_starting(self) -> bool:
        """The server opens its files, which may block its event loop for minutes."""
        return self._state == STARTING

    def starting(self, progress: Condition) -> None:
        """Show what `progress` says until the server has started; it is called on any thread."""
        self._progress = progress

    def started(self, **conditions: Condition) -> None:
        """The server listens; it is ready while no condition has anything to say."""
        self._conditions = conditions
        self._state = ""

    def stopping(self) -> None:
        """Not ready from now on, but still alive: requests in progress are ended."""
        self._state = STOPPING

    def ready(self) -> Answer:
        """Say whether clients should come; to be called on the event loop unless it is starting."""
        if self.is_starting:
            return Answer(False, (STARTING, *_each(self._progress())))
        if self._state:
            return Answer(False, (self._state,))
        reasons = tuple(
            f"{name}: {lack}"
            for name, condition in self._conditions.items()
            for lack in _each(condition())
        )
        return Answer(not reasons, reasons)


def _each(lacks: str | Sequence[str]) -> Sequence[str]:
    if isinstance(lacks, str):
        return (lacks,) if lacks else ()
    return lacks
