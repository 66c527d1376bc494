"""What filters of consumers may cost: the memory of those that wait, and the work of one turn.

A client chooses how long its filter is, and how many messages it is asked about.
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

#: Bytes that requests of an unusual size may keep while they wait, as `Budget` shares them out.
MAX_BYTES: Final = 64 << 20

#: Tags and comparisons whose memory a limit on the number of requests covers.
_USUAL_TAGS: Final = 32
_USUAL_COST: Final = 8
_BYTES_PER_TAG: Final = 72
_BYTES_PER_COMPARISON: Final = 1500


class WaitingBytes:
    """What waiting requests and their filters keep. Those of the usual size count as nothing: the
    limits on their number cover them."""

    def __init__(self, limit: int, what: str, log: LimitedLog) -> None:
        self._budget = Budget(limit, what, "bytes", log)

    def take(
        self, request: Request[Any], codes: frozenset[int] | None, accept: PropertyFilter | None
    ) -> int | None:
        """Return what a request that begins to wait keeps, 0 for one of the usual size, or None if
        that is too much. The request loses what only its first execution needs."""
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
        """A request no longer waits, for which `take` returned `kept`, which is not 0."""
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
        """Tell whether there is time left to ask a filter about a message."""
        if self._left == FILTER_WORK:
            asyncio.get_running_loop().call_soon(self._next)
        self._left -= cost_of(accept)
        return self._left >= 0

    def asked(self, accept: PropertyFilter, properties: Mapping[str, str]) -> None:
        """Take what a message with these properties took more than `may_ask` knew."""
        self._left -= work_of(accept, properties) - cost_of(accept)

    def _next(self) -> None:
        self._left = FILTER_WORK
