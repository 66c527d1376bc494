"""Deferred work: a few milliseconds of it in each turn of the event loop.

One message can wake thousands of long polls, and their clients poll again at once. If all of that
ran in one turn, every other client would wait for it. So such work is divided into steps and runs
in the order of arrival, a bounded part of it in each turn; reads and answers of all clients are
handled between two turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.serving.light_clients import LightClients

log = logging.getLogger(__name__)

#: Seconds of steps in one turn; the last step may take longer.
TURN_SECONDS: Final = 0.002
#: Bytes of answers that the steps of one turn may produce. Answers are written between two turns,
#: so that later steps know which clients do not read.
TURN_BYTES: Final = 4 << 20
#: The longest pause between two turns after a long step while light clients are active, in seconds.
LONGEST_REST: Final = 1.0


class TurnQueue:
    """Runs steps on the running event loop, `seconds` of them in each turn by `clock`.

    Work is an iterator: each `next` executes a step, and returns the bytes of answers that it
    produced. Work that raises an exception is logged and ends.

    Attributes:
        after_turn: called after the steps of a turn; must not raise. The server sends their answers
            here; otherwise they would wait for another turn of the loop.
        light: the clients that these steps give way to, by the same `clock`.
    """

    def __init__(
        self, *, seconds: float = TURN_SECONDS, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._seconds = seconds
        self._log = LimitedLog(log)
        self._clock = clock
        self.after_turn: Callable[[], None] = lambda: None
        self.light = LightClients()
        self._queue: deque[Iterator[int]] = deque()
        self._left = 0.0  # seconds that are left in this turn
        self._scheduled = False
        self._taking_turn = False

    def add(self, work: Iterator[int]) -> None:
        """Run this after all work that was added before it; not within this call."""
        self._queue.append(work)
        self._schedule()

    def begin(self, work: Iterator[int]) -> None:
        """Run this after all work that was added before it; start within this call if the queue is
        empty and this turn has time left."""
        self._schedule()
        self._queue.append(work)
        if len(self._queue) == 1:
            self._run()

    def run(self) -> None:
        """Run queued steps now, as many as fit into this turn, instead of in the next turn."""
        if self._queue and not self._taking_turn:
            self._take_turn()

    def finish_first(self) -> bool:
        """Run the oldest work to its end; return False if the queue is empty."""
        if not self._queue:
            return False
        try:
            for _ in self._queue.popleft():
                pass
        except Exception:
            self._log.exception("queued work failed")
        return True

    def clear(self) -> None:
        """Drop all queued work."""
        self._queue.clear()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._left = self._seconds
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._left = self._seconds
        began = self._clock()
        self._take_turn()
        now = self._clock()
        took = now - began
        if took > 2 * self._seconds:
            self.light.missed(took, now)
            if self._queue and self.light.active(now):
                # Give other clients the same time, as the server does after a long request.
                rest = min(took, LONGEST_REST)
                asyncio.get_running_loop().call_later(rest, self._turn)
                return
        # Only now, so that callbacks scheduled by these steps run before the next steps.
        self._scheduled = False
        if self._queue:
            self._schedule()

    def _take_turn(self) -> None:
        self._taking_turn = True
        self._run()
        self.after_turn()
        self._taking_turn = False

    def _run(self) -> None:
        queue = self._queue
        began = self._clock()
        end = began + self._left
        now = began
        size = 0
        while queue and size < TURN_BYTES and now < end:
            work = queue.popleft()
            try:
                for made in work:
                    size += made
                    now = self._clock()
                    if size >= TURN_BYTES or now >= end:
                        queue.appendleft(work)
                        break
            except Exception:
                self._log.exception("queued work failed")
        self._left -= now - began
