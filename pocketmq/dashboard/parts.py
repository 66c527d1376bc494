"""The parts of a dashboard that run before the first visit: its connections, and the sampler."""

from __future__ import annotations

import contextlib
from typing import Self

from pocketmq.client.credentials import Credentials
from pocketmq.dashboard.access import Access
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.history import History
from pocketmq.dashboard.sampler import Sampler
from pocketmq.kept_task import KeptTask


class Parts:
    """The parts that run from the first sample on; `async with` starts and stops them.

    `visitor` is the access of those who have not logged in.
    """

    def __init__(self, config: DashboardConfig) -> None:
        self.config = config
        self._stack = contextlib.AsyncExitStack()
        self.history = History()
        self.visitor = self.open(config.credentials)
        if config.sampler_credentials is None:
            self._sampling = self.visitor
        else:
            self._sampling = self.open(config.sampler_credentials)
        self.sampler = Sampler(self._sampling.admin, self.history, period=config.period)

    def open(self, credentials: Credentials | None) -> Access:
        """Create an access to the cluster, not yet started."""
        config = self.config
        return Access(
            config.namesrv, tls=config.tls, credentials=credentials, timeout=config.timeout
        )

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for access in {self.visitor, self._sampling}:
                await stack.enter_async_context(access)
            samples = KeptTask(self.sampler.run, "samples of the dashboard")
            stack.push_async_callback(samples.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()
