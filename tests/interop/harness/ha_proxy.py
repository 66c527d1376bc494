"""A TCP proxy between two HA ports that records what passes, to pin the protocol byte by byte, and
can end it in the middle of a record."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple


class Piece(NamedTuple):
    """What came in one read: when (seconds since the proxy began), from whom, and the bytes."""

    at: float
    by_slave: bool
    data: bytes


class HaProxy:
    """Listens on a free port and forwards to the HA port `target` of a master.

    Each key of `replaced` becomes its value on the way; both have the same length.
    """

    def __init__(self, target: str, replaced: Mapping[bytes, bytes] | None = None) -> None:
        self._replaced = dict(replaced or {})
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._pieces: list[Piece] = []
        self._sockets: list[socket.socket] = []
        self._most: dict[bool, int] = {}  # by whether a slave sends
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="HA proxy", daemon=True).start()

    @property
    def pieces(self) -> list[Piece]:
        """What has passed so far."""
        with self._lock:
            return list(self._pieces)

    def by_slave(self) -> bytes:
        """All bytes of slaves, one connection after another."""
        return b"".join(piece.data for piece in self.pieces if piece.by_slave)

    def by_master(self) -> bytes:
        """All bytes of the master."""
        return b"".join(piece.data for piece in self.pieces if not piece.by_slave)

    def let_pass(self, most: int, *, by_slave: bool = False) -> None:
        """From now on so many bytes of the master pass, or of its slaves; what comes behind them is
        lost."""
        with self._lock:
            self._most[by_slave] = most

    def cut(self) -> None:
        """Close every connection that passes through; later ones are not limited."""
        with self._lock:
            self._most.clear()
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        """Close everything."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                slave, _ = self._listener.accept()
                try:
                    master = socket.create_connection(self._target, 5)
                except OSError:
                    slave.close()
                    continue
                with self._lock:
                    self._sockets += [slave, master]
                for source, sink, by_slave in ((slave, master, True), (master, slave, False)):
                    threading.Thread(
                        target=self._forward, args=(source, sink, by_slave), daemon=True
                    ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, by_slave: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                for old, new in self._replaced.items():
                    data = data.replace(old, new)
                with self._lock:
                    if by_slave in self._most:
                        data = data[: self._most[by_slave]]
                        self._most[by_slave] -= len(data)
                    self._pieces.append(Piece(time.monotonic() - self._began, by_slave, data))
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
