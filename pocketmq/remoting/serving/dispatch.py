"""The table from request codes to handlers.

A processor is a class that registers its methods here, one per request code. A handler returns its
`Response`, or None if it calls `request.reply` later (or the request is oneway), or an awaitable of
either. Most handlers are plain functions: a task per request would cost more than the request. The
hottest ones may return the whole answer frame, as bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from inspect import iscoroutine
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from pocketmq.error_kind import unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.message.buffers import Buffer
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.machine_memory import at_most
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.request import Request, RequestConnection, Response

log = logging.getLogger("pocketmq.remoting")

WAITING_LIMIT = 512 << 20
"""Bytes of the requests that wait for something: 1,024 of a connection may, whatever their size."""
LEAST_WAITING_LIMIT = 192 << 20
"""A connection's tenth of it is more than a frame."""
LITTLE = 4096
"""Bytes of a request that does not count among these."""

MOST_UNSUPPORTED = 64
"""Unknown codes whose answers are remembered; a peer can name any number."""

Answer = Response | bytes | None | Awaitable[Response | None]
Handler = Callable[[Request[Any]], Answer]


ManyHandler = Callable[[Sequence[Request[Any]]], Sequence[Response | bytes | None]]
"""Serves the first of several requests of one connection, as many as it can in one go, and gives
one answer for each: a response, its whole frame, or None (by `reply`, later). It stops before a
request with another code than the first, which has its own handler; a later request of the same
code is to be dispatched alone. If it raises, none of them was executed."""


class ExecutedRead(NamedTuple):
    """The result of a `ReadHandler`: where it ended, the frames of the answers, the number of
    requests and their code, the code of all answers, and the number of parents of requests."""

    stopped: int
    answers: bytes
    code: int
    requests: int
    answer: int = ResponseCode.SUCCESS
    parents: int = 0


class ReadSigner(Protocol):
    """A user who may sign requests."""

    @property
    def name(self) -> str:
        """The name that the user signs with."""

    def has_signed(self, given: bytes, values: memoryview, body: memoryview, /) -> bool:
        """Tell whether `given` is this user's signature of a request with this body, and these
        values of its extFields, joined in the order of their names."""

    def may_send(self, topic: str, source_ip: str, /) -> bool:
        """Tell whether a request of this user from this address may send to the topic."""


class ReadGuard(Protocol):
    """Checks requests that are executed straight from what was read, as a `Check` does."""

    def guards_reads(self, codes: Collection[int], /) -> bool:
        """Whether it can, for requests of these codes."""

    def signer(self, name: str, /) -> ReadSigner | None:
        """Return the user of this name; None if nobody may sign with it."""


class GuardedReadHandler(Protocol):
    """A `ReadHandler` that takes a guard: nothing is read from tables, and nothing is stored, for
    a request before its signature has been checked."""

    def __call__(
        self,
        connection: RequestConnection,
        data: Buffer,
        start: int,
        most: int,
        longest: int,
        /,
        *,
        guard: ReadGuard | None = None,
    ) -> ExecutedRead | None:
        """Do the same; it also ends before a request that `guard` would refuse."""


class ReadHandler(Protocol):
    """Serves requests straight from what was read, as many as it can in one go."""

    def __call__(
        self, connection: RequestConnection, data: Buffer, start: int, most: int, longest: int, /
    ) -> ExecutedRead | None:
        """Execute the requests in `data[start:]`, one after another.

        It ends after `most` of them, or with the parent that has the last of them, or before a
        frame that is longer than `longest` bytes, is incomplete, or has to be dispatched. Returns
        None if that is the first one.
        """


Check = Callable[[Request[Any]], Response | None]
"""Asked before a request is executed; returns the refusal. May raise what a handler may."""


class Meter(Protocol):
    """Measures requests; implemented by `pocketmq.remoting.serving.rpc_latency.RpcLatency`."""

    def around(self, code: int, handler: Handler, /) -> Handler:
        """Return a handler of `code` that does the same and is measured."""

    def around_many(self, code: int, handler: ManyHandler, /) -> ManyHandler:
        """The same for a handler of many requests."""

    def around_reads(self, handler: ReadHandler, /) -> ReadHandler:
        """The same for a handler of reads."""

    def unknown(self, request: Request[Any], answer: int, /) -> None:
        """Count a request of a code without a handler, and the code of its answer."""


class Route(NamedTuple):
    """The handler of a request code, its handler for many at once, and its extFields class.

    `registered` is the handler that the code was registered with, also when that is wrapped."""

    code: int
    handler: Handler
    header: type[Header] | None
    registered: Handler
    many: ManyHandler | None = None


class _HeaderTypes(Mapping[int, type[Header] | None]):
    """The header class of each code, as a live view of the routes."""

    def __init__(self, routes: dict[int, Route]) -> None:
        self._routes = routes

    def __getitem__(self, code: int) -> type[Header] | None:
        return self._routes[code].header

    def __contains__(self, code: object) -> bool:
        return code in self._routes  # Mapping's raises a KeyError and catches it

    def __iter__(self) -> Iterator[int]:
        return iter(self._routes)

    def __len__(self) -> int:
        return len(self._routes)


class Dispatcher:
    """The table of routes.

    Requests that wait for something may have `waiting_limit` bytes together, of it a tenth per
    connection and half per address: those above it are refused with SYSTEM_BUSY. By default 512
    MiB, or a quarter of the memory, but at least 192 MiB.

    Attributes:
        codes: the routes by request code, read-only and live.
        header_types: what a `pocketmq.remoting.serving.request.RequestDecoder` needs, live as well.
        many: the handlers for many requests at once by request code, likewise.
        unsupported: the remembered answers to unknown codes.
        read_handler: executes requests straight from what was read; None without one.
        log: for failures of requests, and of the connections that they come on.
    """

    def __init__(self, *, waiting_limit: int | None = None) -> None:
        self.log = LimitedLog(log)
        if waiting_limit is None:
            waiting_limit = max(at_most(WAITING_LIMIT), LEAST_WAITING_LIMIT)
        self._waiting = Budget(waiting_limit, "waiting requests", "bytes", self.log)
        self._routes: dict[int, Route] = {}
        self._many: dict[int, ManyHandler] = {}
        self._check: Check | None = None
        self._meter: Meter | None = None
        self.read_handler: ReadHandler | None = None
        self._guarded_reads: GuardedReadHandler | None = None
        self._read_codes: tuple[int, ...] = ()
        self.unsupported: dict[int, Response] = {}
        self.many: Mapping[int, ManyHandler] = MappingProxyType(self._many)
        self.codes: Mapping[int, Route] = MappingProxyType(self._routes)
        self.header_types: Mapping[int, type[Header] | None] = _HeaderTypes(self._routes)

    def register(
        self,
        code: int,
        handler: Handler,
        header: type[Header] | None = None,
        *,
        many: ManyHandler | None = None,
    ) -> None:
        """Serve `code` by `handler`; several requests at once, from a batch or one read, by
        `many`.

        Raises:
            ValueError: the code has a handler already.
        """
        code = int(code)
        if code in self._routes:
            raise ValueError(
                f"request code {code} is served by {self._routes[code].handler} already"
            )
        self._add(Route(code, handler, header, handler, many))

    def serve_reads(self, handler: GuardedReadHandler, codes: Sequence[int]) -> None:
        """Have `handler` execute requests of these codes from now on, wherever it can. It is
        dropped as soon as their handlers are wrapped, or checked without a guard for it, because it
        does not call them. To be called before `protect` and `measure`."""
        if self._check is None:
            self.read_handler = self._guarded_reads = handler
            self._read_codes = tuple(map(int, codes))

    def _add(self, route: Route) -> None:
        if self._check is not None:
            route = _checked(route, self._check)
        self._routes[route.code] = route
        self.unsupported.pop(route.code, None)
        if route.many is not None:
            self._many[route.code] = route.many

    def protect(self, check: Check, guard: ReadGuard | None = None) -> None:
        """Ask `check` before each request from now on: single ones, children, many at once, and
        those of unknown codes; a handler of reads asks `guard`. Without a check, none of this costs
        anything.

        Raises:
            ValueError: there is a check already.
        """
        if self._check is not None:
            raise ValueError("the dispatcher is protected already")
        self._check = check
        reads = self._guarded_reads
        if guard is None or reads is None or not guard.guards_reads(self._read_codes):
            self.read_handler = None
        elif self.read_handler is not None:
            self.read_handler = partial(reads, guard=guard)
        for route in list(self._routes.values()):
            self._add(route)

    def measure(self, meter: Meter) -> None:
        """Let `meter` measure each request from now on, also of the codes that are registered so
        far. To be called last: what it measures includes a check. Without it, nothing is measured
        and this costs nothing.

        Raises:
            ValueError: the requests are measured already.
        """
        if self._meter is not None:
            raise ValueError("the dispatcher is measured already")
        self._meter = meter
        if self.read_handler is not None:
            self.read_handler = meter.around_reads(self.read_handler)
        for code, route in list(self._routes.items()):
            many = None if route.many is None else meter.around_many(code, route.many)
            self._routes[code] = route._replace(
                handler=meter.around(code, route.handler), many=many
            )
            if many is not None:
                self._many[code] = many

    def wrap(self, code: int, wrapper: Callable[[Handler], Handler]) -> None:
        """Serve `code` by `wrapper(its handler)` from now on, always one by one.

        Raises:
            ValueError: the code has no handler.
        """
        route = self._routes.get(int(code))
        if route is None:
            raise ValueError(f"request code {int(code)} has no handler")
        self._routes[route.code] = route._replace(handler=wrapper(route.handler), many=None)
        self._many.pop(route.code, None)
        if route.code in self._read_codes:
            self.read_handler = None

    def dispatch(self, request: Request[Any]) -> Answer:
        """Run the request's handler; never raises.

        An unknown code, a `RemotingError` and any other exception become error responses;
        an awaitable given back does the same with what it raises.
        """
        try:
            route = self._routes[request.code]
        except KeyError:
            if self._check is not None:
                try:
                    refusal = self._check(request)
                except Exception as error:
                    return self._failure(request, error)
                if refusal is not None:
                    return refusal
            if self._meter is not None:
                self._meter.unknown(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            return self._unknown(request.code)
        try:
            answer = route.handler(request)
        except Exception as error:
            return self._failure(request, error)
        # Recognised by its type, so that awaitables need no check.
        kind = type(answer)
        if kind is Response or kind is bytes or answer is None:
            return answer
        size = len(request.head) + len(request.body)
        if size > LITTLE:
            if not self._waiting.take(request, size):
                if iscoroutine(answer):
                    answer.close()
                    return Response(
                        ResponseCode.SYSTEM_BUSY,
                        "[OVERLOAD]the requests that wait for something have too many bytes",
                    )
                size = 0  # it has begun
            answer = self._counted(request, size, answer)  # type: ignore[arg-type]
        return self._guarded(request, answer)  # type: ignore[arg-type]

    def _unknown(self, code: int) -> Response:
        answers = self.unsupported
        answer = answers.get(code)
        if answer is None:
            answer = Response.repeatable(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported"
            )
            if len(answers) >= MOST_UNSUPPORTED:
                answers.clear()
            answers[code] = answer
        return answer

    def dispatch_many(self, requests: Sequence[Request[Any]]) -> Sequence[Response | bytes | None]:
        """Run the first of these requests together, and return their answers; never raises.

        The others are for `dispatch`, one by one. There may be no answers at all.
        """
        try:
            return self._many[requests[0].code](requests)
        except Exception as error:
            self.log.exception(
                "%d requests %d failed together, and are executed one by one: %s",
                len(requests),
                requests[0].code,
                error,
                cause=("failed together", requests[0].code, type(error)),
            )
            return ()

    async def _counted(
        self, request: Request[Any], size: int, answer: Awaitable[Response | None]
    ) -> Response | None:
        try:
            return await answer
        finally:
            self._waiting.give_back(request, size)

    async def _guarded(
        self, request: Request[Any], answer: Awaitable[Response | None]
    ) -> Response | None:
        try:
            return await answer
        except Exception as error:
            return self._failure(request, error)

    def _failure(self, request: Request[Any], error: Exception) -> Response:
        if isinstance(error, RemotingError):
            return Response(error.code, error.remark)
        self.log.exception(
            "request %d failed: %s",
            request.code,
            error,
            cause=("failed", request.code, type(error)),
        )
        return Response(ResponseCode.SYSTEM_ERROR, unexpected(error))


def _checked(route: Route, check: Check) -> Route:
    """The same route with a check before it."""
    handler, many = route.handler, route.many

    def checked(request: Request[Any]) -> Answer:
        refusal = check(request)
        return handler(request) if refusal is None else refusal

    if many is None:
        return route._replace(handler=checked)
    execute: ManyHandler = many

    def many_checked(requests: Sequence[Request[Any]]) -> Sequence[Response | bytes | None]:
        # Up to the first refusal; if it is the first request, that is dispatched alone. Requests
        # after another code, which `execute` would leave, are not checked: a check may be costly.
        answers: list[Response | bytes | None] = []
        allowed = 0
        code = requests[0].code
        for request in requests:
            if request.code != code or check(request) is not None:
                break
            allowed += 1
        if allowed:
            answers.extend(execute(requests[:allowed]))
        return answers

    return route._replace(handler=checked, many=many_checked)
