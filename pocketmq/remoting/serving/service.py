"""Runs a server as a process: event loop, signals, exit codes.

`namesrv`, `broker` and the embedded server all start through `run`; they differ in one coroutine
that starts the server, waits for the stop event and stops the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial

from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.stop_deadline import StopDeadline
from pocketmq.remoting.settings.properties_file import ConfigError

log = logging.getLogger("pocketmq.remoting.serving.service")


#: How long a process whose servers have stopped waits for tasks and threads that they left.
LEAVING_SECONDS = 5.0


class ExitCode(enum.IntEnum):
    """The exit codes of a process. 130 and 143 (128 + signal) mean that it was interrupted."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 3
    PORT_IN_USE = 4
    STORE_LOCKED = 5
    STORE_CORRUPT = 6
    UNAVAILABLE = 7


class StopEvent(asyncio.Event):
    """Set by the first SIGINT or SIGTERM. `exit_code` is 128 + its number, 0 before.

    When it is set, the time of `deadline` begins.
    """

    exit_code = 0

    def __init__(self, deadline: StopDeadline | None = None) -> None:
        super().__init__()
        self._deadline = deadline

    def set(self) -> None:
        """Let `main` stop."""
        if self._deadline is not None and not self.is_set():
            self._deadline.begin(self.exit_code or ExitCode.FAILURE)
        super().set()

    def stop(self, number: int) -> None:
        """Note that the signal has come."""
        self.exit_code = 128 + number
        self.set()


_KNOWN_ERRORS: dict[type[Exception], ExitCode] = {
    ConfigError: ExitCode.CONFIG,
    PortInUse: ExitCode.PORT_IN_USE,
    CannotListen: ExitCode.UNAVAILABLE,
}

_LEFT = (
    "what the servers left running has not ended within %g s after them, so the process ends "
    "without it"
)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def event_loop_factory() -> LoopFactory | None:
    """Return uvloop's factory where it is installed (no Windows build exists), else `None` for
    asyncio's.
    """
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def run(
    main: Callable[[StopEvent], Awaitable[None]],
    *,
    exit_codes: Mapping[type[Exception], ExitCode] | None = None,
    stop_seconds: float | None = None,
) -> int:
    """Run `main(stop)` to its end and returns the exit code of the process.

    `stop` is set by the first SIGINT or SIGTERM; `main` then ends by itself, in its own time. A
    second signal cancels it, and the exit code is 128 + signal.

    Args:
        exit_codes: the caller's own expected errors. Such an error, like a bad configuration or a
            taken port, ends as one plain line on stderr and its exit code. Any other exception is
            logged with its traceback and gives `ExitCode.FAILURE`.
        stop_seconds: the whole process ends when it has not stopped so long after `stop` was set,
            with 128 + signal, or `ExitCode.FAILURE` without one. Also when tasks or threads still
            run `LEAVING_SECONDS` after `main` has ended, with its exit code. None: there is no
            limit.
    """
    expected = {**_KNOWN_ERRORS, **(exit_codes or {})}
    deadline = None if stop_seconds is None else StopDeadline(stop_seconds)
    leaving = StopDeadline(LEAVING_SECONDS, _LEFT)
    try:
        with _server_gc(), asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            code = _exit_code(runner, _run_until_stopped(main, deadline), expected)
            if deadline is not None:
                leaving.begin(code)
            return code
    finally:
        # Only now: the runner waits for tasks that ignore their end, and for threads.
        leaving.cancel()
        if deadline is not None:
            deadline.cancel()


def _exit_code(
    runner: asyncio.Runner,
    main: Coroutine[None, None, int],
    expected: Mapping[type[Exception], ExitCode],
) -> int:
    try:
        return runner.run(main)
    except tuple(expected) as error:
        print(f"error: {error}", file=sys.stderr)
        return next(code for kind, code in expected.items() if isinstance(error, kind))
    except Exception:
        log.exception("stopped by an unexpected error")
        return ExitCode.FAILURE


async def _run_until_stopped(
    main: Callable[[StopEvent], Awaitable[None]], deadline: StopDeadline | None
) -> int:
    stop = StopEvent(deadline)
    task = asyncio.ensure_future(_as_coroutine(main(stop)))
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            log.info("%s: stopping", signal.Signals(number).name)
            stop.stop(number)
        else:
            task.cancel()

    def on_receipt(number: int, _: object) -> None:
        # The event loop notices only after its current work, such as recovering a store.
        if deadline is not None:
            deadline.begin(128 + number)

    with _signals_to(on_signal, on_receipt):
        try:
            await task
        except asyncio.CancelledError:
            if len(received) < 2:
                raise
            return 128 + received[-1]
    return ExitCode.OK


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


@contextlib.contextmanager
def _signals_to(
    handler: Callable[[int], None], received: Callable[[int, object], None]
) -> Iterator[None]:
    """Route SIGINT and SIGTERM to `handler` on the loop, as far as this thread may. `received` is
    called before that, between bytecodes of the main thread."""
    loop = asyncio.get_running_loop()
    undo: list[Callable[[], object]] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, handler, number)
            # Replaces the loop's own, which does nothing: the loop reads the signal from a pipe.
            signal.signal(number, received)
            undo.append(partial(loop.remove_signal_handler, number))
        except NotImplementedError:
            # Windows: the plain handler runs between bytecodes of the main thread.
            previous = signal.signal(
                number, lambda number, _: loop.call_soon_threadsafe(handler, number)
            )
            undo.append(partial(signal.signal, number, previous))
        except (RuntimeError, ValueError):
            log.debug("signals are left alone: not in the main thread")
    try:
        yield
    finally:
        for action in undo:
            action()


@contextlib.contextmanager
def _server_gc() -> Iterator[None]:
    """Make garbage collections fewer and cheaper: a server makes few cycles but many live objects.

    What is loaded by now (modules, classes) will never be garbage, so no collection looks at it
    again; and young collections come after ten thousand new objects instead of 700, the next larger
    ones, which stop the server for some 10 ms if all these objects live, after twenty thousand: a
    client that creates five hundred topics a second makes that many in two seconds.
    The little garbage from loading stays as well: finding it takes 10 of the 150 ms of a broker's
    start.
    """
    thresholds = gc.get_threshold()
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.set_threshold(10_000, 1, 2_500)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not was_enabled:
            gc.disable()
        gc.unfreeze()
