"""The Batch-Protocol: many child requests in one parent. No I/O.

A parent is an ordinary frame of code 666 whose body is a row of whole child frames; its answer's
body is a row of whole answer frames. A child is known by its opaque, which is unique within its
parent. Everything else about a child is as if it came alone: its serialization, its checks, its
own code. Source: RocketMQ issue 5516; docs/batch-protocol.md describes the protocol and where this
differs from the pull request that first drew it.

When a parent is answered is up to its :class:`MergeStrategy`. :class:`BatchAnswers` is the channel
that children answer to; it holds what has come and becomes the parent's answer in the end.

Children are many and small, so both directions are straight-line: a parent is cut and decoded in
one loop without a call per child but the JSON decoder's, and an answer is a head and, for pulls,
the slices of the mapped file that it came with.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, Final, Protocol

from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import BodyError, FrameError, HeaderError
from remoting.frame import decode_command, encode_response_frame
from remoting.json_header import DECODE_ERRORS
from remoting.request import (
    Buffer,
    Channel,
    Request,
    RequestConnection,
    RequestDecoder,
    Response,
)
from remoting.splitter import MAX_FRAME

log = logging.getLogger("remoting.batch")

MAX_CHILDREN: Final = 1000
"""Children of one parent. The reference only warns above it; here the parent is refused."""

SUCCESS_REMARK: Final = "success (merge batch response strategy)"
NOT_FOUND_REMARK: Final = "pull not found (merge batch response strategy)"
RATE_LIMIT_REMARK: Final = "rate limit (merge batch response strategy)"

_PARENT_HEAD: Final = 1024  # bytes kept free for the parent's own header
_MAX_ANSWER: Final = MAX_FRAME - _PARENT_HEAD
_SUCCESS: Final = int(ResponseCode.SUCCESS)  # a member's look-up shows on the way of each batch
_PREFIX: Final = 12  # bytes of a header by which RequestDecoder.quick knows its decoder
_COPY_LIMIT: Final = 8192  # a child's body up to here is copied, a larger one is a view

_BUFFERS: Final = (bytes, bytearray, memoryview)

_unpack_length = Layout(">I").unpack_from
_unpack_words = Layout(">II").unpack_from
_NOT_QUICKLY: Final = (KeyError, LayoutError, *DECODE_ERRORS)
"""A child cut off, a prefix not seen yet, or a header that only the tolerant path understands."""


_NONE_KNOWN: Final[Mapping[bytes, Request[Any]]] = {}


class BatchError(BodyError):
    """A parent that can not be taken apart; nothing of it is executed."""


def child_frames(body: Buffer) -> Iterator[memoryview]:
    """The frames in a parent's body, each without its 4 length bytes.

    Raises:
        BatchError: a length that is too small, or reaches beyond the body.
    """
    view = memoryview(body)
    at = 0
    while at < len(view):
        end = _end_of_child(view, at)
        yield view[at + 4 : end]
        at = end


def _end_of_child(body: Buffer, at: int) -> int:
    """Where the child that begins at byte `at` ends. Raises BatchError."""
    if len(body) - at < 4:
        raise BatchError(f"{len(body) - at} bytes behind the last child")
    length: int = _unpack_length(body, at)[0]
    if not 4 <= length <= len(body) - at - 4:
        raise BatchError(f"child frame of {length} bytes at byte {at} of a body of {len(body)}")
    return at + 4 + length


def decode_answers(body: Buffer) -> dict[int, Command]:
    """A parent's answer: the children's answers by opaque. A missing child has no news.

    Raises:
        BatchError: the body can not be taken apart, or names an opaque twice.
    """
    answers: dict[int, Command] = {}
    for frame in child_frames(body):
        try:
            answer = decode_command(frame)
        except (FrameError, HeaderError) as error:
            raise BatchError(f"answer {len(answers) + 1} of a batch: {error.remark}") from None
        if answer.opaque in answers:
            raise BatchError(f"duplicated key {answer.opaque}")
        answers[answer.opaque] = answer
    return answers


class Children:
    """The children of one parent, decoded but not executed.

    Attributes:
        requests: in the order of the body, oneway bits cleared: an answer costs nothing here.
        resumed: children that were found among the `known` and are in execution already.
        refused: children whose header makes no sense, as (opaque, serialize type, remark).
    """

    def __init__(
        self,
        body: Buffer,
        decoder: RequestDecoder,
        limit: int = MAX_CHILDREN,
        known: Mapping[bytes, Request[Any]] = _NONE_KNOWN,
    ) -> None:
        """`known`: requests without a body, by their header's bytes, that need no decoding.

        Raises :class:`BatchError`: nothing in it, too many, twice the same opaque, cut off.
        """
        self.requests: list[Request[Any]] = []
        self.resumed: list[Request[Any]] = []
        self.refused: list[tuple[int, int, str]] = []
        # Slices of bytes are quicker than views of them, and serve as keys.
        data = bytes(body)
        view = memoryview(data)
        size = len(data)
        quick = decoder.quick
        requests = self.requests
        left = limit
        at = 0
        while at < size:
            left -= 1
            if left < 0:
                raise BatchError(f"more than {limit} children")
            request: Request[Any] | None = None
            end = body_at = 0
            try:
                length, word = _unpack_words(data, at)
                end = at + 4 + length
                # A binary header's word is beyond any body's end, so it goes the other way too.
                body_at = at + 8 + word
                head = data[at + 8 : body_at]
                if known and head in known and end == body_at:
                    self.resumed.append(known[head])
                    at = end
                    continue
                request = quick[head[:_PREFIX]](head)
            except _NOT_QUICKLY:
                pass
            if request is None or request.flag or not body_at <= end <= size:
                end = _end_of_child(data, at)
                self._decode(view[at + 4 : end], decoder)
            else:
                request.head = head
                small = end - body_at <= _COPY_LIMIT
                request.body = data[body_at:end] if small else view[body_at:end]
                requests.append(request)
            at = end
        if left == limit:
            raise BatchError("no child")
        self._check_opaques()

    def _decode(self, frame: memoryview, decoder: RequestDecoder) -> None:
        """A child whose header is binary, unusual, new or wrong."""
        number = len(self.requests) + len(self.refused) + 1
        try:
            # Like a frame from the network, which is bytes as long as it is not large.
            request = decoder.decode(frame if len(frame) > _COPY_LIMIT else bytes(frame))
        except HeaderError as error:
            if error.opaque is None:
                raise BatchError(f"child {number}: {error.remark}") from None
            self.refused.append((error.opaque, error.serialize_type, error.remark))
        except FrameError as error:
            raise BatchError(f"child {number}: {error.remark}") from None
        else:
            if request.flag & 1:
                raise BatchError(f"child {number} is an answer, not a request")
            request.flag &= ~2
            self.requests.append(request)

    def _check_opaques(self) -> None:
        opaques = {request.opaque for request in self.requests}
        if len(opaques) == len(self.requests) and not self.refused and not self.resumed:
            return
        seen: set[int] = set()
        alive = (request.opaque for request in [*self.requests, *self.resumed])
        for opaque in [*alive, *(refused[0] for refused in self.refused)]:
            if opaque in seen:
                raise BatchError(f"duplicated key {opaque}")
            seen.add(opaque)


class MergeStrategy(Protocol):
    """When a parent is answered, and what becomes of the children that have no answer then."""

    def order(self, children: Sequence[Request[Any]]) -> Iterable[Request[Any]]:
        """The order in which to execute the children."""

    def note(self, answers: "BatchAnswers", child: Request[Any], response: Response) -> None:
        """A child was answered."""

    def skips(self, answers: "BatchAnswers", child: Request[Any]) -> bool:
        """Asked before each child: whether it need not be executed any more."""

    def complete(self, answers: "BatchAnswers") -> bool:
        """Asked when all are executed, and after each later answer: whether to answer now."""

    def release(self, child: Request[Any]) -> Response:
        """Ends what an unanswered child still waits for; returns its answer."""

    def oversized(self, child: Request[Any], size: int) -> Response:
        """The answer of a child whose own one, of so many bytes, does not fit in the parent's."""


class _Answered:
    """The channel of a child that has its answer: nothing more is said about it."""

    def respond(self, request: Request[Any], response: Response) -> None:
        pass


_ANSWERED: Final = _Answered()


class BatchAnswers:
    """The answers of one parent's children so far; the channel that the children answer to.

    Attributes:
        waiting: how many children have no answer yet.
        size: bytes of the answers.
        ready: how many children were answered (counted by the strategy that cares).
        messages: how many messages they brought (likewise).
        on_complete: called, maybe more than once, when a late answer completes the parent.
    """

    __slots__ = ("_buffers", "_executed", "_requests", "_strategy", "messages",
                 "on_complete", "ready", "size", "waiting")  # fmt: skip

    def __init__(
        self,
        children: Children,
        strategy: MergeStrategy,
        connection: RequestConnection | None = None,
    ) -> None:
        self._requests = children.requests + children.resumed
        self.waiting = len(self._requests)
        self.size = 0
        self.ready = 0
        self.messages = 0
        self.on_complete: Callable[[], object] = _nothing
        self._strategy = strategy
        self._buffers: list[Buffer] = []
        self._executed = False
        for request in self._requests:
            request.connection = connection  # type: ignore[assignment]
            request.channel = self
        for opaque, serialize_type, remark in children.refused:
            self._add(opaque, serialize_type, Response(ResponseCode.SYSTEM_ERROR, remark))

    def respond(self, request: Request[Any], response: Response) -> None:
        """A child's answer; ignored when it has one, e.g. from :meth:`merge`."""
        # Which children wait is marked on themselves: that is cheaper than a table of them.
        if request.channel is not self:
            return
        request.channel = _ANSWERED
        self.waiting -= 1
        if oversize := self._add(request.opaque, request.serialize_type, response):
            response = self._strategy.oversized(request, oversize)
            self._add(request.opaque, request.serialize_type, response)
        self._strategy.note(self, request, response)
        if self._executed and self._strategy.complete(self):
            self.on_complete()

    def respond_all(
        self, requests: Iterable[Request[Any]], responses: Iterable[Response | bytes | None]
    ) -> None:
        """Answers of several children that were executed together; for the base strategy, which
        takes no notes. Bytes are a whole frame without a body, None is answered later."""
        buffers = self._buffers
        size = answered = 0
        for request, response in zip(requests, responses, strict=False):
            if type(response) is bytes:
                request.channel = _ANSWERED
                answered += 1
                size += len(response)
                buffers.append(response)
            elif response is not None:
                self.respond(request, response)  # type: ignore[arg-type]
        self.size += size
        self.waiting -= answered

    def executed(self) -> bool:
        """All children that are to be executed have been; whether the parent is complete."""
        self._executed = True
        return self._strategy.complete(self)

    def merge(self) -> Response:
        """The parent's answer. Children that still wait are released."""
        for child in self.leave(_ANSWERED):
            self._add(child.opaque, child.serialize_type, self._strategy.release(child))
        return self.merge_answered()

    def merge_answered(self) -> Response:
        """The parent's answer without the children that still wait; see :meth:`leave`."""
        buffers, self._buffers = self._buffers, []
        return Response(_SUCCESS, SUCCESS_REMARK, body=buffers)

    def leave(self, channel: Channel) -> list[Request[Any]]:
        """The children that still wait: from here on they answer to `channel`."""
        requests, self._requests = self._requests, []
        left = [child for child in requests if child.channel is self] if self.waiting else []
        for child in left:
            child.channel = channel
        self.waiting = 0
        return left

    def _add(self, opaque: int, serialize_type: int, response: Response) -> int:
        """Append an answer; or its size where the parent's frame has no room for it, else 0."""
        body = response.body
        length = 0
        if body:
            length = len(body) if isinstance(body, _BUFFERS) else sum(map(len, body))
        try:
            head = encode_response_frame(
                serialize_type,
                opaque,
                response.code,
                response.remark,
                response.header,
                length,
                response.ext_fields,
            )
        except Exception as error:
            log.exception("the answer to child %d of a batch can not be written", opaque)
            length = 0
            head = encode_response_frame(
                serialize_type, opaque, ResponseCode.SYSTEM_ERROR, repr(error)
            )
        size = len(head) + length
        if self.size + size > _MAX_ANSWER:
            return size
        self.size += size
        self._buffers.append(head)
        if length:
            if isinstance(body, _BUFFERS):
                self._buffers.append(body)
            else:
                self._buffers.extend(body)
        return 0


def _nothing() -> None:
    """What completes before its owner asked to be told is found by `executed`."""
