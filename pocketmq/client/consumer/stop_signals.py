"""SIGTERM and SIGINT as requests to stop: the first one drains, the second one cancels."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Requests:
    """Distinguishes the first request to stop from further ones."""

    def __init__(
        self, stop: Callable[[], object], hurry: Callable[[], object], *, enabled: bool = True
    ) -> None:
        self._stop = stop
        self._hurry = hurry
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._asked = False

    def _requested(self) -> None:
        if self._asked:
            self._hurry()
        else:
            self._asked = True
            self._stop()


class StopSignals(_Requests):
    """A context in which the first signal calls `stop`, and each further one `hurry`, in the loop.

    Consumers in one loop share its handlers: a signal is a request to each of them. Signals that
    the program handles or ignores itself are not touched; nor is any signal outside the main thread
    or in an event loop that cannot handle signals.
    """

    def __enter__(self) -> Self:
        if self._enabled:
            loop = asyncio.get_running_loop()
            self._handlers = _handlers_of.setdefault(loop, _LoopHandlers(loop))
            self._handlers.add(self._requested)
        return self

    def __exit__(self, *error: object) -> None:
        if self._enabled:
            self._handlers.remove(self._requested)


class _LoopHandlers:
    """The signal handlers in one event loop, installed while there are callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: list[Callable[[], None]] = []
        self._before: dict[signal.Signals, Any] = {}

    def add(self, told: Callable[[], None]) -> None:
        self._told.append(told)
        if len(self._told) == 1:
            self._before = _replaced(self._handle)

    def remove(self, told: Callable[[], None]) -> None:
        self._told.remove(told)
        if self._told:
            return
        for number in self._before:
            self._loop.remove_signal_handler(number)
        _restore(self._before)
        del _handlers_of[self._loop]

    def _handle(self, number: signal.Signals) -> bool:
        try:
            self._loop.add_signal_handler(number, self._tell)
        except (NotImplementedError, RuntimeError, ValueError):
            return False
        return True

    def _tell(self) -> None:
        for told in tuple(self._told):
            told()


#: The handlers that are installed: asyncio does not tell whose handler a signal has.
_handlers_of: dict[asyncio.AbstractEventLoop, _LoopHandlers] = {}


class PlainStopSignals(_Requests):
    """The same without an event loop, for a main thread that waits for another thread."""

    def __enter__(self) -> Self:
        self._before = _replaced(self._handle) if self._enabled else {}
        return self

    def __exit__(self, *error: object) -> None:
        _restore(self._before)

    def _handle(self, number: signal.Signals) -> bool:
        signal.signal(number, lambda *_: self._requested())
        return True


def _replaced(handle: Callable[[signal.Signals], bool]) -> dict[signal.Signals, Any]:
    """Install `handle` for the signals that the program does not handle itself; return the
    previous handlers of the replaced ones."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    return {
        number: handler
        for number, handler in before.items()
        if _is_default(handler) and handle(number)
    }


def _restore(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _is_default(handler: Any) -> bool:
    """Return whether the program has no handler for the signal; that of asyncio.run for SIGINT does
    not count."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    return handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(
        getattr(handler, "__self__", None), asyncio.Runner
    )
