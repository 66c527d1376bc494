"""Message ids: the producer's unique id, the broker's offset message id, and packed hosts.

All ids are upper-case hexadecimal text. Readers take both lengths (32 characters with an IPv4
address, 56 with an IPv6 one) and lower case, which the Go client uses in part.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

_PORT: Final = struct.Struct(">i")
_PORT_AND_OFFSET: Final = struct.Struct(">iq")
_MAX_CLOCK_STEP_BACK_MS: Final = 1_000_000
_HEX: Final = tuple(f"{byte:02X}" for byte in range(256))  # looked up in half the time of a format


class InvalidMessageId(ValueError):
    """Text that is not an offset message id."""


class OffsetMsgId(NamedTuple):
    """Where an offset message id points: the storing broker and a place in its commit log."""

    host: str
    port: int
    physical_offset: int


def pack_host(ip: str, port: int) -> bytes:
    """`ip` and `port` as records hold them: 4 or 16 bytes of address, then the port as i32.

    Raises:
        ValueError: `ip` is not a numeric IPv4 or IPv6 address.
    """
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        # A zone ("%eth0") says which interface of this host, so it is not part of the address.
        address = socket.inet_pton(family, ip.partition("%")[0])
    except OSError as error:
        raise ValueError(f"not a numeric IP address: {ip!r}") from error
    return address + _PORT.pack(port)


def unpack_host(host: bytes) -> tuple[str, int]:
    """Return the address and the port of a packed host of 8 or 20 bytes.

    Raises:
        ValueError: any other length.
    """
    if len(host) == 8:
        family = socket.AF_INET
    elif len(host) == 20:
        family = socket.AF_INET6
    else:
        raise ValueError(f"a packed host has 8 or 20 bytes, not {len(host)}")
    return socket.inet_ntop(family, host[:-4]), _PORT.unpack(host[-4:])[0]


# The messages of one answer share a store host and usually a born host.
@lru_cache(maxsize=1024)
def host_text(host: bytes) -> str:
    """Return a packed host as `ip:port`, or `[ip]:port` for IPv6."""
    ip, port = unpack_host(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def encode_offset_msg_id(host: bytes, physical_offset: int) -> str:
    """Return the offset message id of the record at `physical_offset` of the broker at packed
    `host`."""
    return f"{host.hex().upper()}{physical_offset:016X}"


def decode_offset_msg_id(text: str) -> OffsetMsgId:
    """Take an offset message id apart.

    Raises:
        InvalidMessageId: not 32 or 56 hexadecimal digits.
    """
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    # fromhex skips blanks, which no id has.
    if len(raw) not in (16, 28) or len(text) != 2 * len(raw):
        raise InvalidMessageId(f"an offset message id has 32 or 56 hex digits: {text[:80]!r}")
    family = socket.AF_INET if len(raw) == 16 else socket.AF_INET6
    port, physical_offset = _PORT_AND_OFFSET.unpack(raw[-12:])
    return OffsetMsgId(socket.inet_ntop(family, raw[:-12]), port, physical_offset)


class UniqueIdFactory:
    """Makes unique message ids: host, pid, a number for this factory, time and a counter.

    Args:
        clock: the time as Unix nanoseconds.
        pid: the process; its low 16 bits are used.
        host: 4 or 16 bytes of IP address.
        instance: 32 bits that tell factories of one process apart (the reference client uses the
            hash of its class loader); random when None.
    """

    __slots__ = ("_clock", "_counter", "_month_end", "_month_start", "_prefix", "_stem")

    def __init__(
        self, clock: Callable[[], int], pid: int, host: bytes, instance: int | None = None
    ) -> None:
        if len(host) not in (4, 16):
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(host)}")
        number = secrets.randbits(32) if instance is None else instance & 0xFFFFFFFF
        self._prefix = f"{host.hex().upper()}{pid & 0xFFFF:04X}{number:08X}"
        self._clock = clock
        # next() of a count is one step under the interpreter lock: threads may share a factory.
        self._counter = count()
        self._month_start = self._month_end = 0
        #: All but the counter, and the millisecond it is valid for: its begin and end in Unix ns.
        self._stem = (0, 0, "")

    def new_id(self) -> str:
        """Return an id that no other call returns."""
        begin, end, stem = self._stem
        now = self._clock()
        if not begin <= now < end:
            stem = self._stem_at(now // 1_000_000)
        number = next(self._counter)
        return f"{stem}{_HEX[number >> 8 & 0xFF]}{_HEX[number & 0xFF]}"

    def _stem_at(self, now: int) -> str:
        if now >= self._month_end:
            self._month_start, self._month_end = _month_around(now)
        elapsed = now - self._month_start
        if -_MAX_CLOCK_STEP_BACK_MS < elapsed < 0:
            elapsed = 0  # the clock was set back a little, across the start of the month
        stem = f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}"
        self._stem = (now * 1_000_000, (now + 1) * 1_000_000, stem)
        return stem


def new_unique_id() -> str:
    """Return a unique id of this process (56 characters where the host only has IPv6, else 32)."""
    return (_process_factory or _begin_process()).new_id()


_process_factory: UniqueIdFactory | None = None


def _begin_process() -> UniqueIdFactory:
    global _process_factory
    ip = local_address()
    # Four bytes of the clock when no address of the host identifies it.
    host = pack_host(ip, 0)[:-4] if ip else (time.time_ns() // 1_000_000 & 0xFFFFFFFF).to_bytes(4)
    _process_factory = UniqueIdFactory(time.time_ns, os.getpid(), host)
    return _process_factory


def _forget_process() -> None:
    global _process_factory
    _process_factory = None


if hasattr(os, "register_at_fork"):  # a child must not use its parent's pid and counter
    os.register_at_fork(after_in_child=_forget_process)


def local_address() -> str | None:
    """Return the numeric address this host sends from, IPv4 if possible; None if it has only
    loopback."""
    for found in _local_addresses():
        address = ipaddress.ip_address(found.partition("%")[0])
        if not (address.is_loopback or address.is_unspecified):
            return str(address)
    return None


def _local_addresses() -> Iterator[str]:
    # Connecting a datagram socket only chooses a route, nothing is sent; the addresses are
    # reserved for documentation (RFC 5737, RFC 3849).
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            yield probe.getsockname()[0]
    # In a network without a way out, such as one of containers, a host still has a name.
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, UnicodeError):
            for *_, address in socket.getaddrinfo(socket.gethostname(), None, family):
                yield str(address[0])


def _month_around(now: int) -> tuple[int, int]:
    """Return the start and the end of the month of `now`, in Unix ms, in local time."""
    start = datetime.fromtimestamp(now / 1000).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    year, month = divmod(start.year * 12 + start.month, 12)
    end = start.replace(year=year, month=month + 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
