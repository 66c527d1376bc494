"""COMMON_BATCH_REQUEST: the children of a parent, each executed as if it came alone.

Children run through the same dispatcher as single requests, in the order of the body (pulls from
any of them on), with the batch's `BatchAnswers` as their channel; their tasks count as those
of the connection. Two strategies say when the parent is answered:

- *base*, for every code but pulls: when all children are. With SYNC_FLUSH the children's messages
  wait for one group commit, because all are appended before the first flush begins.
- *pull*: when any child is ready, or there is enough data. The others are answered PULL_NOT_FOUND
  and their long polls end; the earliest deadline of the children bounds the wait.

Reference: RocketMQ issue 5516 and pull request 5521 (CommonBatchProcessor, MergeBatchResponse-
Strategy); docs/batch-protocol.md lists where this differs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.hold_service import HoldService
from pocketmq.broker.processors.held_pulls import HeldPulls
from pocketmq.broker.processors.pull import COMMIT_OFFSET
from pocketmq.remoting.batch import NOT_FOUND_REMARK, RATE_LIMIT_REMARK, BatchError, Children
from pocketmq.remoting.batch_answers import BatchAnswers, MergeStrategy
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import Dispatcher, ManyHandler, Route
from pocketmq.remoting.headers import BatchRequestHeader
from pocketmq.remoting.request import Request, RequestDecoder, Response

log = logging.getLogger(__name__)

PULL_CODES: Final = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
_BATCH: Final = int(RequestCode.COMMON_BATCH_REQUEST)
_SUCCESS: Final = int(ResponseCode.SUCCESS)

#: Seconds after which children of a base batch that never answer are answered for.
BASE_DEADLINE: Final = 30.0

#: The fewest children that are tried together, also after a try that took none: trying so few costs
#: no more than executing them one by one.
LEAST_MANY: Final = 2


class BaseStrategy:
    """All children must have answered."""

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
        # It was executed, and its client must know that only the answer is missing.
        return Response(
            ResponseCode.SYSTEM_ERROR,
            f"the answer of {size} bytes does not fit in the batch's; ask for it alone",
        )


class PullStrategy:
    """Any child's answer will do, and reading stops at a total of bytes or messages.

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
        # A consumer lists its queues in the same order each time. Beginning anywhere keeps busy
        # queues at the head of the list from starving those behind them.
        start = random.randrange(len(children)) if children else 0
        return itertools.chain(children[start:], children[:start])

    def note(self, answers: BatchAnswers, child: Request[Any], response: Response) -> None:
        answers.ready += 1
        if response.code == _SUCCESS and response.header is not None:
            # Queue offsets passed: the messages sent, and those that the filter left out.
            following = getattr(response.header, "next_begin_offset", None)
            if following is not None:
                answers.messages += following - child.header.queue_offset

    def skips(self, answers: BatchAnswers, child: Request[Any]) -> bool:
        enough = answers.size >= self._enough_bytes or answers.messages >= self._enough_messages
        # A pull may carry an offset to be stored, which its client takes for stored then; and a
        # child of a foreign code is to be refused.
        return enough and child.code in PULL_CODES and not child.header.sys_flag & COMMIT_OFFSET

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

    `holds` has the long polls; `base_deadline` in seconds, see BASE_DEADLINE.
    """

    def __init__(
        self,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        holds: HoldService,
        *,
        base_deadline: float = BASE_DEADLINE,
    ) -> None:
        self._dispatcher = dispatcher
        self._holds = holds
        self._decoder = RequestDecoder(dispatcher.header_types)
        self._base = BaseStrategy()
        self._pull = PullStrategy(
            holds.cancel, config.batch_pull_enough_bytes, config.batch_pull_enough_messages
        )
        self._max_children = config.max_child_request_num
        self._base_deadline = base_deadline

    def register(self, dispatcher: Dispatcher) -> None:
        """Route COMMON_BATCH_REQUEST here."""
        dispatcher.register(RequestCode.COMMON_BATCH_REQUEST, self.batch, BatchRequestHeader)

    def batch(self, request: Request[BatchRequestHeader]) -> Response | None:
        """Execute the children; answer now, or later by `request.reply`."""
        if request.connection.overloaded:
            # Maybe by a parent before this one in the same read.
            return request.connection.refuse(request)
        code = request.header.dispatch_code
        route = self._dispatcher.codes.get(code) if code is not None else None
        if route is None or code == _BATCH:
            return Response(
                ResponseCode.SYSTEM_ERROR,
                f"system error in processor: dispatchCode {code} can not be batched",
            )
        held: HeldPulls | None = None
        if code in PULL_CODES and request.header.omit_not_found:
            held = HeldPulls.of(request.connection, self._holds)
        try:
            children = Children(
                request.body,
                self._decoder,
                self._max_children,
                held.by_head if held is not None else {},
            )
        except BatchError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"system error in processor: {error.remark}")
        if held is not None:
            held.take(children.resumed)
        strategy: MergeStrategy = self._pull if code in PULL_CODES else self._base
        answers = BatchAnswers(children, strategy, request.connection)
        answers.heard = not request.oneway
        if route.many is not None:
            self._execute_many(children.requests, answers, route, route.many)
        else:
            order = iter(strategy.order(children.requests))
            for child in order:
                if not self._execute(child, answers, route, strategy):
                    _refuse(order, answers)
        if answers.executed():
            response = _merge(answers, held)
            _hold_soon(answers, held)
            return response
        self._answer_later(request, answers, strategy is self._base, held)
        return None

    def _execute(
        self, child: Request[Any], answers: BatchAnswers, route: Route, strategy: MergeStrategy
    ) -> bool:
        """Whether its connection may have more children executed."""
        try:
            if strategy.skips(answers, child):
                return True
            if child.code != route.code and not self._served_alike(child.code, route):
                # Also a batch in a batch: it is served, but never by what dispatchCode names.
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
            # It must not keep the others from their answers, nor their long polls from an end.
            log.exception("request %d in a batch of %d failed", child.code, route.code)
            text = f"{type(error).__name__}: {error}"
            answers.respond(child, Response(ResponseCode.SYSTEM_ERROR, text))
        return True

    def _execute_many(
        self,
        children: list[Request[Any]],
        answers: BatchAnswers,
        route: Route,
        many: ManyHandler,
    ) -> None:
        """Children that can be executed many at a time, with those between that can not."""
        at, most = 0, len(children)
        while at < len(children):
            some = children[at : at + most]
            done: Sequence[Response | bytes | None] = ()
            if some[0].code == route.code and len(some) > 1:
                try:
                    done = many(some)
                    # Children that are given and not taken are prepared again: keep them few.
                    most = max(2 * len(done), LEAST_MANY)
                except Exception:
                    log.exception("%d requests %d failed together", len(some), route.code)
                    most = 1
            if done:
                answers.respond_all(some, done)
                at += len(done)
            if len(done) < len(some):
                at += 1
                if not self._execute(children[at - 1], answers, route, self._base):
                    _refuse(children[at:], answers)
                    return

    def _served_alike(self, code: int, route: Route) -> bool:
        served = self._dispatcher.codes.get(code)
        return served is not None and served.registered == route.registered

    def _answer_later(
        self,
        request: Request[BatchRequestHeader],
        answers: BatchAnswers,
        with_deadline: bool,
        held: HeldPulls | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        answered = False

        def answer() -> None:
            nonlocal answered
            if not answered:
                answered = True
                if timer is not None:
                    timer.cancel()
                request.reply(_merge(answers, held))
                _hold_soon(answers, held)

        # Pulls have deadlines of their own.
        timer = loop.call_later(self._base_deadline, answer) if with_deadline else None
        # At the end of this turn of the loop: other children may be woken in the same one.
        answers.on_complete = lambda: loop.call_soon(answer)


def _merge(answers: BatchAnswers, held: HeldPulls | None) -> Response:
    return answers.merge() if held is None else answers.merge_answered()


def _hold_soon(answers: BatchAnswers, held: HeldPulls | None) -> None:
    """Hold the children that an answer leaves out, but only after the answer has left: holding
    hundreds of them takes longer than the answer."""
    if held is not None:
        asyncio.get_running_loop().call_soon(lambda: held.keep(answers.leave(held)))


def _refuse(children: Iterable[Request[Any]], answers: BatchAnswers) -> None:
    """As many tasks run for the connection as may."""
    for child in children:
        answers.respond(child, child.connection.refuse(child))
