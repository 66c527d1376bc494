"""What a client sends in the clear when a TLS handshake begins, before OpenSSL gets it.

Keys over finite fields (ffdhe2048 to ffdhe8192) take OpenSSL up to 200 ms of CPU time, a hundred
times what keys over curves take, and a client can send the same recorded bytes again and again.
Clients send them only if they are set up to, and Python cannot switch them off. So a hello with
such a key is refused, also if it is the second one of a connection.

Reference: RFC 8446, sections 4.1.2, 4.2.8 and 5.1.
"""

from __future__ import annotations

from typing import Final

MOST_BYTES: Final = 32 * 1024
"""Bytes of a hello. OpenSSL would take 128 KiB from anybody. Usual ones have up to 2 KiB, and more
with the ticket of a session that has a client's certificate."""

MOST_PARTS: Final = 128
"""Records of the hellos of a connection, and extensions and keys in one of them."""

_HANDSHAKE: Final = 22
_CHANGE_CIPHER_SPEC: Final = 20  # means nothing in TLS 1.3, but may come between two hellos
_RECORD_HEADER: Final = 5
_CLIENT_HELLO: Final = 1
_MESSAGE_HEADER: Final = 4
_VERSION_AND_RANDOM: Final = 2 + 32
_KEY_SHARE: Final = 51
_FINITE_FIELDS: Final = range(0x0100, 0x0200)


class BadHello(Exception):
    """The connection is refused; the text says why."""


class ClientHello:
    """The hellos of one connection; later messages say nothing about keys."""

    def __init__(self) -> None:
        self._received = bytearray()  # the beginning of a record
        self._message = bytearray()
        self._parts = 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Take bytes of the client.

        What is no hello is accepted, because OpenSSL knows what is wrong with it. Raises BadHello.
        """
        received = self._received
        if not self._ended:
            received += data
        while not self._ended and len(received) >= _RECORD_HEADER:
            end = _RECORD_HEADER + int.from_bytes(received[3:_RECORD_HEADER])
            if received[0] not in (_HANDSHAKE, _CHANGE_CIPHER_SPEC):
                self._end()
                return
            if end > len(received):
                break
            self._parts += 1
            if self._parts > MOST_PARTS:
                raise BadHello(f"its hello comes in more than {MOST_PARTS} records")
            if received[0] == _HANDSHAKE:
                self._message += received[_RECORD_HEADER:end]
            del received[:end]
            self._read_messages()
        if len(received) + len(self._message) > MOST_BYTES:
            raise BadHello(f"its hello has more than {MOST_BYTES} bytes")

    def _read_messages(self) -> None:
        message = self._message
        while len(message) >= _MESSAGE_HEADER:
            if message[0] != _CLIENT_HELLO:
                self._end()
                return
            end = _MESSAGE_HEADER + int.from_bytes(message[1:_MESSAGE_HEADER])
            if end > MOST_BYTES:
                raise BadHello(f"its hello has {end} bytes, {MOST_BYTES} are allowed")
            if end > len(message):
                return
            if any(group in _FINITE_FIELDS for group in _groups(message[_MESSAGE_HEADER:end])):
                raise BadHello(
                    "its key is over a finite field (ffdhe), which takes too long: let the client "
                    "use x25519 or secp256r1"
                )
            del message[:end]

    def _end(self) -> None:
        self._ended = True
        self._received.clear()
        self._message.clear()


def _groups(hello: bytearray) -> list[int]:
    """Return the groups of the keys in a hello; what is cut off is empty. Raises BadHello."""
    rest = memoryview(bytes(hello))[_VERSION_AND_RANDOM:]
    for width in (1, 2, 1):  # the session id, the cipher suites, the compression methods
        _, rest = _vector(rest, width)
    extensions, _ = _vector(rest, 2)
    groups = []
    for kind, extension in _typed(extensions):
        if kind == _KEY_SHARE:
            keys, _ = _vector(extension, 2)
            groups += [group for group, _ in _typed(keys)]
    return groups


def _typed(data: memoryview) -> list[tuple[int, memoryview]]:
    """Return the vectors in `data`, with the number before each."""
    found: list[tuple[int, memoryview]] = []
    while data:
        if len(found) == MOST_PARTS:
            raise BadHello(f"its hello has more than {MOST_PARTS} extensions or keys")
        number = int.from_bytes(data[:2])
        content, data = _vector(data[2:], 2)
        found.append((number, content))
    return found


def _vector(data: memoryview, width: int) -> tuple[memoryview, memoryview]:
    """Return the content of a vector whose length has so many bytes, and what follows it."""
    end = width + int.from_bytes(data[:width])
    return data[width:end], data[end:]
