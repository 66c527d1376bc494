"""HTTP/2 frames written and read by hand, also such as no library would write."""

from __future__ import annotations

from enum import IntEnum

from hpack import Decoder


class Kind(IntEnum):
    """Types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream_id.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field for a block, without Huffman code and without use of the table."""
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    out = bytearray((127,))
    length -= 127
    while length >= 128:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out) + text


def frames_in(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return the kind, stream and payload of each whole frame."""
    found = []
    at = 0
    while at + 9 <= len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        if end > len(data):
            break
        stream_id = int.from_bytes(data[at + 5 : at + 9], "big")
        found.append((data[at + 3], stream_id, data[at + 9 : end]))
        at = end
    return found


def header_fields(data: bytes) -> list[tuple[str, str]]:
    """Return the header fields of all answers that a server sent from its first byte on."""
    decoder = Decoder()
    fields: list[tuple[str, str]] = []
    for kind, _, payload in frames_in(data):
        if kind == Kind.HEADERS:
            fields += decoder.decode(payload)  # type: ignore[arg-type]
    return fields
