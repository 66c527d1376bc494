from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.checksum import body_crc


@given(st.binary(max_size=3000))
def test_crc_without_its_top_bit(body: bytes) -> None:
    assert body_crc(body) == zlib.crc32(body) & 0x7FFFFFFF
    assert body_crc(memoryview(body)) == body_crc(bytearray(body)) == body_crc(body)


def test_known_value() -> None:
    assert zlib.crc32(b"a") == 0xE8B7BE43
    assert body_crc(b"a") == 0x68B7BE43
