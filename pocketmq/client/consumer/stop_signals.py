"""SIGTERM and SIGINT as requests to stop: the first one drains, the second one hurries."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Requests:
    """Tells the first request to stop from the further ones."""

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
    """While it is entered, the first signal calls `stop`, each further one `hurry`, in the loop.

    Consumers that run in one loop share its handlers: a signal is a request to each of them.
    Signals that the program handles or ignores itself are left alone; so are all of them outside
    the main thread, and in event loops that cannot handle signals.
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
    """The handlers of the signals in one event loop, as long as anybody is to be told."""

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


#: A second consumer cannot see it in the signal: asyncio's handler does not say whose it is.
_handlers_of: dict[asyncio.AbstractEventLoop, _LoopHandlers] = {}


class PlainStopSignals(_Requests):
    """The same without an event loop, for a main thread that waits for another one."""

    def __enter__(self) -> Self:
        self._before = _replaced(self._handle) if self._enabled else {}
        return self

    def __exit__(self, *error: object) -> None:
        _restore(self._before)

    def _handle(self, number: signal.Signals) -> bool:
        signal.signal(number, lambda *_: self._requested())
        return True


def _replaced(handle: Callable[[signal.Signals], bool]) -> dict[signal.Signals, Any]:
    """Have `handle` take over the signals that the program does not handle itself; return the
    handlers before that, of those where it could."""
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
    """Whether nothing of the program's own handles the signal; asyncio.run handles SIGINT."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    return handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(
        getattr(handler, "__self__", None), asyncio.Runner
    )
