"""How long a receive waits for messages. No I/O.

Reference: ReceiveMessageActivity of the official proxy.
"""

from __future__ import annotations

from typing import Final

#: How long before its deadline a receive must be answered, in ms.
ANSWER_MARGIN: Final = 200


def polling_ms(
    remaining: float, asked: int | None, request_timeout: float, *, least: int, most: int
) -> int | None:
    """Return how long a receive waits, in ms; None if its deadline is too close.

    `remaining`: ms until the deadline, infinite without one. `asked`: the client's choice; None
    leaves it to the proxy, which keeps half of the client's `request_timeout` (ms) for the answer.
    `least` and `most` bound the client's choice.
    """
    wanted = remaining - request_timeout / 2 if asked is None else asked
    wanted = min(max(wanted, least), most)
    if remaining < least:
        return None
    return int(min(wanted, max(remaining - ANSWER_MARGIN, 0)))
