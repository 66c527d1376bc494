"""The Bloom-filter positions in consumerFilter.json, which belong to each consumer's expression.

With enableCalcFilterBitMap, the official broker stores for each message which consumers accept it,
one bit pattern per consumer. pocketmq evaluates the expression itself, but an official broker
accepts the file only if the positions are those that it would compute. Reference: BloomFilter,
BloomFilterData, and Guava's murmur3_128.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

_MASK: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class BloomFilterData(msgspec.Struct, rename="camel", frozen=True):
    """The bit positions of one consumer among `bit_num` bits."""

    bit_pos: list[int]
    bit_num: int


class BloomFilter:
    """A filter for `consumers` patterns, with false positives in `error_rate` percent.

    Attributes:
        bit_count: size of the filter in bits, a multiple of 8.
        hash_count: number of bits per pattern.
    """

    def __init__(self, error_rate: int, consumers: int) -> None:
        rate = error_rate / 100
        self.hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (1 / math.log(2)))
        self.bit_count = 8 * math.ceil(bits / 8)

    def generate(self, text: str) -> BloomFilterData:
        """Return the positions for `text`."""
        value = murmur3_64(text.encode("utf-8", "replace"))
        low, high = _signed(value), _signed(value >> 32)
        positions = []
        for number in range(1, self.hash_count + 1):
            combined = _signed(low + number * high)
            positions.append((~combined if combined < 0 else combined) % self.bit_count)
        return BloomFilterData(positions, self.bit_count)


def murmur3_64(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mix_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mix_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    h1 ^= _mix_1(int.from_bytes(data[whole : whole + 8], "little"))
    h2 ^= _mix_2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _final(h1) + _final(h2) & _MASK


def _mix_1(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_2(block: int) -> int:
    return _rotated(block * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _signed(value: int) -> int:
    """Return the low 32 bits as a Java int."""
    value &= 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value
