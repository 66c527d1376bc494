"""How long a reader waits for a broker that builds its queues again after a crash."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

RECOVERY_SECONDS: Final = 60.0
_LOOK_AGAIN_SECONDS: Final = 0.2


class Patience:
    """Waits in short steps, up to a limit in all.

    Args:
        clock: seconds that never run backwards.
        sleep: waits that long, in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._deadline: float | None = None

    def wait(self) -> bool:
        """Wait a little; return False, at once, when the time is over."""
        now = self._clock()
        if self._deadline is None:
            self._deadline = now + RECOVERY_SECONDS
        if now >= self._deadline:
            return False
        self._sleep(_LOOK_AGAIN_SECONDS)
        return True

    def end(self) -> None:
        """Let the next wait start from zero, as this one has succeeded."""
        self._deadline = None
