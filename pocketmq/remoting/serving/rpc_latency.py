"""How long requests take from their dispatch to their answer, by request and response code.

`Dispatcher.measure` puts an `RpcLatency` around every handler. That costs 0.2 µs a request, so it
is only done where metrics are exported. An answer leaves at the end of the turn of the event loop,
after one write for all of them; that is not part of these times. A request whose answer comes later
(a long poll, a send that waits for the disk) is measured to its answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

from pocketmq.message.buffers import Buffer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.dispatch import (
    Answer,
    ExecutedRead,
    Handler,
    ManyHandler,
    ReadHandler,
)
from pocketmq.remoting.serving.request import Request, RequestConnection, Response

#: Milliseconds, the upper borders of rocketmq_rpc_latency.
BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
_BOUNDS: Final = tuple(bound / 1000 for bound in BOUNDS_MS)
_FIRST: Final = _BOUNDS[0]
_SECONDS: Final = len(_BOUNDS) + 1  # the index of the sum in a cell

SUCCESS: Final = "success"
ONEWAY: Final = "oneway"
FAILED: Final = "process_request_failed"

_KNOWN_REQUESTS: Final = {int(code): code.name.lower() for code in RequestCode}
_KNOWN_RESPONSES: Final = {int(code): code.name.lower() for code in ResponseCode}
_PREPARED: Final = {bytes}  # the answers of ordinary sends
UNKNOWN: Final = "unknown"  # a peer can name any number, and each would be a series


_POLLS: Final = frozenset(
    (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.COMMON_BATCH_REQUEST)
)


class Measured(NamedTuple):
    """The requests of one kind: the number in each bucket, and their total time.

    `is_long_polling`: they were held until an answer was available.
    """

    request_code: str
    response_code: str
    is_long_polling: bool
    result: str
    buckets: tuple[int, ...]
    seconds: float


class RpcLatency:
    """The times of one server's requests; `clock` gives seconds.

    `listeners` are called with each request of their code, the code of its answer, and its seconds;
    they are not for codes with prepared answers.
    """

    def __init__(
        self,
        clock: Callable[[], float] = perf_counter,
        listeners: dict[int, Callable[[Request[Any], int, float], None]] | None = None,
    ) -> None:
        self.clock = clock
        self._listeners = listeners or {}
        # A cell: the counts of the buckets, then the sum of the seconds.
        self._cells: dict[tuple[str, str, bool, str], list[float]] = {}

    def figures(self) -> list[Measured]:
        """Return what was measured so far."""
        return [
            Measured(*key, tuple(map(int, cell[:_SECONDS])), cell[_SECONDS])
            for key, cell in list(self._cells.items())
            if any(cell)
        ]

    def cell(
        self, code: int, answer: int, result: str = SUCCESS, *, late: bool = False
    ) -> list[float]:
        """Return the cell in which requests of one kind are counted."""
        request = _KNOWN_REQUESTS.get(code, UNKNOWN)
        key = request, _KNOWN_RESPONSES.get(answer, UNKNOWN), late, result
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = [0] * (_SECONDS + 1)
        return cell

    def around(self, code: int, handler: Handler) -> Handler:
        """Return a handler of `code` that does the same and is measured."""
        clock = self.clock
        stored = self.cell(code, ResponseCode.SUCCESS)

        def measured(request: Request[Any]) -> Answer:
            began = clock()
            try:
                answer = handler(request)
            except Exception as error:
                self._failed(request, error, clock() - began)
                raise
            if type(answer) is bytes and not request.flag:
                # A prepared answer of the hot path: counted without a further call.
                took = clock() - began
                stored[0 if took <= _FIRST else bisect_left(_BOUNDS, took)] += 1
                stored[_SECONDS] += took
                return answer
            if answer is None and not request.oneway:
                request.when_answered(partial(self._late, began))
                return None
            if answer is None or isinstance(answer, (Response, bytes)):
                self._note(request, _code_of(answer), clock() - began)
                return answer
            return self._awaited(request, answer, began)

        return measured

    def around_many(self, code: int, handler: ManyHandler) -> ManyHandler:
        """The same for a handler of many requests: each takes as long as all of them."""
        clock = self.clock
        stored = self.cell(code, ResponseCode.SUCCESS)

        def measured(requests: Sequence[Request[Any]]) -> Sequence[Response | bytes | None]:
            began = clock()
            answers = handler(requests)
            took = clock() - began
            if set(map(type, answers)) == _PREPARED:
                stored[0 if took <= _FIRST else bisect_left(_BOUNDS, took)] += len(answers)
                stored[_SECONDS] += took * len(answers)
                return answers
            for request, answer in zip(requests, answers, strict=False):
                if answer is None:
                    request.when_answered(partial(self._late, began))
                else:
                    self._note(request, _code_of(answer), took)
            return answers

        return measured

    def around_reads(self, handler: ReadHandler) -> ReadHandler:
        """The same for a handler of reads."""
        clock = self.clock

        def measured(
            connection: RequestConnection, data: Buffer, start: int, most: int, longest: int
        ) -> ExecutedRead | None:
            began = clock()
            done = handler(connection, data, start, most, longest)
            if done is not None:
                took = clock() - began
                cell = self.cell(done.code, done.answer)
                cell[bisect_left(_BOUNDS, took)] += done.requests
                cell[_SECONDS] += took * done.requests
                if done.parents:
                    cell = self.cell(RequestCode.COMMON_BATCH_REQUEST, done.answer)
                    cell[bisect_left(_BOUNDS, took)] += done.parents
                    cell[_SECONDS] += took * done.parents
            return done

        return measured

    def unknown(self, request: Request[Any], answer: int) -> None:
        """Count a request of a code without a handler."""
        self._note(request, answer, 0.0)

    def _note(
        self,
        request: Request[Any],
        answer: int,
        seconds: float,
        result: str = SUCCESS,
        *,
        late: bool = False,
    ) -> None:
        if request.oneway and result == SUCCESS:
            result = ONEWAY
        cell = self.cell(request.code, answer, result, late=late)
        cell[bisect_left(_BOUNDS, seconds)] += 1
        cell[_SECONDS] += seconds
        listener = self._listeners.get(request.code)
        if listener is not None:
            listener(request, answer, seconds)

    def _failed(self, request: Request[Any], error: Exception, seconds: float) -> None:
        if isinstance(error, RemotingError):
            self._note(request, error.code, seconds)
        else:
            self._note(request, ResponseCode.SYSTEM_ERROR, seconds, FAILED)

    async def _awaited(
        self, request: Request[Any], answer: Awaitable[Response | None], began: float
    ) -> Response | None:
        try:
            response = await answer
        except Exception as error:
            self._failed(request, error, self.clock() - began)
            raise
        self._note(request, _code_of(response), self.clock() - began)
        return response

    def _late(self, began: float, request: Request[Any], response: Response) -> None:
        """Count a request that is answered after its handler returned."""
        is_poll = request.code in _POLLS
        self._note(request, response.code, self.clock() - began, late=is_poll)


def _code_of(answer: Response | bytes | None) -> int:
    return answer.code if isinstance(answer, Response) else ResponseCode.SUCCESS
