"""Header blocks of HTTP/2 to header lists (HPACK, RFC 7541). No I/O.

The decoder of the library hpack takes 40 % of the CPU time of a call: a call has some 15 header
fields, and the library logs and wraps each of them. Its tables, and its decoding of Huffman's code,
are used here. A client sends the same texts again and again, so what they mean is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

Field = tuple[bytes, bytes]

#: Octets of the dynamic table; the default of HTTP/2, never raised.
MAX_TABLE: Final = 4_096
#: What each field counts beside its name and value.
OVERHEAD: Final = 32

_STATIC: Final = tuple((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE)
_REMEMBERED: Final = 64  # octets of a text in Huffman's code


class HeaderBlockError(Exception):
    """The block cannot be decoded, or means too much: the connection is over."""


class HeaderDecoder:
    """The decoder of one connection; `max_list` bounds a list, as HTTP/2 counts its octets."""

    __slots__ = ("_max_list", "_max_table", "_size", "_table")

    def __init__(self, max_list: int) -> None:
        self._max_list = max_list
        self._table: list[Field] = []  # the newest field is the last
        self._size = 0
        self._max_table = MAX_TABLE

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields. Raises HeaderBlockError; then the decoder cannot be used any more."""
        fields: list[Field] = []
        at, end, total = 0, len(block), 0
        try:
            while at < end:
                first = block[at]
                if first & 0x80:
                    index, at = _integer(block, at, 0x7F)
                    field = self._field(index)
                elif first & 0xE0 == 0x20:
                    if fields:
                        raise HeaderBlockError("a change of the table's size behind a field")
                    size, at = _integer(block, at, 0x1F)
                    if size > MAX_TABLE:
                        raise HeaderBlockError(f"a table of {size} octets")
                    self._max_table = size
                    self._evict()
                    continue
                else:
                    indexed = first & 0x40
                    index, at = _integer(block, at, 0x3F if indexed else 0x0F)
                    if index:
                        name = self._field(index)[0]
                    else:
                        name, at = _text(block, at)
                    value, at = _text(block, at)
                    field = (name, value)
                    if indexed:
                        self._table.append(field)
                        self._size += len(name) + len(value) + OVERHEAD
                        self._evict()
                total += len(field[0]) + len(field[1]) + OVERHEAD
                if total > self._max_list:
                    raise HeaderBlockError(f"a header list of more than {self._max_list} octets")
                fields.append(field)
        except IndexError:
            raise HeaderBlockError("it is cut short, or names a field that is not there") from None
        except HPACKError as error:
            raise HeaderBlockError(str(error)) from None
        return fields

    def _field(self, index: int) -> Field:
        if not index:
            raise HeaderBlockError("it names the field 0")
        if index <= len(_STATIC):
            return _STATIC[index - 1]
        return self._table[self._place(index)]

    def _place(self, index: int) -> int:
        """Return the place in the table of the field with this index."""
        place = len(self._table) + len(_STATIC) - index
        if place < 0:
            raise IndexError(index)
        return place

    def _evict(self) -> None:
        table = self._table
        gone = 0
        while self._size > self._max_table:
            name, value = table[gone]
            self._size -= len(name) + len(value) + OVERHEAD
            gone += 1
        if gone:
            del table[:gone]


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """Read an integer whose first octet has its low bits under the mask `prefix`."""
    number = block[at] & prefix
    at += 1
    if number < prefix:
        return number, at
    shift = 0
    while True:
        octet = block[at]
        at += 1
        number += (octet & 0x7F) << shift
        if not octet & 0x80:
            return number, at
        shift += 7
        if shift > 28:
            raise HeaderBlockError("an integer of too many octets")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    coded = block[at] & 0x80
    length, at = _integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HeaderBlockError("it is cut short")
    data = block[at:end]
    if coded:
        data = _remembered(data) if length <= _REMEMBERED else bytes(decode_huffman(data))
    return data, end


# At most a megabyte, whatever clients send.
@lru_cache(maxsize=4_096)
def _remembered(data: bytes) -> bytes:
    return bytes(decode_huffman(data))
