"""Limits for consumers' filters: the memory of waiting requests, and the work in one turn.

They are needed because a client chooses the length of its filter, and the messages it is tried on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.message.sql_filter import FILTER_WORK, SqlFilter, cost_of, work_of
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.request import Request

PropertyFilter = Callable[[Mapping[str, str]], bool]

#: Bytes that unusually large requests may keep while they wait; `Budget` divides them.
MAX_BYTES: Final = 64 << 20

#: Up to these numbers of tags and comparisons, the limit on the number of requests also bounds the
#: memory.
_USUAL_TAGS: Final = 32
_USUAL_COST: Final = 8
_BYTES_PER_TAG: Final = 72
_BYTES_PER_COMPARISON: Final = 1500


class WaitingBytes:
    """The bytes that waiting requests and their filters keep. Requests of the usual size count as
    0, since their number is limited."""

    def __init__(self, limit: int, what: str, log: LimitedLog) -> None:
        self._budget = Budget(limit, what, "bytes", log)

    def take(
        self, request: Request[Any], codes: frozenset[int] | None, accept: PropertyFilter | None
    ) -> int | None:
        """Reserve and return the bytes that a request keeps while it waits: 0 for the usual size,
        None if there is not enough left. The request drops what only its first execution needs."""
        weight = request.keep()
        size = _size(codes, accept)
        if not weight and not size:
            return 0
        if weight and not self._budget.take(request, weight):
            return None
        if size and not self._budget.take_shared(request, codes or accept, size):
            if weight:
                self._budget.give_back(request, weight)
            return None
        return weight + size

    def give_back(
        self,
        request: Request[Any],
        kept: int,
        codes: frozenset[int] | None,
        accept: PropertyFilter | None,
    ) -> None:
        """Release `kept`, the result of `take` for a request that no longer waits; it is not 0."""
        size = _size(codes, accept)
        if size:
            self._budget.give_back_shared(request, codes or accept, size)
        if kept > size:
            self._budget.give_back(request, kept - size)


def _size(codes: frozenset[int] | None, accept: PropertyFilter | None) -> int:
    if codes is not None:
        return _BYTES_PER_TAG * len(codes) if len(codes) > _USUAL_TAGS else 0
    if type(accept) is SqlFilter and accept.cost > _USUAL_COST:
        return _BYTES_PER_COMPARISON * accept.cost + len(accept.text)
    return 0


class FilterTurn:
    """The work of filters for messages that arrive in one turn of the event loop."""

    def __init__(self) -> None:
        self._left = FILTER_WORK

    def may_ask(self, accept: PropertyFilter) -> bool:
        """Tell whether enough time is left to apply a filter to a message."""
        if self._left == FILTER_WORK:
            asyncio.get_running_loop().call_soon(self._next)
        self._left -= cost_of(accept)
        return self._left >= 0

    def asked(self, accept: PropertyFilter, properties: Mapping[str, str]) -> None:
        """Subtract the work for a message with these properties beyond `may_ask`'s estimate."""
        self._left -= work_of(accept, properties) - cost_of(accept)

    def _next(self) -> None:
        self._left = FILTER_WORK
