"""Starts a coroutine in the current task; it is awaited only if it waits."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

#: Sentinel: the coroutine has ended.
_ENDED = object()


def start(coroutine: Coroutine[Any, Any, object]) -> Awaitable[None] | None:
    """Run a coroutine until it first waits.

    Return an awaitable for the rest of it, which must be awaited at once; None if it has ended. Its
    result is lost. Raises its errors.
    """
    # Unlike `send`, this needs no exception to report the end: that saves a third of the time of a
    # coroutine that does nothing.
    waits_for = next(coroutine.__await__(), _ENDED)
    return None if waits_for is _ENDED else _rest(coroutine, waits_for)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, object], waits_for: Any) -> Generator[Any, Any, None]:
    """Continue a coroutine that waits; what it waits for was not passed to the event loop yet."""
    while True:
        try:
            yield waits_for
        except BaseException as error:  # such as a cancellation, after which it may wait again
            try:
                waits_for = coroutine.throw(error)
            except StopIteration:
                return
        else:
            yield from coroutine
            return


def begun_coroutine(awaited: object) -> object:
    """Return the coroutine whose rest is awaited, to follow a stack; None for anything else."""
    if isinstance(awaited, types.GeneratorType) and awaited.gi_code is _rest.__code__:
        return awaited.gi_frame and awaited.gi_frame.f_locals["coroutine"]
    return None
