from __future__ import annotations

import os
import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.identity import (
    InvalidMessageId,
    UniqueIdFactory,
    decode_offset_msg_id,
    encode_offset_msg_id,
    host_text,
    new_unique_id,
    pack_host,
    unpack_host,
)

addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
ports = st.integers(0, 65535)


class Clock:
    """A clock that stands at a local time until its `now` is changed."""

    def __init__(self, year: int, month: int, day: int, h: int = 0, m: int = 0, s: int = 0) -> None:
        self.now = int(datetime(year, month, day, h, m, s).timestamp() * 1000)  # milliseconds

    def __call__(self) -> int:
        return self.now * 1_000_000


@given(addresses, ports, st.integers(0, 2**63 - 1))
def test_round_trips(ip: str, port: int, physical_offset: int) -> None:
    host = pack_host(ip, port)
    assert len(host) == (20 if ":" in ip else 8)
    ip_again, port_again = unpack_host(host)
    assert pack_host(ip_again, port_again) == host
    text = encode_offset_msg_id(host, physical_offset)
    assert len(text) == (56 if ":" in ip else 32)
    assert decode_offset_msg_id(text) == (ip_again, port, physical_offset)
    assert decode_offset_msg_id(text.lower()) == (ip_again, port, physical_offset)


def test_the_id_of_the_specification() -> None:
    host = pack_host("127.0.0.1", 0x5597)
    assert encode_offset_msg_id(host, 0) == "7F000001000055970000000000000000"


def test_host_text() -> None:
    assert host_text(pack_host("10.1.2.3", 10911)) == "10.1.2.3:10911"
    assert host_text(pack_host("::1", 10911)) == "[::1]:10911"
    assert host_text(pack_host("fe80::1%eth0", 1)) == "[fe80::1]:1"


@pytest.mark.parametrize("ip", ["localhost", "", "1.2.3", "1.2.3.4.5", "::x"])
def test_hosts_are_numeric(ip: str) -> None:
    with pytest.raises(ValueError, match="not a numeric IP address"):
        pack_host(ip, 1)


@pytest.mark.parametrize("length", [0, 7, 9, 16, 21])
def test_a_packed_host_has_one_of_two_lengths(length: int) -> None:
    with pytest.raises(ValueError, match="8 or 20 bytes"):
        unpack_host(bytes(length))


@pytest.mark.parametrize("text", ["", "00", "0" * 31, "0" * 33, "x" * 32, "0 " * 16, "0" * 48])
def test_not_an_offset_message_id(text: str) -> None:
    with pytest.raises(InvalidMessageId):
        decode_offset_msg_id(text)


def test_a_unique_id_takes_apart() -> None:
    clock = Clock(2026, 11, 1, 0, 0, 1)
    make = UniqueIdFactory(clock, 0x1_2345, bytes([10, 1, 2, 3]), instance=0xABCDEF01).new_id
    assert make() == "0A0102032345ABCDEF01000003E80000"
    assert make() == "0A0102032345ABCDEF01000003E80001"
    assert len(UniqueIdFactory(clock, 1, bytes(16)).new_id()) == 56


def test_the_counter_wraps() -> None:
    make = UniqueIdFactory(Clock(2026, 11, 1), 1, bytes(4)).new_id
    ids = [make() for _ in range(0x1_0001)]
    assert ids[-1] == ids[0]
    assert len(set(ids)) == 0x1_0000


def test_the_time_starts_again_with_each_month() -> None:
    clock = Clock(2026, 12, 31, 23, 59, 59)
    make = UniqueIdFactory(clock, 1, bytes(4), instance=0).new_id

    def elapsed() -> int:
        return int(make()[20:28], 16)

    assert elapsed() == (31 * 86400 - 1) * 1000
    clock.now += 1500
    assert elapsed() == 500
    clock.now -= 700  # set back over the turn of the month: not negative, and no huge number
    assert elapsed() == 0
    clock.now += 40 * 86_400_000
    assert elapsed() == (9 * 86400) * 1000 - 200


def test_an_address_has_four_or_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        UniqueIdFactory(Clock(2026, 1, 1), 1, bytes(5))


def test_ids_of_this_process() -> None:
    ids = {new_unique_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"[0-9A-F]{32}|[0-9A-F]{56}", text) for text in ids)
    assert f"{os.getpid() & 0xFFFF:04X}" in {text[-24:-20] for text in ids}
