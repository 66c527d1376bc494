"""The answer to a stored message as one fixed text with holes.

The general way from a response and its header to a frame is a tenth of the cost of a send, with a
binary header a third, and a fifth where many come in a batch. This gives the same bytes (a test
compares the two) for the answer to nearly every send: stored, in the default region.
"""

from __future__ import annotations

import re
from struct import Struct as Layout

from pocketmq.remoting.codes import VERSION, LanguageCode
from pocketmq.remoting.headers.base import encode_entries, encode_json

_pack_words = Layout(">II").pack
_pack_length = Layout(">i").pack
# Both lengths of a frame, and a binary header up to the length of its entries.
_pack_binary = Layout(">IIhBhiiii").pack
_BINARY_FIXED = Layout(">hBhiiii").size
_BINARY_TYPE = 1 << 24
_PYTHON = LanguageCode.PYTHON.value
_HOLES = re.compile(rb"%[db]")


class StoredAnswer:
    """The answer of one broker, except for what differs from send to send."""

    __slots__ = ("_binary", "_binary_size", "_msg_id", "_template")

    def __init__(self, msg_id: str, trace_on: bool) -> None:
        """`msg_id`: where the message id goes, in %-format; `trace_on`: the value for tracing."""
        tracing = str(trace_on).lower()
        self._msg_id = msg_id.encode()
        self._template = (
            f'{{"code":0,"extFields":{{"msgId":"{msg_id}","queueId":"%d","queueOffset":"%d",'
            f'"transactionId":%b,"MSG_REGION":"DefaultRegion","TRACE_ON":"{tracing}"}},'
            '"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
            f'"version":{VERSION}}}'
        ).encode()
        # The length of a value and the value, of each that differs.
        varying = [
            encode_entries({name: ""})[:-4] + b"%b%b"
            for name in ("msgId", "queueId", "queueOffset", "transactionId")
        ]
        fixed = encode_entries({"MSG_REGION": "DefaultRegion", "TRACE_ON": tracing})
        self._binary = b"%b" + b"".join(varying) + fixed
        empty = (_pack_length(0), b"")
        self._binary_size = len(self._binary % (b"", *empty, *empty, *empty, *empty))

    @property
    def json_parts(self) -> tuple[bytes, ...]:
        """Return the parts of a JSON answer before, between and after message id, queue id, queue
        offset, transaction id, and opaque; the two lengths before them are left out."""
        return tuple(_HOLES.split(self._template.replace(self._msg_id, b"%b", 1)))

    @property
    def binary_parts(self) -> tuple[bytes, ...]:
        """Return the same parts of the entries of a binary answer, without the opaque. Each of
        these values is preceded by its length."""
        before, *others = self._binary.removeprefix(b"%b").split(b"%b%b")
        return before, *others

    @classmethod
    def of_message(cls, store_host: bytes, trace_on: bool) -> StoredAnswer:
        """Make it for one message, whose id is the broker's address and its physical offset."""
        return cls(f"{store_host.hex().upper()}%016X", trace_on)

    @classmethod
    def of_batch(cls, trace_on: bool) -> StoredAnswer:
        """Make it for a batch: the ids of its messages, joined by commas."""
        return cls("%b", trace_on)

    def encode(
        self,
        serialize_type: int,
        opaque: int,
        msg_id: int | bytes,
        queue_id: int,
        queue_offset: int,
        transaction_id: str,
    ) -> bytes:
        """Return a whole answer frame.

        `msg_id` is the physical offset of a message, or the ids of a batch.
        """
        if serialize_type:
            return self._encode_binary(opaque, msg_id, queue_id, queue_offset, transaction_id)
        data = self._template % (
            msg_id,
            queue_id,
            queue_offset,
            encode_json(transaction_id),
            opaque,
        )
        size = len(data)
        return _pack_words(4 + size, size) + data

    def _encode_binary(
        self,
        opaque: int,
        msg_id: int | bytes,
        queue_id: int,
        queue_offset: int,
        transaction_id: str,
    ) -> bytes:
        id = self._msg_id % msg_id
        queue = b"%d" % queue_id
        offset = b"%d" % queue_offset
        transaction = transaction_id.encode()
        entries = self._binary_size + len(id) + len(queue) + len(offset) + len(transaction)
        size = _BINARY_FIXED + entries
        head = _pack_binary(
            4 + size, _BINARY_TYPE | size, 0, _PYTHON, VERSION, opaque, 1, 0, entries
        )
        return self._binary % (
            head,
            _pack_length(len(id)), id,
            _pack_length(len(queue)), queue,
            _pack_length(len(offset)), offset,
            _pack_length(len(transaction)), transaction,
        )  # fmt: skip
