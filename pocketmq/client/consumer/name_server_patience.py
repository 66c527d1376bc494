"""Waiting for a name server while a consumer starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from pocketmq.client.backoff import backoff
from pocketmq.client.errors import NoNameServer
from pocketmq.client.log_fields import fields
from pocketmq.client.options import ClientOptions
from pocketmq.client.parameters import seconds

__all__ = ["patiently", "take_start_timeout"]

log = logging.getLogger(__name__)

#: Pause after the first failure and after any further one in a row, seconds.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0

#: How long a consumer waits for a name server by default, seconds.
START_TIMEOUT = 30.0

T = TypeVar("T")


def take_start_timeout(options: ClientOptions) -> float:
    """Take `start_timeout` out of a consumer's options; in seconds, 0 for None."""
    given = options.pop("start_timeout", START_TIMEOUT)
    return 0.0 if given is None else seconds("start_timeout", given)


async def patiently(action: Callable[[], Awaitable[T]], timeout: float, group: str) -> T:
    """Do `action`, again and again while no name server answers, for `timeout` seconds.

    Raises:
        NoNameServer: no name server answered in that time; and whatever else `action` raises.
    """
    deadline = monotonic() + timeout
    failures = 0
    while True:
        try:
            result = await action()
        except NoNameServer as error:
            failures += 1
            pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, failures)
            if monotonic() + pause > deadline:
                raise
            if failures == 1:
                log.warning(
                    "group %s waits up to %g s for a name server: %s",
                    group,
                    timeout,
                    error,
                    extra=fields(error, group=group),
                )
            await asyncio.sleep(pause)
        else:
            if failures:
                log.info("group %s has reached a name server", group, extra=fields(group=group))
            return result
