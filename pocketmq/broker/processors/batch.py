"""COMMON_BATCH_REQUEST: the children of a parent, each executed like a single request.

Children run through the same dispatcher as single requests, in the order of the body (pulls start
at a random child), with the batch's `BatchAnswers` as their channel; their tasks count as tasks of
the connection. Two strategies decide when the parent is answered:

- *base*, for every code but pulls: when all children are answered. What takes longer than a turn of
  the event loop is divided, as other long requests are. With SYNC_FLUSH the messages of a turn wait
  for one group commit, because all are appended before the first flush begins.
- *pull*: when any child has an answer, or there is enough data. The others are answered
  PULL_NOT_FOUND and their long polls end; the earliest deadline of the children bounds the wait.

One message may wake hundreds of parents of pulls, and their clients send them again at once. So
these parents are executed and answered in steps on a `TurnQueue`, and other clients are served
between the steps.

Reference: RocketMQ issue 5516 and pull request 5521 (CommonBatchProcessor, MergeBatchResponse-
Strategy); docs/batch-protocol.md lists the differences.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.held_pulls import HeldPulls
from pocketmq.broker.processors.pull import COMMIT_OFFSET
from pocketmq.broker.waiting.hold_service import HoldService
from pocketmq.error_kind import unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.answers.batch import (
    NOT_FOUND_REMARK,
    RATE_LIMIT_REMARK,
    BatchError,
    Children,
)
from pocketmq.remoting.answers.batch_answers import BatchAnswers, MergeStrategy
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import BatchRequestHeader
from pocketmq.remoting.serving.body_limits import excess
from pocketmq.remoting.serving.dispatch import Dispatcher, ManyHandler, Route
from pocketmq.remoting.serving.long_requests import Done, LongRequests, Steps
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response

log = logging.getLogger(__name__)

PULL_CODES: Final = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
_BATCH: Final = int(RequestCode.COMMON_BATCH_REQUEST)
_SUCCESS: Final = int(ResponseCode.SUCCESS)

#: Seconds after which a base batch is answered although children have not answered.
BASE_DEADLINE: Final = 30.0

#: Bytes that queued parents of pulls may keep. If another one exceeds this, the oldest ones are
#: executed at once.
MOST_QUEUED: Final = 32 << 20
_QUEUED_PARENT: Final = 1024  # bytes of a parent without its body

#: The fewest children to try together, even after a try that executed none: so few cost no more
#: than executing them one by one.
LEAST_MANY: Final = 2

#: About the most bytes of children to execute together; long properties take 10 µs for 1 KiB.
MANY_BYTES: Final = 512 << 10


class BaseStrategy:
    """The batch is complete when all children are answered."""

    def order(self, children: Sequence[Request[Any]]) -> Iterable[Request[Any]]:
        return children

    def note(self, answers: BatchAnswers, child: Request[Any], response: Response) -> None:
        pass

    def skips(self, answers: BatchAnswers, child: Request[Any]) -> bool:
        return False

    def complete(self, answers: BatchAnswers) -> bool:
        return not answers.waiting

    def release(self, child: Request[Any]) -> Response:
        return Response(ResponseCode.SYSTEM_ERROR, RATE_LIMIT_REMARK)

    def oversized(self, child: Request[Any], size: int) -> Response:
        # The request was executed; only its answer is missing, and the client must know that.
        return Response(
            ResponseCode.SYSTEM_ERROR,
            f"the answer of {size} bytes does not fit in the batch's; ask for it alone",
        )


class PullStrategy:
    """The batch is complete when any child has an answer; reading stops at a total of bytes or
    messages.

    `release_hold(request)` ends a long poll without an answer.
    """

    def __init__(
        self,
        release_hold: Callable[[Request[Any]], object],
        enough_bytes: int,
        enough_messages: int,
    ) -> None:
        self._release_hold = release_hold
        self._enough_bytes = enough_bytes
        self._enough_messages = enough_messages

    def order(self, children: Sequence[Request[Any]]) -> Iterable[Request[Any]]:
        # A consumer lists its queues in the same order each time. A random start keeps busy queues
        # at the head of the list from starving those after them.
        start = random.randrange(len(children)) if children else 0
        return itertools.chain(children[start:], children[:start])

    def note(self, answers: BatchAnswers, child: Request[Any], response: Response) -> None:
        answers.ready += 1
        if response.code == _SUCCESS and response.header is not None:
            # Count queue offsets: the messages in the answer, and those that the filter rejected.
            following = getattr(response.header, "next_begin_offset", None)
            if following is not None:
                answers.messages += following - child.header.queue_offset
        answers.enough = (
            answers.size >= self._enough_bytes or answers.messages >= self._enough_messages
        )

    def skips(self, answers: BatchAnswers, child: Request[Any]) -> bool:
        # Do not skip a pull that commits an offset, since its client assumes that it was committed,
        # nor a child with another code, which must be refused.
        return (
            answers.enough
            and child.code in PULL_CODES
            and not child.header.sys_flag & COMMIT_OFFSET
        )

    def complete(self, answers: BatchAnswers) -> bool:
        return answers.ready > 0 or not answers.waiting

    def release(self, child: Request[Any]) -> Response:
        self._release_hold(child)
        return Response(ResponseCode.PULL_NOT_FOUND, NOT_FOUND_REMARK)

    def oversized(self, child: Request[Any], size: int) -> Response:
        # Reading changed nothing: the messages are still there for the next batch.
        return Response(ResponseCode.PULL_NOT_FOUND, NOT_FOUND_REMARK)


class BatchProcessor:
    """Serves parents for every request code of `dispatcher`.

    `holds` has the long polls; `long` divides what takes long. For `base_deadline` (seconds) see
    BASE_DEADLINE, for `most_queued` (bytes) see MOST_QUEUED.
    """

    def __init__(
        self,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        holds: HoldService,
        long: LongRequests,
        *,
        base_deadline: float = BASE_DEADLINE,
        most_queued: int = MOST_QUEUED,
    ) -> None:
        self._dispatcher = dispatcher
        self._holds = holds
        self._long = long
        self._decoder = RequestDecoder(dispatcher.header_types)
        self._base = BaseStrategy()
        self._pull = PullStrategy(
            holds.cancel, config.batch_pull_enough_bytes, config.batch_pull_enough_messages
        )
        self._max_children = config.max_child_request_num
        self._base_deadline = base_deadline
        self._turns = holds.parents
        self._queued = 0  # bytes of queued parents that are not executed yet
        self._most_queued = most_queued
        self._log = LimitedLog(log)

    def register(self, dispatcher: Dispatcher) -> None:
        """Route COMMON_BATCH_REQUEST here."""
        dispatcher.register(RequestCode.COMMON_BATCH_REQUEST, self.batch, BatchRequestHeader)

    def batch(self, request: Request[BatchRequestHeader]) -> Response | None:
        """Execute the children; answer now, or later with `request.reply`."""
        if request.connection.overloaded:
            # An earlier parent in the same read may have caused this.
            return request.connection.refuse(request)
        code = request.header.dispatch_code
        route = self._dispatcher.codes.get(code) if code is not None else None
        if route is None or code == _BATCH:
            return Response(
                ResponseCode.SYSTEM_ERROR,
                f"system error in processor: dispatchCode {code} cannot be batched",
            )
        if code in PULL_CODES:
            self._pull_later(request, route)
            return None
        request.body = bytes(request.body)  # children may be views of it
        begun = self._long.begin(request, self._execute_base(request, route))
        if isinstance(begun, Done):
            answer: Response | None = begun.result
            return answer
        # Not returned: the dispatcher may refuse what waits, but some children have been executed.
        # Nor counted: its children would have one task fewer than those of a parent that is not
        # divided.
        request.connection.spawn(request, self._answered(begun, route.code), counted=False)
        return None

    async def _answered(self, begun: Awaitable[Response | None], code: int) -> Response | None:
        try:
            return await begun
        except Exception as error:
            return self._failed(code, error)

    def _failed(self, code: int, error: Exception) -> Response:
        self._log.exception("a batch of %d failed", code)
        return Response(ResponseCode.SYSTEM_ERROR, unexpected(error))

    def _execute_base(
        self, request: Request[BatchRequestHeader], route: Route
    ) -> Steps[Response | None]:
        """Execute a parent of anything but pulls. Returns its answer, or None if it comes later."""
        children = Children(request.body, self._decoder, self._max_children)
        try:
            yield from children.decode()
        except BatchError as error:
            return _broken(error)
        too_much = excess(route.code, (child.body for child in children.requests))
        if too_much:
            return _broken(BatchError(too_much))
        answers = BatchAnswers(children, self._base, request)
        answers.heard = not request.oneway
        if route.many is not None:
            yield from self._execute_many(children.requests, answers, route, route.many)
        else:
            order = iter(children.requests)
            for child in order:
                if not self._execute(child, answers, route, self._base):
                    _refuse(order, answers)
                yield
        if answers.executed():
            return answers.merge()
        self._answer_later(request, answers)
        return None

    # --- pulls --------------------------------------------------------------------------------

    def _pull_later(self, request: Request[BatchRequestHeader], route: Route) -> None:
        # Copy the body: a view would keep the whole read in memory.
        request.body = bytes(request.body)
        size = len(request.body) + _QUEUED_PARENT
        while self._queued + size > self._most_queued and self._turns.finish_first():
            pass
        self._queued += size
        self._turns.begin(self._dequeued(size, self._pulls(request, route)))

    def _dequeued(self, size: int, steps: Iterator[int]) -> Iterator[int]:
        self._queued -= size
        yield from steps

    def _pulls(self, request: Request[BatchRequestHeader], route: Route) -> Iterator[int]:
        """Execute a parent of pulls, one child per step; yield the bytes of its answers."""
        try:
            yield from self._execute_pulls(request, route)
        except Exception as error:
            request.reply(self._failed(route.code, error))

    def _execute_pulls(self, request: Request[BatchRequestHeader], route: Route) -> Iterator[int]:
        held: HeldPulls | None = None
        if request.header.omit_not_found:
            held = HeldPulls.of(request, self._holds)
        children = Children(
            request.body,
            self._decoder,
            self._max_children,
            held.by_head if held is not None else {},
        )
        try:
            for _ in children.decode():
                yield 0
        except BatchError as error:
            request.reply(_broken(error))
            return
        request.body = b""  # from here on only the children are needed
        if held is not None:
            held.take(children.resumed)
        answers = BatchAnswers(children, self._pull, request)
        answers.heard = not request.oneway
        order = iter(self._pull.order(children.requests))
        size = 0
        for child in order:
            yield answers.size - size
            size = answers.size
            if not self._execute(child, answers, route, self._pull):
                _refuse(order, answers)
        if answers.executed():
            yield from _answer_pulls(request, answers, held)
        else:
            self._answer_pulls_later(request, answers, held)

    def _answer_pulls_later(
        self,
        request: Request[BatchRequestHeader],
        answers: BatchAnswers,
        held: HeldPulls | None,
    ) -> None:
        """Answer as soon as a child has its answer, together with all pulls woken at the same time.

        Each child has its own deadline.
        """

        def behind_what_is_woken() -> Iterator[int]:
            self._turns.begin(_answer_pulls(request, answers, held))
            yield 0

        def complete() -> None:
            answers.on_complete = _nothing
            self._holds.woken.add(behind_what_is_woken())

        answers.on_complete = complete

    # --- children -----------------------------------------------------------------------------

    def _execute(
        self, child: Request[Any], answers: BatchAnswers, route: Route, strategy: MergeStrategy
    ) -> bool:
        """Execute a child; return whether more children of the connection may be executed."""
        try:
            if strategy.skips(answers, child):
                return True
            if child.code != route.code and not self._served_alike(child.code, route):
                # This includes a batch in a batch.
                text = f"request code {child.code} in a batch of {route.code}"
                answers.respond(child, Response(ResponseCode.SYSTEM_ERROR, text))
                return True
            result = self._dispatcher.dispatch(child)
            if type(result) is Response:
                answers.respond(child, result)
            elif type(result) is bytes:
                answers.respond_all((child,), (result,))
            elif result is not None:
                child.connection.spawn(child, result)  # type: ignore[arg-type]
                return not child.connection.overloaded
        except Exception as error:
            # The other children must still be answered, and their long polls must end.
            self._log.exception("request %d in a batch of %d failed", child.code, route.code)
            answers.respond(child, Response(ResponseCode.SYSTEM_ERROR, unexpected(error)))
        return True

    def _execute_many(
        self,
        children: list[Request[Any]],
        answers: BatchAnswers,
        route: Route,
        many: ManyHandler,
    ) -> Iterator[None]:
        """Execute children, many in a step where possible, and the others one by one."""
        at, most = 0, len(children)
        while at < len(children):
            some = _together(children, at, most)
            done: Sequence[Response | bytes | None] = ()
            if some[0].code == route.code and len(some) > 1:
                try:
                    done = many(some)
                    # The rest is prepared again in the next try, so keep it small.
                    most = max(2 * len(done), LEAST_MANY)
                except Exception:
                    self._log.exception("%d requests %d failed together", len(some), route.code)
                    most = 1
            if done:
                answers.respond_all(some, done)
                at += len(done)
            if len(done) < len(some):
                at += 1
                if not self._execute(children[at - 1], answers, route, self._base):
                    _refuse(children[at:], answers)
                    return
            yield

    def _served_alike(self, code: int, route: Route) -> bool:
        served = self._dispatcher.codes.get(code)
        return served is not None and served.registered == route.registered

    def _answer_later(self, request: Request[BatchRequestHeader], answers: BatchAnswers) -> None:
        loop = asyncio.get_running_loop()
        answered = False

        def answer() -> None:
            nonlocal answered
            if not answered:
                answered = True
                timer.cancel()
                request.reply(answers.merge())

        timer = loop.call_later(self._base_deadline, answer)
        # At the end of this turn of the loop, in which other children may be answered, too.
        answers.on_complete = lambda: loop.call_soon(answer)


def _together(children: list[Request[Any]], first: int, most: int) -> list[Request[Any]]:
    """Return the children from `first` on that are executed together: `most` of them, or fewer if
    they are large."""
    size, end = 0, first
    for child in children[first : first + most]:
        size += len(child.head) + len(child.body)
        end += 1
        if size >= MANY_BYTES:
            break
    return children[first:end]


def _broken(error: BatchError) -> Response:
    return Response(ResponseCode.SYSTEM_ERROR, f"system error in processor: {error.remark}")


def _answer_pulls(
    request: Request[BatchRequestHeader], answers: BatchAnswers, held: HeldPulls | None
) -> Iterator[int]:
    if held is None:
        request.reply(answers.merge())
        yield 0
    else:
        request.reply(answers.merge_answered())
        yield 0
        # Before the connection's next parent, which is queued after this step.
        held.keep(answers.leave(held))


def _nothing() -> None:
    """Replaces `on_complete` after the first call: the parent is about to be answered."""


def _refuse(children: Iterable[Request[Any]], answers: BatchAnswers) -> None:
    """Refuse children: the connection has the most tasks allowed."""
    for child in children:
        answers.respond(child, child.connection.refuse(child))
