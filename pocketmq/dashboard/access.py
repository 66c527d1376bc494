"""Access to the cluster as one user: an Admin, and consumers with the same credentials."""

from __future__ import annotations

import ssl
from typing import Self

from pocketmq.client.admin import Admin
from pocketmq.client.admin.messages import TOOLS_GROUP
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.credentials import Credentials


class Access:
    """Access to the cluster as one user; with `credentials` None, requests are not signed.
    `timeout`: seconds for each answer.

    Call `start` and `shutdown`, or use `async with`.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        tls: ssl.SSLContext | bool,
        credentials: Credentials | None,
        timeout: float,
    ) -> None:
        self._namesrv = namesrv
        self._tls = tls
        self._credentials = credentials
        self._timeout = timeout
        self.admin = Admin(namesrv=namesrv, timeout=timeout, tls=tls, credentials=credentials)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Start. No server needs to be running."""
        await self.admin.start()

    async def shutdown(self) -> None:
        """Close every connection."""
        await self.admin.shutdown()

    def consumer(self, *, max_buffered: int, max_buffered_bytes: int) -> PullConsumer:
        """Return a consumer that commits nothing, in the group of RocketMQ's own tools."""
        return PullConsumer(
            TOOLS_GROUP,
            namesrv=self._namesrv,
            start="end",
            auto_commit=False,
            max_buffered=max_buffered,
            max_buffered_bytes=max_buffered_bytes,
            start_timeout=self._timeout,
            tls=self._tls,
            credentials=self._credentials,
        )
