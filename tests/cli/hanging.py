"""`pocketmq` with something that hangs: `python -m tests.cli.hanging KIND ARGUMENT...`.

KIND is `request` or `thread`, what a request of code `CODE` waits for, whatever is done to it; or
`table`, a write of the table of topics once it has the topic `TOPIC`. A line on stderr says when it
hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any, Final, Never

from pocketmq.cli import main
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.store.config_file import ConfigFile

CODE: Final = 4711
TOPIC: Final = "hanging"


def say() -> None:
    print("it hangs", file=sys.stderr, flush=True)


async def ignore_everything() -> Never:
    say()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def block() -> None:
    say()
    threading.Event().wait()


async def in_a_thread() -> None:
    await asyncio.to_thread(block)


def serve(handler: Any) -> None:
    start = RemotingServer.start

    async def start_with_handler(self: RemotingServer) -> None:
        self.dispatcher.register(CODE, handler)
        await start(self)

    RemotingServer.start = start_with_handler  # type: ignore[method-assign]


def block_tables() -> None:
    write = ConfigFile.write

    def write_or_hang(self: ConfigFile, content: bytes) -> None:
        if self.path.name == "topics.json" and TOPIC.encode() in content:
            block()
        write(self, content)

    ConfigFile.write = write_or_hang  # type: ignore[method-assign]


if __name__ == "__main__":
    kind = sys.argv.pop(1)
    if kind == "table":
        block_tables()
    else:
        serve(lambda request: ignore_everything() if kind == "request" else in_a_thread())
    sys.exit(main())
