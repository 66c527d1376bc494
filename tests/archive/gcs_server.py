"""A server with the API of Google Cloud Storage on loopback, in memory: run as a module.

It prints its port, and ends when its stdin is closed. It is a process of its own because PyArrow
holds the interpreter's lock during some requests.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from http.server import ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

ONE_AT_A_TIME = Lock()


class Handler(RequestHandler):  # type: ignore[misc]  # it has no types
    """Handles one request at a time, since the emulator is not made for threads, but sends answers
    at the same time. The emulator's own server waits until an answer is read: a client that reads
    two objects by turns would wait for ever."""

    wfile: Any

    def do_GET(self) -> None:
        self._alone(super().do_GET)

    def do_POST(self) -> None:
        self._alone(super().do_POST)

    def do_PUT(self) -> None:
        self._alone(super().do_PUT)

    def do_DELETE(self) -> None:
        self._alone(super().do_DELETE)

    def _alone(self, handle: Callable[[], None]) -> None:
        client = self.wfile
        self.wfile = answer = io.BytesIO()
        try:
            with ONE_AT_A_TIME:
                handle()
        finally:
            self.wfile = client
        client.write(answer.getvalue())


def main() -> None:
    """Serve until stdin ends."""
    handler = partial(Handler, Storage(use_memory_fs=True))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
