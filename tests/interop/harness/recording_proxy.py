"""A TCP proxy that records what passes, to pin a protocol between two official servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import NamedTuple

_READ = 1 << 16


class Passed(NamedTuple):
    """One read from one side; `connection` counts from 0, `upstream` is towards the target."""

    connection: int
    upstream: bool
    data: bytes


class RecordingProxy:
    """Listens on 127.0.0.1:`port` and passes everything on to `target`, until it is closed.

    Each key of `replaced` becomes its value on the way, in both directions; both have the same
    length, and neither is cut by a read, as they lie within one small frame.
    """

    def __init__(
        self, port: int, target: str, replaced: Mapping[bytes, bytes] | None = None
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self._target = target
        self._replaced = dict(replaced or {})
        self._passed: list[Passed] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._connections = 0
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def passed(self) -> list[Passed]:
        """Everything so far, in the order of the reads."""
        with self._lock:
            return list(self._passed)

    def of(self, connection: int, *, upstream: bool) -> bytes:
        """All bytes of one direction of a connection."""
        return b"".join(
            one.data
            for one in self.passed
            if one.connection == connection and one.upstream == upstream
        )

    @property
    def connections(self) -> int:
        """How many connections there were."""
        with self._lock:
            return self._connections

    def cut(self) -> None:
        """Close all connections; new ones are taken."""
        with self._lock:
            open_ones, self._sockets = self._sockets, []
        for one in open_ones:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        """Close everything."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self._target.rpartition(":")
            try:
                far = socket.create_connection((host, int(port)), 5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                number = self._connections
                self._connections += 1
                self._sockets += [near, far]
            for source, sink, upstream in ((near, far, True), (far, near, False)):
                threading.Thread(
                    target=self._pump, args=(number, source, sink, upstream), daemon=True
                ).start()

    def _pump(
        self, number: int, source: socket.socket, sink: socket.socket, upstream: bool
    ) -> None:
        try:
            while data := source.recv(_READ):
                for old, new in self._replaced.items():
                    data = data.replace(old, new)
                with self._lock:
                    self._passed.append(Passed(number, upstream, data))
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
