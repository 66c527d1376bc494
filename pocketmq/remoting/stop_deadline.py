"""The end of a process that does not stop by itself in time."""

from __future__ import annotations

import logging
import os
import threading

log = logging.getLogger("pocketmq.remoting.service")

#: How long the line about the end may take: whoever reads the log may be stuck, too.
LOG_SECONDS = 1.0


class StopDeadline:
    """Ends this process when it still runs `seconds` after `begin`, as SIGKILL would.

    A thread does it. So it also works when the event loop is blocked, or when a thread waits for a
    peer that does not answer: Python would wait for that thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def begin(self, exit_code: int) -> None:
        """Let the time run; `exit_code` is that of a process that is late."""
        timer = self._timer = threading.Timer(self._seconds, self._end, (exit_code,))
        timer.name = "pocketmq-stop-deadline"
        timer.daemon = True
        timer.start()

    def cancel(self) -> None:
        """Forget the deadline: all has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, exit_code: int) -> None:
        saying = threading.Thread(target=self._say, daemon=True)
        saying.start()
        saying.join(LOG_SECONDS)
        os._exit(exit_code)

    def _say(self) -> None:
        log.error(
            "not stopped within %g s, so the process ends now; a store that is still open is "
            "recovered at the next start",
            self._seconds,
        )
