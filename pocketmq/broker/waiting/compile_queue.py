"""Compiles new SQL92 expressions of clients in steps.

A long expression takes up to a twentieth of a second. So all but the shortest are compiled in
steps, and so are the requests handled that wait for the same one: there may be thousands. Other
requests are handled between the steps, and get most of the time while clients that send little are
active.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from pocketmq.broker.waiting.late_answer import answer_late
from pocketmq.broker.waiting.turn_queue import LONGEST_REST
from pocketmq.limited_log import LimitedLog
from pocketmq.message.sql_filter import SqlFilter, SqlSyntaxError, compile_steps, known_sql
from pocketmq.remoting.answers.batch_answers import BatchAnswers
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger(__name__)

#: The longest expression that counts as short, in characters.
SHORT: Final = 512
#: Memory of all waiting requests, in bytes; `Budget` limits the share of each client.
MAX_BYTES: Final = 64 << 20
_OVERHEAD: Final = 1024
#: Seconds for which requests are handled in one step; the last one may take longer.
STEP: Final = 0.0005
#: The pause after a step while light clients are active, as a multiple of the step's time.
_REST: Final = 3


class CompileQueue:
    """Compiles expressions, and then handles the requests that wait for them.

    One expression per connection is compiled at a time; connections with short ones get every
    second step. Gives way to `light`, whose times are those of `clock`.
    """

    def __init__(
        self,
        light: LightClients | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.light = light or LightClients()
        self._clock = clock
        self._log = LimitedLog(log)
        self._budget = Budget(max_bytes, "new SQL92 expressions", "bytes", self._log)
        self._jobs: dict[str, _Job] = {}
        self._short: deque[_Job] = deque()
        self._long: deque[_Job] = deque()
        self._compiled: deque[_Job] = deque()
        self._of_connection: dict[Any, deque[_Job]] = {}
        self._scheduled = False

    def __len__(self) -> int:
        """Return the number of expressions that wait."""
        return len(self._jobs)

    def then(
        self, request: Request[Any], handler: Callable[[Any], Response | None], *texts: str
    ) -> None:
        """Compile `texts`, handle the request, and reply. Raises RemotingError if too many wait."""
        # Not views of all that was read with it.
        request.head, request.body = bytes(request.head), bytes(request.body)
        size = sum(map(len, texts)) + len(request.head) + len(request.body) + _OVERHEAD
        if not self._budget.take(request, size):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY, "too many new SQL92 expressions wait to be compiled"
            )
        waiting = _Waiting(request, handler, len(texts), size)
        for text in texts:
            job = self._jobs.get(text)
            if job is None:
                job = self._jobs[text] = _Job(text, request.connection)
                own = self._of_connection.setdefault(job.connection, deque())
                own.append(job)
                if len(own) == 1:
                    self._line(job).append(job)
            job.waiting.append(waiting)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _line(self, job: _Job) -> deque[_Job]:
        return self._short if len(job.text) <= SHORT else self._long

    def _turn(self) -> None:
        began = self._clock()
        for line in (self._short, self._long):
            if line and self._step(line[0]):
                self._ended(line.popleft())
        if self._compiled and not self._handle_some(self._compiled[0]):
            self._compiled.rotate(-1)
        if not self._jobs and not self._compiled:
            self._scheduled = False
            return
        now = self._clock()
        loop = asyncio.get_running_loop()
        if self.light.active(now):
            loop.call_later(min(_REST * (now - began), LONGEST_REST), self._turn)
        else:
            loop.call_soon(self._turn)

    def _step(self, job: _Job) -> bool:
        """Take one step; tell whether it was the last one."""
        if all(each.request.connection.closed for each in job.waiting):
            return True
        try:
            next(job.steps)
        except StopIteration:
            return True
        except Exception:
            self._log.exception("a SQL92 expression cannot be compiled")
            return True
        return False

    def _ended(self, job: _Job) -> None:
        del self._jobs[job.text]
        own = self._of_connection[job.connection]
        own.popleft()
        if own:
            self._line(own[0]).append(own[0])
        else:
            del self._of_connection[job.connection]
        job.compiled = known_sql(job.text)
        self._compiled.append(job)

    def _handle_some(self, job: _Job) -> bool:
        """Take one step of the requests that wait for the first compiled expression; tell whether
        it was the last one."""
        end = self._clock() + STEP
        while job.waiting:
            waiting = job.waiting.popleft()
            waiting.compiled.append(job.compiled)
            waiting.left -= 1
            if not waiting.left:
                self._budget.give_back(waiting.request, waiting.size)
                self._handle(waiting.request, waiting.handler)
            if self._clock() >= end:
                break
        if job.waiting:
            return False
        self._compiled.popleft()
        return True

    def _handle(self, request: Request[Any], handler: Callable[[Any], Response | None]) -> None:
        channel = request.channel
        if request.connection.closed or (isinstance(channel, BatchAnswers) and not channel.hears()):
            return
        answer_late(request, handler, self._log)


class _Job:
    """An expression to compile, the requests that wait for it, and what it was compiled to."""

    __slots__ = ("compiled", "connection", "steps", "text", "waiting")

    def __init__(self, text: str, connection: Any) -> None:
        self.text = text
        self.connection = connection
        self.waiting: deque[_Waiting] = deque()
        self.compiled: SqlFilter | SqlSyntaxError | None = None
        self.steps = compile_steps(text)


class _Waiting:
    """A request, the number of its expressions that are `left`, and those that are `compiled`: this
    reference keeps them in the cache for the handler."""

    __slots__ = ("compiled", "handler", "left", "request", "size")

    def __init__(
        self,
        request: Request[Any],
        handler: Callable[[Any], Response | None],
        left: int,
        size: int,
    ) -> None:
        self.request = request
        self.handler = handler
        self.left = left
        self.size = size
        self.compiled: list[SqlFilter | SqlSyntaxError | None] = []
