"""Whether a server is alive and ready, for orchestrators.

Alive: the process runs, and its event loop is not blocked. Ready: clients should connect. A server
that is not alive should be restarted; one that is not ready has a reason, which may be temporary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

#: A readiness check: returns the reason for not being ready, if any.
Condition = Callable[[], str | Sequence[str]]

STARTING = "the server is starting"
STOPPING = "the server is stopping"


class Answer(NamedTuple):
    """Whether all is well, and the reasons if not."""

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
        """Note that the server opens its files, which may block its event loop for minutes."""
        return self._state == STARTING

    def starting(self, progress: Condition) -> None:
        """Show the text of `progress` until the server has started; it is called on any thread."""
        self._progress = progress

    def started(self, **conditions: Condition) -> None:
        """Note that the server listens; it is ready while no condition returns a reason."""
        self._conditions = conditions
        self._state = ""

    def stopping(self) -> None:
        """Note that the server is no longer ready, but still alive: it finishes its requests."""
        self._state = STOPPING

    def ready(self) -> Answer:
        """Return whether clients should connect. Call it on the event loop, except during the
        start."""
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
