"""TLS between a socket and the protocol of a connection, on the server's side.

A server decides by the first byte whether a connection is plain, so the protocol has read that
byte, and more, when TLS begins. Event loops cannot take bytes back. So this layer is a class of its
own: it is the protocol of the socket's transport, and the transport of the connection's protocol.
Plain connections never use it.

Handshakes cost up to a millisecond of CPU time each. They run in a thread, one at a time, because
OpenSSL needs no GIL: a flood of handshakes does not hold up open connections. Addresses take turns
in it. The number of handshakes is bounded, in all and per address, and so is the time of each.
Where the bound is reached, one that has waited for its peer for a while ends, and makes room: who
begins handshakes and does not go on would otherwise keep out all others behind the same address.

A read may have ten thousand records of one byte, which take twenty milliseconds. So all connections
together decrypt a bounded number of them in a turn of the event loop, and then one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

from pocketmq.message.buffers import Buffer
from pocketmq.remoting.frames.first_bytes import HANDSHAKE_FAILURE_ALERT
from pocketmq.remoting.shares import Shares
from pocketmq.remoting.tls.client_hello import BadHello, ClientHello

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds from the first byte to the end of the handshake."""

PATIENCE: Final = 1.0
"""Seconds after which a handshake that waits for its peer makes room for a new one. It has two
round trips at most."""

MAX_HANDSHAKES: Final = 1024
"""Handshakes in progress at one server; further connections are closed."""

_SHARE = 4
"""One address has at most one in this many of them. A client that begins handshakes and does not
finish them leaves the rest to the other addresses."""

_RECORD = 16 * 1024
_HEADER = 5  # bytes of a record's header, whose last two are the length of the rest

MOST_RECORDS_WITHOUT_DATA: Final = 256
"""Records of a connection after the handshake that bring no data. OpenSSL accepts any number of
new keys, each of which costs as much as a small request, and a client needs one after millions of
records."""

FREE_RECORDS: Final = 16
"""Records of a read that are decrypted at once: a read of 256 KiB has as many if they are full."""

MOST_RECORDS_IN_TURN: Final = 1024
"""Further records of all connections in one turn of the event loop: two milliseconds."""


class HandshakeError(Exception):
    """A handshake failed; the text says why."""


class Handshakes:
    """The handshakes of one server: where they run, and their number.

    Args:
        timeout: seconds of each.
        limit: how many may be in progress.
        limit_per_address: the same for one address; None: a quarter.
        patience: seconds after which one makes room for another.

    Attributes:
        turns: in which the records after them are decrypted.
    """

    def __init__(
        self,
        *,
        timeout: float = HANDSHAKE_TIMEOUT,
        limit: int = MAX_HANDSHAKES,
        limit_per_address: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.timeout = timeout
        self.patience = patience
        self.limit = limit
        self.limit_per_address = (
            max(1, limit // _SHARE) if limit_per_address is None else limit_per_address
        )
        self._counts = Shares()
        # By address, with the time at which each began; the oldest first.
        self._layers: dict[str, dict[TlsLayer, float]] = {}
        self._thread: ThreadPoolExecutor | None = None
        # By address, the next one first.
        self._steps: dict[str, deque[tuple[asyncio.Future[bool], Callable[[], bool]]]] = {}
        self._lock = threading.Lock()
        self.turns = RecordTurns()

    @property
    def running(self) -> int:
        """The number in progress."""
        return self._counts.total

    def refusal(self, address: str) -> tuple[str, Hashable] | None:
        """Tell whether a handshake with `address` may begin now: None, or the reason why not, and
        the key common to reasons of its kind. An older one may end for it."""
        if self._counts.of(address) >= self.limit_per_address and not self._make_room(address):
            return (
                f"{self.limit_per_address} TLS handshakes with its address are in progress already",
                ("handshakes", address),
            )
        if self.running >= self.limit and not self._make_room(self._busiest()):
            return f"{self.limit} TLS handshakes are in progress already", "handshakes"
        return None

    def begin(self, address: str, layer: TlsLayer | None = None) -> None:
        """Count a handshake with `address`; `layer` can make room for another."""
        self._counts.add(address)
        if layer is not None:
            self._layers.setdefault(address, {})[layer] = time.monotonic()

    def end(self, address: str, layer: TlsLayer | None = None) -> None:
        """Stop counting a handshake, however it ended."""
        self._counts.remove(address)
        if layer is not None:
            layers = self._layers[address]
            del layers[layer]
            if not layers:
                del self._layers[address]

    def _busiest(self) -> str:
        return max(self._layers, key=lambda address: len(self._layers[address]), default="")

    def _make_room(self, address: str) -> bool:
        """End the oldest handshake with `address` that waits for its peer; False if none has waited
        long enough."""
        latest = time.monotonic() - self.patience
        for layer, began in self._layers.get(address, {}).items():
            if began > latest:
                break
            if layer.waits:
                layer.give_way()
                return True
        return False

    def step(self, address: str, work: Callable[[], bool]) -> asyncio.Future[bool]:
        """Do one step of a handshake with `address` in the thread, unless it is cancelled. The
        result may be a HandshakeError."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "pocketmq-tls-handshakes")
        step: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._steps.setdefault(address, deque()).append((step, work))
        self._thread.submit(self._do_next)
        return step

    def _do_next(self) -> None:
        """Do the next step, in the thread."""
        with self._lock:
            address = next(iter(self._steps))
            steps = self._steps.pop(address)
            step, work = steps.popleft()
            if steps:
                self._steps[address] = steps  # after the other addresses
        if step.cancelled():
            return
        result, reason = False, None
        try:
            result = work()
        except Exception as error:
            # The error itself would keep this frame, and the frame the step with its error.
            reason = _reason(error)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            step.get_loop().call_soon_threadsafe(_settle, step, result, reason)

    def stop(self) -> None:
        """End the thread; queued steps are not done."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
            with self._lock:
                self._steps.clear()


def _settle(step: asyncio.Future[bool], result: bool, reason: str | None) -> None:
    if step.done():
        return
    if reason is None:
        step.set_result(result)
    else:
        step.set_exception(HandshakeError(reason))


class RecordTurns:
    """The records that the connections of one server decrypt, beyond the first ones of a read."""

    def __init__(self) -> None:
        self._left = MOST_RECORDS_IN_TURN
        self._begun = False
        self._waiting: deque[TlsLayer] = deque()

    def take(self) -> bool:
        """Count a record; return False if it has to wait for another turn."""
        if not self._left:
            return False
        self._left -= 1
        self._begin()
        return True

    def wait(self, layer: TlsLayer) -> None:
        """Let a connection go on after those that wait already."""
        self._waiting.append(layer)
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._begun = False
        self._left = MOST_RECORDS_IN_TURN
        if self._waiting:
            self._waiting.popleft().take_turn()
        if self._waiting:
            self._begin()


class TlsLayer(asyncio.Protocol):
    """One encrypted connection: see the module.

    `transport` is the socket's, `protocol` gets what was decrypted, `address` is the peer's.
    `close(why, cause)` is called once when the peer breaks the rules of TLS; after it, the
    connection is dropped.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        handshakes: Handshakes,
        address: str,
        close: Callable[[str, Hashable], None],
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        self._handshakes = handshakes
        self._address = address
        self._close = close
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._hello = ClientHello()
        self._received = b""  # records that wait for a turn, or the beginning of one
        self._waits_for_turn = False
        self._paused = False  # by the protocol
        self._without_data = 0
        self._ready = False
        self._closing = False
        self._step: asyncio.Future[bool] | None = None
        handshakes.begin(address, self)
        self._deadline: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            handshakes.timeout, self._too_late
        )
        transport.set_protocol(self)

    # The socket's protocol

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._ready:
            self._read(data)
        else:
            try:
                self._hello.feed(data)
            except BadHello as error:
                self._transport.write(HANDSHAKE_FAILURE_ALERT)
                self._fail(str(error))
                return
            self._incoming.write(data)
            # Further bytes stay in the socket meanwhile: the thread has the buffers.
            self._transport.pause_reading()
            self._step = self._handshakes.step(self._address, self._handshake)
            self._step.add_done_callback(self._stepped)

    def eof_received(self) -> None:
        if not self._ready:
            self._fail("it left during the handshake")

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._handshake_ended()
        self._protocol.connection_lost(exc)
        if self._step is not None:
            self._step.cancel()
        # The protocol and the layer refer to each other. Many connections that are lost would be
        # much work for the garbage collector, which stops the server meanwhile. And it would come
        # late: what OpenSSL has for a connection may be hundreds of kilobytes.
        self._received = b""
        del self._hello, self._ssl, self._incoming, self._outgoing, self._protocol, self._close

    # The handshake

    def _handshake(self) -> bool:
        """Go on with the handshake, in the thread; return whether it has ended."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _stepped(self, step: asyncio.Future[bool]) -> None:
        self._step = None
        error = None if step.cancelled() else step.exception()
        if self._closing or step.cancelled():
            return
        self._send()  # also the alert that says what is wrong
        if error is not None:
            self._fail(str(error))
            return
        self._transport.resume_reading()
        if step.result():
            self._ready = True
            self._handshake_ended()
            # Requests may have come with the last bytes of the handshake.
            self._read(self._incoming.read())

    def _handshake_ended(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._handshakes.end(self._address, self)

    @property
    def waits(self) -> bool:
        """Whether the handshake waits for the peer, and not for the thread."""
        return self._step is None

    def give_way(self) -> None:
        """End the handshake for another one."""
        self._handshake_ended()
        self._fail("the handshake took long, and others need its place")

    def _too_late(self) -> None:
        self._fail(f"the handshake took more than {self._handshakes.timeout:.3g} s")

    def _fail(self, why: str) -> None:
        if self._closing:
            return
        self._closing = True
        self._close(f"TLS: {why}", ("tls", why))
        # Not abort: the peer should get the alert.
        self._transport.close()

    # Records

    def _read(self, data: bytes) -> None:
        """Decrypt the records that are complete, and hand them on in one piece, as a plain socket
        would; some of them later if they are many."""
        received = self._received + data
        records = []
        ended = waits = False
        begin = count = 0
        # One by one: OpenSSL would read all records without data in a row at once.
        while not ended and len(received) - begin >= _HEADER:
            end = begin + _HEADER + int.from_bytes(received[begin + 3 : begin + _HEADER])
            if end > len(received):
                break
            count += 1
            if count > FREE_RECORDS and not self._handshakes.turns.take():
                waits = True
                break
            self._incoming.write(received[begin:end])
            begin = end
            try:
                record = self._ssl.read(_RECORD)
            except ssl.SSLWantReadError:
                self._without_data += 1
                if self._without_data > MOST_RECORDS_WITHOUT_DATA:
                    self._fail(f"{MOST_RECORDS_WITHOUT_DATA} records without data")
                    return
            except ssl.SSLZeroReturnError:
                ended = True
            except ssl.SSLError as error:
                self._send()
                self._fail(_reason(error))
                return
            else:
                records.append(record)
                ended = not record
        self._received = received[begin:]
        self._send()  # such as the answer to a new key of the peer
        if waits:
            self._wait_for_turn()
        if records:
            self._protocol.data_received(records[0] if len(records) == 1 else b"".join(records))
        if ended:
            self.close()

    def _wait_for_turn(self) -> None:
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._transport.pause_reading()
            self._handshakes.turns.wait(self)

    def take_turn(self) -> None:
        """Decrypt some of the records that wait, and read on after the last one."""
        self._waits_for_turn = False
        if self._closing or self._paused:
            return  # in the latter case, the protocol resumes
        self._read(b"")
        self._read_on()

    def _read_on(self) -> None:
        if not (self._closing or self._paused or self._waits_for_turn or self._step is not None):
            self._transport.resume_reading()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _encrypt(self, data: Buffer) -> None:
        done = self._ssl.write(data)
        if done < len(data):  # one record at a time
            rest = memoryview(data)
            while done < len(rest):
                done += self._ssl.write(rest[done:])

    # The connection's transport

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._closing or not self._ready:
            return
        try:
            for data in buffers:
                if len(data):
                    self._encrypt(data)
        except ssl.SSLError as error:
            self._fail(_reason(error))
            return
        self._send()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._ready and not self._closing and len(self._received) >= _HEADER:
            self._wait_for_turn()  # for the rest of a read
        else:
            self._read_on()

    def close(self) -> None:
        """Send the end of TLS, and close when everything is sent."""
        if not self._closing and self._ready:
            with contextlib.suppress(ssl.SSLError):  # the peer's own end is not awaited
                self._ssl.unwrap()
            self._send()
        self._closing = True
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def as_transport(self) -> asyncio.Transport:
        """Return the layer as the transport of the protocol above it."""
        return cast(asyncio.Transport, self)


def _reason(error: BaseException) -> str:
    """Return OpenSSL's reason for giving up: "certificate verify failed", "unknown ca"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__
