"""Access to the cluster as one user: an Admin, and consumers with the same credentials."""

from __future__ import annotations

import ssl
from typing import ClassVar, Final, Self

from pocketmq.client.admin import Admin
from pocketmq.client.admin.messages import TOOLS_GROUP
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.credentials import Credentials
from pocketmq.message.message import MessageExt
from pocketmq.message.record_layout import Parts

MOST_DECOMPRESSED: Final = 1024 * 1024
"""Bytes of the largest body that is decompressed for a list or a tail. 64 KiB can become 64 MiB: a
page of such messages would take the process's memory, and block its event loop for seconds."""


class _Message(MessageExt):
    """A message whose body stays compressed if it is too large otherwise."""

    @classmethod
    def from_parts(
        cls, parts: Parts, broker_name: str = "", max_body: int | None = MOST_DECOMPRESSED
    ) -> Self:
        return super().from_parts(parts, broker_name, max_body)


class _Admin(Admin):
    _message_type: ClassVar[type[MessageExt]] = _Message


class _Consumer(PullConsumer):
    _message_type: ClassVar[type[MessageExt]] = _Message


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
        self.admin: Admin = _Admin(
            namesrv=namesrv, timeout=timeout, tls=tls, credentials=credentials
        )

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
        return _Consumer(
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
