"""How long a receive waits for messages. No I/O.

Reference: ReceiveMessageActivity of the official proxy.
"""

from __future__ import annotations

from typing import Final

#: ms before the deadline of a receive at which it is answered at the latest.
ANSWER_MARGIN: Final = 200


def polling_ms(
    remaining: float, asked: int | None, request_timeout: float, *, least: int, most: int
) -> int | None:
    """Return the ms that a receive waits; None if its deadline is too near.

    `remaining`: ms until the deadline, infinite without one. `asked`: what the client asks for,
    None if it leaves that to the proxy; then half of its `request_timeout`, ms, is left for the
    answer. `least` and `most` are the bounds of what is asked for.
    """
    wanted = remaining - request_timeout / 2 if asked is None else asked
    wanted = min(max(wanted, least), most)
    if remaining < least:
        return None
    return int(min(wanted, max(remaining - ANSWER_MARGIN, 0)))
