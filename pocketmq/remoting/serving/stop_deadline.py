"""The end of a process that does not stop by itself in time."""

from __future__ import annotations

import _thread
import logging
import os
import threading

log = logging.getLogger("pocketmq.remoting.serving.service")

#: How long the final log line may take: the reader of the log may be stuck, too.
LOG_SECONDS = 1.0

NOT_STOPPED = (
    "not stopped within %g s, so the process ends now; a store that is still open is recovered at "
    "the next start"
)


class StopDeadline:
    """Ends this process when it still runs `seconds` after `begin`, as SIGKILL would.

    A thread does it. So it also works when the event loop is blocked, or when a thread waits for a
    peer that does not answer: Python would wait for that thread. `text` is the line in the log.
    """

    def __init__(self, seconds: float, text: str = NOT_STOPPED) -> None:
        self._seconds = seconds
        self._text = text
        self._running = _thread.allocate_lock()

    def begin(self, exit_code: int) -> None:
        """Start the time, if it is not running; `exit_code` is for a process that is late.

        A signal handler may call it: `threading.Thread.start` takes a lock that the interrupted
        code may hold, and this does not.
        """
        if self._running.acquire(blocking=False):
            _thread.start_new_thread(self._wait, (exit_code,))

    def cancel(self) -> None:
        """Forget the deadline: all has ended."""
        if self._running.locked():
            self._running.release()

    def _wait(self, exit_code: int) -> None:
        if self._running.acquire(timeout=self._seconds):
            return  # cancelled
        saying = threading.Thread(target=self._say, daemon=True)
        saying.start()
        saying.join(LOG_SECONDS)
        os._exit(exit_code)

    def _say(self) -> None:
        log.error(self._text, self._seconds)
