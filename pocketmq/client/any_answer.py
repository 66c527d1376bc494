"""Finds out whether any of several servers answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from pocketmq.client.errors import Unavailable

#: Seconds between a failed request and the next one to the same server.
PAUSE = 0.2


async def any_answer(
    addresses: Iterable[str],
    ask: Callable[[str, float], Awaitable[object]],
    timeout: float,
    spawn: Callable[[Coroutine[Any, Any, str | None], str], asyncio.Task[str | None]],
) -> tuple[str | None, dict[str, Unavailable]]:
    """Ask all servers at once. Return the first that answers, and the last error of each other.

    While some requests are pending, servers that failed are asked again every `PAUSE`, so a server
    that comes back is found, and the errors are recent. The call ends as soon as all have failed.

    Args:
        ask: sends a request to an address with a timeout in seconds; raises Unavailable.
        spawn: starts a task with a name.
    """
    deadline = time.monotonic() + timeout
    errors: dict[str, Unavailable] = {}
    all_failed = asyncio.Event()
    left = {*addresses}

    async def keep_asking(address: str) -> str | None:
        remaining = timeout
        while remaining > 0 and not all_failed.is_set():
            try:
                await ask(address, remaining)
            except Unavailable as error:
                # The traceback refers to this frame, and so to the error: a cycle.
                errors[address] = error.with_traceback(None)
            else:
                errors.pop(address, None)
                return address
            left.discard(address)
            if not left:
                all_failed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await all_failed.wait()
            # A request just before the deadline would only time out.
            remaining = deadline - time.monotonic() - PAUSE
        return None

    asking = [spawn(keep_asking(address), "ping") for address in left]
    try:
        for each in asyncio.as_completed(asking):
            if (answering := await each) is not None:
                return answering, errors
    finally:
        for task in asking:
            task.cancel()
    return None, errors
