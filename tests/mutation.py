"""Bytes of the protocol, broken at random."""

from __future__ import annotations

import random

DIGITS = (b"-1", b"0", b"99999999999999999999", b"2147483648", b'""', b"null", b"[]", b"{}", b"1e9")


def broken(good: bytes, chance: random.Random, *, framed: bool = True) -> bytes:
    """Return the bytes with one or a few faults; in most frames the length is right.

    `framed`: they are a frame of the remoting protocol, with its length.
    """
    data = bytearray(good)
    start = 4 if framed else 0
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(start, max(start + 1, len(data)))
        match chance.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                numbers = [i for i in range(2 * start, len(data)) if chr(data[i]).isdigit()]
                if numbers:
                    at = chance.choice(numbers)
                    data[at : at + 1] = chance.choice(DIGITS)
            case _:
                other = chance.randrange(start, max(start + 1, len(data)))
                data[at:at] = data[other : other + 16]
    if framed and chance.randrange(8):
        # The lengths of the frame and of its header, so that the fault is further inside.
        header = int.from_bytes(good[5:8]) + len(data) - len(good)
        data[:4] = (len(data) - 4).to_bytes(4)
        if 0 <= header < 1 << 24 and chance.randrange(4):
            data[5:8] = header.to_bytes(3)
    return bytes(data)
