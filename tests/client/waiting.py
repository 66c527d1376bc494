"""Waiting for what no event tells."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from pocketmq.client.admin import Admin
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.remoting.bodies.consumer import ConsumerConnection


async def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Return as soon as the condition holds; TimeoutError when it does not come to that.

    The seconds are counted in turns of the event loop: a busy machine has more of them.
    """
    for _ in range(int(timeout * 1000)):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


def client_tasks() -> list[str]:
    """What the tasks of all clients do; their names begin with the client's id."""
    own = f"@{os.getpid()}#"
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return [name.partition(" ")[2] for name in names if own in name]


async def online(admin: Admin, group: str, topic: str, producers: str) -> ConsumerConnection:
    """The consumers of a group, as soon as the broker knows what they read of the topic, and the
    group of producers."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(ConsumerNotOnline):
                found = await admin.consumers(group)
                if topic in found.subscription_table and await admin.producers(producers):
                    return found
            await asyncio.sleep(0.01)
