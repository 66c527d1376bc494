"""The exception that a handler raises to have its message redelivered."""

from __future__ import annotations

from pocketmq.client.parameters import whole
from pocketmq.message.limits import MAX_DELAY_LEVEL

#: The delay level that moves a message to the dead letters.
DEAD_LETTER = -1


class ReconsumeLater(Exception):
    """Raise this in a handler to have its message redelivered, without a traceback in the log.

    `delay_level`: 1 to 18 (1 s to 2 h); 0 to let the broker choose, which waits longer each time;
    -1 to move the message to the dead letters now. For levels other than -1, an orderly consumer
    suspends the queue instead.

    Raises:
        TypeError, ValueError: `delay_level` is not a whole number from -1 to 18.
    """

    def __init__(self, reason: str = "", *, delay_level: int = 0) -> None:
        super().__init__(reason)
        self.delay_level = whole("delay_level", delay_level, DEAD_LETTER, MAX_DELAY_LEVEL)
