"""A server with the API of Google Cloud Storage on loopback, in memory: run as a module.

It prints its port, and ends when its stdin is closed. It is a process of its own because PyArrow
holds the interpreter's lock during some requests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from http.server import ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.storage import Storage


def main() -> None:
    """Serve until stdin ends."""
    # Its own server answers one request at a time: a client that reads two objects by turns would
    # wait for ever. Its handlers are not made for threads; answers are sent behind them.
    one_at_a_time = Lock()

    def locked(handle: Callable[..., None]) -> Callable[..., None]:
        def handle_alone(*arguments: Any) -> None:
            with one_at_a_time:
                handle(*arguments)

        return handle_alone

    emulator.HANDLERS = tuple(
        (path, {method: locked(handle) for method, handle in methods.items()})
        for path, methods in emulator.HANDLERS
    )
    handler = partial(emulator.RequestHandler, Storage(use_memory_fs=True))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
