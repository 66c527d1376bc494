"""Deletes the topics or the groups of a list, which tools of 5.5.1 send, one after another.

Each one is deleted in a turn of the event loop of its own, and there is a pause between two, of the
length that the settings say. A list goes on when its client has given up, as at the official
broker. One list of a user (without authentication: of an address) works at a time: it may take
minutes, and somebody may send hundreds. Reference: broker AdminBrokerProcessor.deleteTopicList.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.request import Request, owner_of

log = logging.getLogger(__name__)

#: Memory of the lists that wait or are at work, in bytes; `Budget` limits the share of each client.
MAX_BYTES: Final = 64 << 20
_OVERHEAD: Final = 4 << 10  # bytes of a short list


class ListDeletion:
    """The lists of one kind, `what`: "topics"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._budget = Budget(MAX_BYTES, f"lists of {what} to delete", "bytes", LimitedLog(log))

    async def run(
        self,
        request: Request[Any],
        names: Sequence[str],
        rate: float,
        delete: Callable[[str], object],
    ) -> None:
        """Call `delete` for each of the names once, at most `rate` times a second; 0 or less:
        without a pause. Raises RemotingError (SYSTEM_BUSY) if too many lists wait."""
        owner = owner_of(request.caller, request.connection.peer[0])
        turn = self._turns.get(owner) or self._turns.setdefault(owner, asyncio.Lock())
        size = request.keep() + sum(map(len, names)) + _OVERHEAD
        if not self._budget.take(request, size):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY, f"too many lists of {self._what} wait to be deleted"
            )
        try:
            async with turn:
                for number, name in enumerate(dict.fromkeys(names)):
                    if number:
                        await asyncio.sleep(1 / rate if rate > 0 else 0)
                    delete(name)
        finally:
            self._budget.give_back(request, size)
