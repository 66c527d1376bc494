"""The answer to a parent of the Batch-Protocol (`pocketmq.remoting.answers.batch`). No I/O.

`BatchAnswers` is the channel that children answer to; it holds the answers and finally becomes the
parent's answer. Its `MergeStrategy` decides when. An answer is a head and, for pulls, the slices of
the mapped file that it came with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final, Protocol

from pocketmq.error_kind import unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.message.buffers import Buffer
from pocketmq.remoting.answers.batch import SUCCESS_REMARK, Children
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.frames.splitter import MAX_FRAME
from pocketmq.remoting.serving.replaced_answers import replace_answers
from pocketmq.remoting.serving.request import Channel, Request, RequestConnection, Response

log = LimitedLog(logging.getLogger("pocketmq.remoting"))

_PARENT_HEAD: Final = 1024  # bytes kept free for the parent's own header
_MAX_ANSWER: Final = MAX_FRAME - _PARENT_HEAD
_SHORT_ANSWER: Final = 256  # bytes kept free for each child, to say that its answer is too large
_SUCCESS: Final = int(ResponseCode.SUCCESS)  # a member's look-up shows on the way of each batch


class MergeStrategy(Protocol):
    """Decides when a parent is answered, and what becomes of children without an answer."""

    def order(self, children: Sequence[Request[Any]]) -> Iterable[Request[Any]]:
        """The order in which to execute the children."""

    def note(self, answers: BatchAnswers, child: Request[Any], response: Response) -> None:
        """A child was answered."""

    def skips(self, answers: BatchAnswers, child: Request[Any]) -> bool:
        """Asked before each child: whether its execution can be skipped."""

    def complete(self, answers: BatchAnswers) -> bool:
        """Asked when all are executed, and after each later answer: whether to answer now."""

    def release(self, child: Request[Any]) -> Response:
        """Ends what an unanswered child is waiting for; returns its answer."""

    def oversized(self, child: Request[Any], size: int) -> Response:
        """The answer of a child whose own answer, of this many bytes, does not fit in the
        parent's."""


class _Answered:
    """The channel of a child that has its answer: further answers are dropped."""

    def respond(self, request: Request[Any], response: Response) -> None:
        pass

    def replace_answers(self, opaques: Set[int], response: Response) -> Set[int]:
        return opaques


_ANSWERED: Final = _Answered()


class AnsweredParent(_Answered):
    """The channel of all children of a parent that has been answered on this connection."""

    def __init__(self, connection: RequestConnection, opaque: int) -> None:
        self._connection = connection
        self._opaque = opaque

    def replace_answers(self, opaques: Set[int], response: Response) -> Set[int]:
        return self._connection.replace_answers(opaques, response, within=self._opaque)


class BatchAnswers:
    """The answers of one parent's children so far; the channel that the children answer to.

    Attributes:
        waiting: the number of children without an answer.
        size: bytes of the answers.
        heard: whether the client gets the parent's answer, and that is not made yet.
        ready: the number of answered children (counted by strategies that need it, without
            those that were refused at once).
        messages: the number of messages they brought (likewise).
        enough: whether these suffice, so that the other children need not read (likewise).
        on_complete: called, maybe more than once, when a late answer completes the parent.
    """

    __slots__ = ("_buffers", "_executed", "_merged", "_parent", "_requests", "_room", "_strategy",
                 "enough", "heard", "messages", "on_complete", "ready", "size",
                 "waiting")  # fmt: skip

    def __init__(
        self,
        children: Children,
        strategy: MergeStrategy,
        parent: Request[Any] | None = None,
    ) -> None:
        """`parent` may be left out where no child looks at its connection."""
        connection = parent.connection if parent is not None else None
        self._parent = parent
        self._merged = False
        self._requests = children.requests + children.resumed
        self.waiting = len(self._requests)
        self.size = 0
        self.heard = True
        self.ready = len(children.refused)
        self.messages = 0
        self.enough = False
        self.on_complete: Callable[[], object] = _nothing
        self._strategy = strategy
        self._buffers: list[Buffer] = []
        self._executed = False
        self._room = _MAX_ANSWER - _SHORT_ANSWER * self.waiting
        for request in self._requests:
            request.connection = connection  # type: ignore[assignment]
            request.channel = self
        for opaque, serialize_type, remark in children.refused:
            self._add(opaque, serialize_type, Response(ResponseCode.SYSTEM_ERROR, remark))

    @property
    def parent(self) -> Request[Any] | None:
        """The request whose children these are."""
        return self._parent

    def respond(self, request: Request[Any], response: Response) -> None:
        """A child's answer; ignored when it has one, e.g. from `merge`."""
        # Pending children are marked themselves: that is cheaper than a table of them.
        if request.channel is not self:
            return
        request.channel = _ANSWERED
        self.waiting -= 1
        if oversize := self._add(request.opaque, request.serialize_type, response):
            response = self._add_instead(request, oversize)
        self._strategy.note(self, request, response)
        if self._executed and self._strategy.complete(self):
            self.on_complete()

    def respond_all(
        self, requests: Sequence[Request[Any]], responses: Sequence[Response | bytes | None]
    ) -> None:
        """Answers of several children that were executed together; for the base strategy, which
        takes no notes. Bytes are a whole frame without a body, None is answered later."""
        buffers = self._buffers
        before, size_before = len(buffers), self.size
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
        if self.size > self._room:
            # Too large together: add them one by one, each with its size checked.
            del buffers[before:]
            self.size = size_before
            for request, answer in zip(requests, responses, strict=False):
                if type(answer) is bytes:
                    oversize = self._add_frame(answer)
                elif answer is not None:
                    kind = request.serialize_type
                    oversize = self._add(request.opaque, kind, answer)  # type: ignore[arg-type]
                else:
                    continue
                if oversize:
                    self._add_instead(request, oversize)

    def replace_answers(self, opaques: Set[int], response: Response) -> Set[int]:
        """Replace answers of these children that have not left yet by `response`. Return the
        opaques of those that need no more answer."""
        if self._merged and self._parent is not None:
            return self._parent.connection.replace_answers(
                opaques, response, within=self._parent.opaque
            )
        self._buffers, found = replace_answers(self._buffers, opaques, response)
        self.size = sum(map(len, self._buffers))
        return found

    def hears(self) -> bool:
        """Whether a short answer that a child gives now will reach the client."""
        return self.heard and self.size + _PARENT_HEAD <= self._room

    def executed(self) -> bool:
        """All children to be executed have been; return whether the parent is complete."""
        self._executed = True
        return self._strategy.complete(self)

    def merge(self) -> Response:
        """The parent's answer. Pending children are released."""
        for child in self.leave(_ANSWERED):
            response = self._strategy.release(child)
            self._add(child.opaque, child.serialize_type, response, _MAX_ANSWER)
        return self.merge_answered()

    def merge_answered(self) -> Response:
        """The parent's answer without the pending children; see `leave`."""
        self.heard = False
        self._merged = True
        self.on_complete = _nothing  # it refers to these answers
        buffers, self._buffers = self._buffers, []
        return Response(_SUCCESS, SUCCESS_REMARK, body=buffers)

    def leave(self, channel: Channel) -> list[Request[Any]]:
        """The pending children: from here on they answer to `channel`."""
        requests, self._requests = self._requests, []
        left = [child for child in requests if child.channel is self] if self.waiting else []
        for child in left:
            child.channel = channel
        self.waiting = 0
        return left

    def lost(self) -> None:
        """The client is gone. Children and answers no longer refer to each other: the garbage
        collector would come very late for what was held for long."""
        self.leave(_ANSWERED)
        self.heard = False
        self.on_complete = _nothing

    def _add_instead(self, request: Request[Any], oversize: int) -> Response:
        """Append the answer that replaces one of this many bytes, which does not fit."""
        response = self._strategy.oversized(request, oversize)
        self._add(request.opaque, request.serialize_type, response, _MAX_ANSWER)
        return response

    def _add_frame(self, frame: bytes) -> int:
        """Like `_add`, for an answer that is a frame already."""
        size = len(frame)
        if self.size + size > self._room:
            return size
        self.size += size
        self._buffers.append(frame)
        return 0

    def _add(
        self, opaque: int, serialize_type: int, response: Response, room: int | None = None
    ) -> int:
        """Append an answer and return 0; or return its size if the parent's frame has no room.

        `room`: bytes for all answers; by default what leaves a short one for each child.
        """
        try:
            length = response.length
            head = response.head(serialize_type, opaque, length)
        except Exception as error:
            log.exception("the answer to child %d of a batch cannot be written", opaque)
            failure = Response(ResponseCode.SYSTEM_ERROR, unexpected(error))
            head = failure.head(serialize_type, opaque, 0)
            length = 0
        size = len(head) + length
        if self.size + size > (room or self._room):
            return size
        self.size += size
        self._buffers.append(head)
        if length:
            response.add_body(self._buffers)
        return 0


def is_heard(request: Request[Any]) -> bool:
    """Whether an answer given now will reach the client, as far as can be known."""
    channel = request.channel
    if request.oneway or request.connection.closed:
        return False
    return channel.hears() if isinstance(channel, BatchAnswers) else channel is request.connection


def lost(request: Request[Any]) -> None:
    """The client of a request that waited is gone."""
    if isinstance(request.channel, BatchAnswers):
        request.channel.lost()


def has_enough(request: Request[Any]) -> bool:
    """Whether this is the child of a parent that has enough data without it."""
    channel = request.channel
    return isinstance(channel, BatchAnswers) and channel.enough


def _nothing() -> None:
    """What completes before its owner asked to be told is found by `executed`."""
