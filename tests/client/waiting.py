"""Waiting for what no event tells."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Return as soon as the condition holds; TimeoutError when it does not come to that."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)
