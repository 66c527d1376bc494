"""The Batch-Protocol: many child requests in one parent. No I/O.

A parent is an ordinary frame of code 666 whose body is a sequence of whole child frames; its
answer's body is a sequence of whole answer frames. A child is known by its opaque, which is unique
within its parent. Everything else about a child is as if it came alone: its serialization, its
checks, its own code. Source: RocketMQ issue 5516; docs/batch-protocol.md describes the protocol and
where this differs from the pull request that proposed it.

This module takes parents and answers apart; `remoting.batch_answers` makes a parent's answer.
Children are many and small, so the code is straight-line: a parent is cut and decoded in one loop
without a call per child except the JSON decoder's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, Final

import msgspec

from pocketmq.message import loose_json
from pocketmq.message.buffers import Buffer
from pocketmq.remoting.errors import BodyError, FrameError, HeaderError
from pocketmq.remoting.frames.command import Command
from pocketmq.remoting.frames.frame import decode_command
from pocketmq.remoting.frames.json_header import DECODE_ERRORS
from pocketmq.remoting.serving.request import MAX_REQUEST_HEADER, Request, RequestDecoder

MAX_CHILDREN: Final = 1000
"""Children of one parent. With more, the reference only warns; here the parent is refused."""

MOST_HEADERS: Final = 4 << 20
"""Bytes of the headers of all children."""

MOST_UNUSUAL_HEADERS: Final = 128 << 10
"""The same for headers that a quick decoder does not understand; the last one may exceed it. Of
those that are not standard JSON, all together may have as many bytes as a single one."""

SUCCESS_REMARK: Final = "success (merge batch response strategy)"
NOT_FOUND_REMARK: Final = "pull not found (merge batch response strategy)"
RATE_LIMIT_REMARK: Final = "rate limit (merge batch response strategy)"

_PREFIX: Final = 12  # bytes of a header by which RequestDecoder.quick knows its decoder
_HEADER_SIZE: Final = 0xFFFFFF  # of the word before a header; the rest says how it is written
_STEP: Final = 64  # children decoded in one go; one takes up to 25 µs
_COPY_LIMIT: Final = 8192  # a child's body up to here is copied, a larger one is a view

_unpack_length = Layout(">i").unpack_from
_unpack_words = Layout(">II").unpack_from
_NOT_QUICKLY: Final = (KeyError, LayoutError, *DECODE_ERRORS)
"""A child cut off, a prefix not seen yet, or a header that only the tolerant path understands."""


_NONE_KNOWN: Final[Mapping[bytes, Request[Any]]] = {}


class BatchError(BodyError):
    """A parent that cannot be taken apart; none of its children is executed."""


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
    """Return where the child that begins at byte `at` ends. Raises BatchError."""
    if len(body) - at < 4:
        raise BatchError(f"{len(body) - at} bytes behind the last child")
    length: int = _unpack_length(body, at)[0]
    if not 4 <= length <= len(body) - at - 4:
        raise BatchError(f"child frame of {length} bytes at byte {at} of a body of {len(body)}")
    return at + 4 + length


def decode_answers(body: Buffer) -> dict[int, Command]:
    """A parent's answer: the children's answers by opaque. A missing child has nothing new.

    Raises:
        BatchError: the body cannot be taken apart, or names an opaque twice.
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
        resumed: children that were found among the `known`; they are in execution already.
        refused: children with an invalid header, as (opaque, serialize type, remark).
    """

    def __init__(
        self,
        body: Buffer,
        decoder: RequestDecoder,
        limit: int = MAX_CHILDREN,
        known: Mapping[bytes, Request[Any]] = _NONE_KNOWN,
    ) -> None:
        """`known`: requests without a body, by their header's bytes, that need no decoding."""
        self.requests: list[Request[Any]] = []
        self.resumed: list[Request[Any]] = []
        self.refused: list[tuple[int, int, str]] = []
        self._body = body
        self._decoder = decoder
        self._limit = limit
        self._known = known
        self._loose = 0  # bytes of headers that are not standard JSON
        self._unusual = 0  # bytes of headers that took long

    def decode(self) -> Iterator[None]:
        """Fill the lists, in steps of a millisecond or two at most.

        Raises `BatchError`: no children, too many, too many bytes of headers, a repeated opaque, or
        a child cut off.
        """
        # Slices of bytes are quicker than views of them, and serve as keys.
        data = bytes(self._body)
        self._body = b""
        view = memoryview(data)
        size = len(data)
        decoder = self._decoder
        quick = decoder.quick
        known = self._known
        requests = self.requests
        at = heads = word = 0
        for number in range(self._limit):
            if at == size:
                break
            if number and not number % _STEP:
                yield
            request: Request[Any] | None = None
            end = body_at = 0
            try:
                length, word = _unpack_words(data, at)
                heads += word & _HEADER_SIZE
                if heads > MOST_HEADERS:
                    break
                if word > MAX_REQUEST_HEADER:
                    raise KeyError  # too long, or binary: its upper bits are set
                end = at + 4 + length
                body_at = at + 8 + word
                head = data[at + 8 : body_at]
                if known and head in known and end == body_at <= size:
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
        if at < size:
            taken = len(requests) + len(self.resumed) + len(self.refused)
            raise BatchError(f"more than {max(taken, 1)} children")
        if not size:
            raise BatchError("no child")
        self._check_opaques()

    def _decode(self, frame: memoryview, decoder: RequestDecoder) -> None:
        """A child whose header is binary, unusual, new or wrong."""
        number = len(self.requests) + len(self.resumed) + len(self.refused) + 1
        self._loose += _loose_bytes(frame)
        if self._loose > loose_json.MAX_LENGTH:
            raise BatchError(
                f"headers of more than {loose_json.MAX_LENGTH} bytes are not standard JSON"
            )
        if self._unusual > MOST_UNUSUAL_HEADERS:
            raise BatchError(f"more than {MOST_UNUSUAL_HEADERS} bytes of unusual headers")
        before = decoder.unusual_bytes
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
        self._unusual += decoder.unusual_bytes - before

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


def _loose_bytes(frame: memoryview) -> int:
    """Return the size of a header that claims to be JSON and is not standard JSON; else 0."""
    size = _unpack_length(frame)[0]
    if not 0 <= size <= MAX_REQUEST_HEADER:
        return 0  # binary, or too long
    try:
        msgspec.json.decode(frame[4 : 4 + size], type=msgspec.Raw)
    except DECODE_ERRORS:
        return int(size)
    return 0
