"""An error that is raised later than it was caught, such as the last one of several attempts."""

from __future__ import annotations

from typing import Generic, TypeVar

E = TypeVar("E", bound=BaseException)


class HeldError(Generic[E]):
    """Holds an error until it is raised: `raise held.take()`.

    If a function raises an error that its own variable holds, the variable and the error's
    traceback form a cycle: request, connection and all other variables stay until the garbage
    collector runs.
    """

    __slots__ = ("_error",)

    def __init__(self, error: E) -> None:
        self._error: E | None = error

    def take(self) -> E:
        """Return the error, and hold it no longer. Once only."""
        error, self._error = self._error, None
        assert error is not None
        return error
