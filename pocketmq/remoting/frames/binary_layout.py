"""Decodes ROCKETMQ binary headers quickly: one C call instead of a loop over the entries.

A loop in Python over a dozen entries takes longer than everything else done for a message. But a
peer writes one kind of request again and again with the same keys in the same order, and most
values keep their length (a timestamp, a group, a flag). A `HeaderLayout` is such a sequence
of keys and value lengths. It gives every position in advance, so that

1. one `struct` call cuts the header into the parts that must be equal (numbers, keys, lengths)
   and the parts that are values,
2. comparing the first with the layout's proves that it is this layout,
3. the values go into a MessagePack text of the same fields, which msgspec decodes straight into the
   request and its typed header. MessagePack needs no escaping, and its integers are big-endian as
   those of the header are.

A header without a known layout takes the loop of `pocketmq.remoting.frames.binary_header`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

import msgspec

from pocketmq.remoting.frames.binary_header import FIXED_SIZE, iter_entries

_MAX_LAYOUTS = 1024
_MAX_HEAD = 4096
"""Longer headers are not worth the memory of their layouts."""

_LEARN_EVERY = 8
"""Misses per learned layout. A frequent layout is learned soon; peers whose order of keys is random
cause no useless learning."""


class HeaderLayout:
    """One sequence of keys and value lengths, of one request code and sender."""

    __slots__ = ("_decode", "_equal", "_template", "_unpack")

    def __init__(self, head: bytes, language: str, decode: Callable[[bytes], Any]) -> None:
        """Take the layout of `head`, which has been decoded before and has no remark."""
        # Parts alternate: one that must be equal, one that is a value. The first value is the
        # opaque, after code, language and version; then come flag and the two lengths.
        cuts = [5, 9]
        template = b"\x86\xa4code\xd1%b\xa7version\xd1%b\xa8language%b\xa4flag\xd2%b" % (
            head[0:2],
            head[3:5],
            _pack_text(language.encode()),
            head[9:13],
        )
        template = template.replace(b"%", b"%%") + b"\xa6opaque\xd2%b\xa9extFields"
        fields = b""
        count = 0
        for key, start, end in iter_entries(head, FIXED_SIZE + 4, len(head)):
            # An empty value counts as absent, so it stays in the part that must be equal.
            if end > start:
                cuts += (start, end)
                count += 1
                prefix = _pack_text(key) + _text_prefix(end - start)
                fields += prefix.replace(b"%", b"%%") + b"%b"
        cuts.append(len(head))
        sizes = [end - start for start, end in zip([0, *cuts], cuts, strict=False)]
        layout = Layout("".join(f"{size}s" for size in sizes))
        self._unpack = layout.unpack
        self._equal = layout.unpack(head)[::2]
        self._template = template + b"\xde" + count.to_bytes(2, "big") + fields
        self._decode = decode

    def decode(self, head: bytes) -> Any:
        """Return the request of a header of the right length, or None if its layout differs.

        Raises:
            msgspec.MsgspecError: the values are not what the request's header wants.
        """
        parts = self._unpack(head)
        if parts[::2] != self._equal:
            return None
        return self._decode(self._template % parts[1::2])


class LayoutCache:
    """The layouts learned so far, by header length."""

    def __init__(self) -> None:
        self._layouts: dict[int, list[HeaderLayout]] = {}
        self._decoders: dict[Any, Callable[[bytes], Any]] = {}
        self._count = 0
        self._misses = 0

    def decode(self, head: bytes) -> Any:
        """Return the request of `head` if one of the known layouts fits, else None."""
        layouts = self._layouts.get(len(head))
        if layouts is not None:
            for layout in layouts:
                request = layout.decode(head)
                if request is not None:
                    return request
        return None

    def learn(self, head: bytes, language: str, request_type: Any) -> None:
        """Note the layout of a header that was decoded the long way, if more like it may follow.

        Only headers without a remark, as requests are, and without bytes after their entries.
        """
        self._misses += 1
        if self._misses % _LEARN_EVERY or len(head) > _MAX_HEAD:
            return
        if head[13:21] != (len(head) - FIXED_SIZE - 4).to_bytes(8, "big"):
            return
        if self._count == _MAX_LAYOUTS:
            self._layouts.clear()
            self._count = 0
        decode = self._decoders.get(request_type)
        if decode is None:
            decode = msgspec.msgpack.Decoder(request_type, strict=False).decode
            self._decoders[request_type] = decode
        layouts = self._layouts.setdefault(len(head), [])
        # Few fit one length; the newest is tried first, and the oldest is dropped.
        layouts.insert(0, HeaderLayout(head, language, decode))
        self._count += 1
        if len(layouts) > 4:
            layouts.pop()
            self._count -= 1


def _text_prefix(size: int) -> bytes:
    """Return what MessagePack writes before a text of `size` bytes."""
    return b"\xdb" + size.to_bytes(4, "big")


def _pack_text(data: bytes) -> bytes:
    return _text_prefix(len(data)) + data
