"""A request as handlers see it, their response, and the fast frame decoder.

Decoding is tuned, because every message sent to a broker passes here. One call of msgspec's C
decoder makes the Request together with its typed header: the frame's JSON header is parsed straight
into them, with numbers read from strings. That works for headers that begin with `{"code":N,`, as
all known peers write them, and that follow the rules. For other headers (bare numbers as extField
values, unknown spellings of booleans), the tolerant path gives the same result more slowly. Binary
headers have their own quick path in `pocketmq.remoting.frames.binary_header`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from pocketmq.message.buffers import Buffer
from pocketmq.remoting.errors import FrameError, HeaderError
from pocketmq.remoting.frames.binary_header import FIXED_SIZE, broken_binary_header
from pocketmq.remoting.frames.binary_layout import LayoutCache
from pocketmq.remoting.frames.frame import (
    Command,
    SerializeType,
    cut_response,
    decode_command,
    encode_response_frame,
    join_response,
)
from pocketmq.remoting.frames.json_header import DECODE_ERRORS, broken_json_header
from pocketmq.remoting.headers.base import I32, Header

H = TypeVar("H", bound=Header)

_BUFFERS = (bytes, bytearray, memoryview)


class Response(msgspec.Struct):
    """The answer to a request. `body` may be several buffers, which are sent one after another.

    `ext_fields` are sent beside the header's fields, or instead of a header. `cut` keeps the frame
    of an answer that is sent repeatedly, see `repeatable`.
    """

    code: int = 0
    remark: str | None = None
    header: Header | None = None
    body: Buffer | Sequence[Buffer] = b""
    ext_fields: dict[str, str] | None = None
    cut: dict[int, tuple[bytes, bytes]] | None = None

    @classmethod
    def repeatable(cls, code: int, remark: str, header: Header | None = None) -> Response:
        """Return a refusal that is encoded once, for all requests that get it."""
        return cls(code, remark, header, cut={})

    def parts(self, serialize_type: int) -> tuple[bytes, bytes]:
        """Return the parts of the frame of a repeatable answer before and after the opaque, as
        `cut_response` does. Raises EncodeError."""
        cut = self.cut
        assert cut is not None
        if serialize_type not in cut:
            cut[serialize_type] = cut_response(serialize_type, self.code, self.remark, self.header)
        return cut[serialize_type]

    @property
    def length(self) -> int:
        """Bytes of the body."""
        body = self.body
        if not body:
            return 0
        return len(body) if isinstance(body, _BUFFERS) else sum(map(len, body))

    def head(self, serialize_type: int, opaque: int, length: int) -> bytes:
        """Return its frame up to the body, of `length` bytes. Raises EncodeError."""
        if self.cut is not None:
            before, after = self.parts(serialize_type)
            return join_response(serialize_type, before, opaque, after)
        return encode_response_frame(
            serialize_type, opaque, self.code, self.remark, self.header, length, self.ext_fields
        )

    def add_body(self, buffers: list[Buffer]) -> None:
        """Append the body, which is not empty."""
        if isinstance(self.body, _BUFFERS):
            buffers.append(self.body)
        else:
            buffers.extend(self.body)


class Channel(Protocol):
    """Where a request's answer goes: its connection, or the batch that it is a child of."""

    def respond(self, request: Request[Any], response: Response) -> None:
        """Answer now or later; do nothing when the peer is gone."""

    def replace_answers(self, opaques: Set[int], response: Response) -> Set[int]:
        """Replace answers to these requests that have not left yet by `response`. Return the
        opaques of those that need no more answer."""


class RequestConnection(Channel, Protocol):
    """The part of a connection that handlers may use."""

    peer: tuple[str, int]
    peer_packed: bytes
    owner: str
    closed: bool
    ended_by_peer: bool
    writable: bool
    attributes: dict[str, Any]

    def replace_answers(
        self, opaques: Set[int], response: Response, within: int | None = None
    ) -> Set[int]:
        """As for any channel; or for children, whose parent has the opaque `within`."""

    def respond_frame(self, request: Request[Any], frame: bytes) -> None:
        """Answer a request of the connection itself by a whole frame; do nothing when the peer is
        gone."""

    @property
    def overloaded(self) -> bool:
        """Whether this connection runs the maximum of tasks: further requests are refused."""

    def refuse(self, request: Request[Any]) -> Response:
        """Return the answer while the connection is overloaded."""

    def spawn(
        self,
        request: Request[Any],
        result: Awaitable[Response | None],
        *,
        counted: bool = True,
    ) -> None:
        """Answer a request, or the child of one, with the result of a task of this connection;
        `counted` among those that it may have."""

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(connection)` once the connection is gone."""

    def send_request(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        timeout: float = 3.0,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Awaitable[Command]:
        """Ask the peer. Raises RemotingTimeout, RemotingClosed."""

    def send_oneway(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Tell the peer. Raises RemotingClosed."""


class Caller(Protocol):
    """The sender of a request: a user whose signature was checked, and the address."""

    @property
    def username(self) -> str:
        """The user's name; empty where nobody has to sign."""

    def require_topic(self, topic: str, *actions: str) -> None:
        """Raise RemotingError unless one of these actions ("Pub", "Sub") is allowed.

        For handlers that learn a request's topic only from stored data.
        """

    def require_topics(self, topics: Iterable[str], *actions: str) -> None:
        """Do the same for topics of which the caller may know: the error names them."""

    def require_cluster(self, cluster: str, *actions: str) -> None:
        """Do the same for a cluster ("Update", "Get")."""

    def may_publish(self, topic: str) -> bool:
        """Tell whether the user may send to this topic now.

        For messages that a server sends on its own, long after the request that named the topic.
        """

    def may_consume(self, group: str, *topics: str) -> bool:
        """Tell whether the user may receive in this group, and from these topics, now."""


def owner_of(caller: Caller | None, address: str) -> str:
    """Return for whom to count what a client has: its user, or its IP address if nobody signs."""
    return (caller.username if caller is not None else "") or address


class Owner(NamedTuple):
    """Who shares a limit that is otherwise an address's: a user there, or all there who sign
    nothing (""). So nobody else takes it from the users behind one NAT or load balancer."""

    address: str
    user: str = ""


class Observer:
    """Observes the answer to a request whose handler returned before it: calls `note`, then the
    previous observer."""

    __slots__ = ("_next", "_note")

    def __init__(
        self,
        note: Callable[[Request[Any], Response], None],
        following: Observer | None,
    ) -> None:
        self._note = note
        self._next = following

    def answered(self, request: Request[Any], response: Response) -> None:
        """Called with the answer when it is given."""
        self._note(request, response)
        if self._next is not None:
            self._next.answered(request, response)


class DecodedBody(Protocol):
    """A `pocketmq.remoting.bodies.base.Body`."""

    def encode(self) -> bytes:
        """Return the bytes."""


class Request(msgspec.Struct, Generic[H]):
    """A decoded request.

    Attributes:
        header: the typed extFields; an empty Header when the code has no header type.
        head: the header's bytes as they came.
        body: bytes, or a view of them; may be empty. The buffer stays valid.
        serialize_type: the serialization of the header, and of the answer's.
        connection, channel: set by the connection that read the frame.
        caller: set by the guard of a server that authenticates; None without one.
        observer: called with an answer by `reply`; None if nothing is measured.
        decoded: the body, if the guard decoded it, until the handler takes it.
    """

    code: I32
    header: H = msgspec.field(name="extFields")
    opaque: I32 = 0
    flag: I32 = 0
    version: I32 = 0
    language: str = "JAVA"
    remark: str | None = None
    serialize_type: SerializeType = SerializeType.JSON
    head: Any = b""
    body: Any = b""
    # These have types that no JSON value decodes to, so a peer cannot set them.
    connection: RequestConnection = None  # type: ignore[assignment]
    channel: Channel = None  # type: ignore[assignment]
    caller: Caller = None  # type: ignore[assignment]
    observer: Observer = None  # type: ignore[assignment]
    decoded: DecodedBody | None = None

    @property
    def oneway(self) -> bool:
        """The peer expects no answer, not even an error."""
        return self.flag & 2 != 0

    @property
    def owner(self) -> Owner:
        """For whom to count what the request takes."""
        caller = self.caller
        return Owner(self.connection.peer[0], caller.username if caller is not None else "")

    @property
    def ext_fields(self) -> dict[str, str]:
        """All extFields as they came, including those that the typed header does not know."""
        word = self.serialize_type << 24 | len(self.head)
        return decode_command(word.to_bytes(4, "big") + self.head).ext_fields

    def keep(self) -> int:
        """Prepare this for waiting: drop what only the first execution needs.

        That is the body, the remark, and the header's bytes with all unused fields; a child of a
        batch keeps its header's bytes, which identify it.

        Returns:
            The remaining bytes that the client wrote; 0 for a request of the usual size.
        """
        size = len(self.head)
        self.body = b""
        self.remark = None
        if self.channel is self.connection:
            self.head = b""
            if size > USUAL_HEAD:
                size = _size_of_texts(self.header, self.language)
        else:
            self.head = bytes(self.head)  # no view of the whole batch
            if size > USUAL_HEAD:
                size += _size_of_texts(self.header, self.language)
        return size if size > USUAL_HEAD else 0

    def when_answered(self, note: Callable[[Request[Any], Response], None]) -> None:
        """Have `note(request, response)` called when this is answered by `reply`."""
        self.observer = Observer(note, self.observer)

    def reply(self, response: Response) -> None:
        """Answer later, for a handler that returned None. Nothing happens for oneway requests."""
        if not self.flag & 2:
            if self.observer is not None:
                self.observer.answered(self, response)
            self.channel.respond(self, response)

    @property
    def takes_frames(self) -> bool:
        """Whether `reply_frame` may answer: the request is not a child of a batch."""
        return self.channel is self.connection

    def reply_frame(self, frame: bytes) -> None:
        """Do the same with a success that is encoded already; see `takes_frames`."""
        if not self.flag & 2:
            if self.observer is not None:
                self.observer.answered(self, Response())
            self.connection.respond_frame(self, frame)


def _size_of_texts(header: Header, *others: str) -> int:
    texts = (*msgspec.structs.astuple(header), *others)
    return sum(sys.getsizeof(text) for text in texts if isinstance(text, str))


USUAL_HEAD: Final = 1024
"""Bytes of a header that a limit on the number of requests covers."""

_NO_HEADER = Header()
_unpack_word = Layout(">I").unpack_from
_CODE_FIRST = re.compile(rb'\{"code":(\d+),')
_PREFIX = slice(4, 16)
"""Where a JSON header's first 12 bytes are in a frame: `{"code":310,` with up to three digits."""
_LONG_PREFIX = slice(0, 15)
"""Where the first 15 bytes are in a header: `{"code":200050,`, the codes of POP."""

MAX_REQUEST_HEADER: Final = 256 << 10
"""Bytes of a request's header, which has properties of 32 KiB or an expression at most. Headers are
decoded before the sender is known, and fields cost the most per byte: a header of 16 MiB would
block everybody for most of a second."""

_MAX_HEADER = 0xFFFFFF
_ENDS = 512  # bytes of a long header in which its opaque is looked for
_BINARY = SerializeType.ROCKETMQ
_NOT_QUICKLY = (KeyError, TypeError, LayoutError, *DECODE_ERRORS)
"""A prefix not seen yet, an unhashable view, a broken frame, or a header that only the tolerant
path understands or finds the fault of."""


class RequestDecoder:
    """Frames to requests with typed headers.

    Args:
        header_types: the header class of each request code, None for a code without one. May grow
            after construction.

    Attributes:
        quick: decoders of JSON headers by their first 12 bytes, for codes seen so far.
            `pocketmq.remoting.answers.batch` uses them to decode many small frames in one loop.
        unusual_bytes: the size of all headers so far that took long, for their size.
    """

    def __init__(self, header_types: Mapping[int, type[Header] | None]) -> None:
        self._header_types = header_types
        self.quick: dict[bytes, Callable[[Any], Request[Any]]] = {}
        self._long: dict[bytes, Callable[[Any], Request[Any]]] = {}
        self._layouts = LayoutCache()
        self.unusual_bytes = 0

    def decode(self, frame: bytes | memoryview) -> Request[Any]:
        """Decode a frame (without its 4 length bytes).

        A request of an unknown code gets an empty header. Of a response (flag bit 0) only the
        other fields are meaningful; use `decode_command` for responses.

        Raises:
            FrameError: the frame is shorter than it says, or has an unknown serialization.
            HeaderError: the header is broken, longer than `MAX_REQUEST_HEADER`, or lacks a
                mandatory field.
        """
        try:
            word = _unpack_word(frame)[0]
            if word > MAX_REQUEST_HEADER:
                return self._decode_binary(frame, word)
            end = 4 + word
            head = frame[4:end]
            prefix = frame[_PREFIX]
            if type(frame) is not bytes:
                prefix = bytes(prefix)  # a view of a mutable buffer cannot be a key
            request = self.quick[prefix](head)  # type: ignore[index]
        except _NOT_QUICKLY:
            return self._decode_any(frame)
        body = frame[end:]
        if not body and end > len(frame):
            raise FrameError(f"header of {word} bytes in a frame of {len(frame)}")
        request.head = head
        request.body = body
        return request

    def _decode_binary(self, frame: bytes | memoryview, word: int) -> Request[Any]:
        size = word & _MAX_HEADER
        if size > MAX_REQUEST_HEADER:
            raise _too_long(frame, size)
        end = 4 + size
        head = bytes(frame[4:end])
        request: Request[Any] | None = None
        if word >> 24 == 1 and end <= len(frame):
            request = self._layouts.decode(head)
        if request is None:
            return self._decode_any(frame)
        request.serialize_type = _BINARY
        request.head = head
        request.body = frame[end:]
        return request

    def _decode_any(self, frame: bytes | memoryview) -> Request[Any]:
        request = self._decode_unknown(frame)
        if request is not None:
            return request
        self.unusual_bytes += _unpack_word(frame)[0] & _MAX_HEADER if len(frame) >= 4 else 0
        command = decode_command(frame)
        head = bytes(frame[4 : len(frame) - len(command.body)])
        request = self._request_of(command, head)
        if command.serialize_type is SerializeType.JSON:
            self._learn(head)
        elif not command.flag & 1 and command.code in self._header_types:
            request_type = _request_type(self._header_types[command.code])
            self._layouts.learn(head, command.language, request_type)
        return request

    def _decode_unknown(self, frame: bytes | memoryview) -> Request[Any] | None:
        """Decode a request of an unknown code. Its fields are not used, so they must not cost more
        than those of a good request. Return None if it is not so simple."""
        match = _CODE_FIRST.match(frame, 4)
        if match is None:
            return None
        end = 4 + _unpack_word(frame)[0]
        head = bytes(frame[4:end])
        try:
            if end > len(frame) or int(match[1]) in self._header_types:
                return None
            request: Request[Any] = _decode_without_fields(head)
        except (TypeError, *DECODE_ERRORS):  # the first, if it has what is no field of a header
            return None
        request.head = head
        request.body = frame[end:]
        return request

    def _request_of(self, command: Command, head: bytes) -> Request[Any]:
        header = _NO_HEADER
        header_type = self._header_types.get(command.code)
        if header_type is not None and not command.flag & 1:
            try:
                header = header_type.from_ext(command.ext_fields)
            except HeaderError as error:
                raise HeaderError(
                    error.remark,
                    opaque=command.opaque,
                    flag=command.flag,
                    serialize_type=command.serialize_type,
                ) from None
        return Request(
            code=command.code,
            header=header,
            opaque=command.opaque,
            flag=command.flag,
            version=command.version,
            language=command.language,
            remark=command.remark,
            serialize_type=command.serialize_type,
            head=head,
            body=command.body,
        )

    def _learn(self, head: bytes) -> None:
        """Make the quick decoder for the code that a header begins with, if it is a known one."""
        decoders, prefix = self.quick, head[: _PREFIX.stop - _PREFIX.start]
        match = _CODE_FIRST.match(prefix)
        if match is None:
            decoders, prefix = self._long, head[_LONG_PREFIX]
            match = _CODE_FIRST.match(prefix)
            # With fewer bytes, there would be a prefix for each text after the code.
            if match is None or match.end() != len(prefix):
                return
        code = int(match[1])
        if prefix not in decoders and code in self._header_types:
            request_type = _request_type(self._header_types[code])
            decoders[prefix] = msgspec.json.Decoder(request_type, strict=False).decode
            if decoders is self._long:
                self.quick[prefix[: _PREFIX.stop - _PREFIX.start]] = self._decode_long

    def _decode_long(self, head: bytes | memoryview) -> Request[Any]:
        """Decode a header whose code has six digits. Raises KeyError for one not seen before."""
        return self._long[bytes(head[_LONG_PREFIX])](head)


def _too_long(frame: bytes | memoryview, size: int) -> HeaderError:
    """Return the error for a header that is not decoded, with the opaque if it is where peers write
    it."""
    why = f"{size} bytes, {MAX_REQUEST_HEADER} are allowed"
    if frame[0] == _BINARY:
        head = bytes(frame[4 : 4 + FIXED_SIZE])
        return broken_binary_header(head, why)
    ends = bytes(frame[4 : 4 + _ENDS]) + bytes(frame[max(4, 4 + size - _ENDS) : 4 + size])
    return broken_json_header(ends, why)


def _request_type(header_type: type[Header] | None) -> Any:
    return Request[header_type or Header]  # type: ignore[misc]


_decode_without_fields = msgspec.json.Decoder(_request_type(None), strict=False).decode
