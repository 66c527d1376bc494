"""The priority of a message: a number from 0 on, in a property (RIP-80, since 5.4).

Reference: common Message.getPriority.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pocketmq.message.properties import PRIORITY

MOST_PRIORITY: Final = 2**31 - 1
#: As Java reads an int; digits may be of any script.
_number = re.compile(r"[+-]?\d{1,100}").fullmatch


def priority_of(properties: Mapping[str, str]) -> int | None:
    """Return the priority in decoded properties; None for one that is missing, negative or no
    number of 32 bits: the message has none."""
    text = properties.get(PRIORITY)
    if text is None or _number(text) is None:
        return None
    priority = int(text)
    return priority if 0 <= priority <= MOST_PRIORITY else None
