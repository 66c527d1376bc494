"""Samples the offsets of all topics and groups periodically, for the history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pocketmq.client.admin import Admin
from pocketmq.client.admin.traffic import look
from pocketmq.client.errors import RemotingError
from pocketmq.dashboard.config import PERIOD
from pocketmq.dashboard.history import MOST_SERIES, History
from pocketmq.limited_log import LimitedLog

log = logging.getLogger(__name__)

#: The most topics and groups queried in a second: on a large cluster, samples are less frequent.
_MOST_ASKED: Final = 100


class Sampler:
    """Adds a sample to the history every `period` seconds; `sleep` waits in between.

    `problem` says why the last sample failed; None if it did not.
    """

    def __init__(
        self,
        admin: Admin,
        history: History,
        *,
        period: float = PERIOD,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._admin = admin
        self._history = history
        self._period = period
        self._sleep = sleep
        self._log = LimitedLog(log)
        self.problem: str | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            asked = await self.sample()
            await self._sleep(max(self._period, asked / _MOST_ASKED))

    async def sample(self) -> int:
        """Take one sample; return how many topics and groups it has."""
        try:
            seen = await look(self._admin, most=MOST_SERIES)
        except RemotingError as error:
            self.problem = error.remark or str(error)
            self._log.info("no sample of the lag: %s", self.problem, cause="sample")
            return 0
        self.problem = None
        self._history.add(seen)
        return len(seen.topics) + len(seen.groups)
