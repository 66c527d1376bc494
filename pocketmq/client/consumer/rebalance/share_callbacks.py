"""The callbacks for gained and lost queues, which are awaited.

Reference: MessageQueueListener, which is not awaited; Kafka's ConsumerRebalanceListener.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence

from pocketmq.client.consumer.consumer_options import ConsumerOptions, ShareCallback
from pocketmq.client.log_fields import fields
from pocketmq.client.namespace import Namespace
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue

log = logging.getLogger(__name__)


class ShareCallbacks:
    """The callbacks `on_assigned` and `on_revoked` of one consumer. `timeout`: seconds that a call
    may take; after that, or after an error, the consumer continues."""

    def __init__(self, options: ConsumerOptions, namespace: Namespace, timeout: float) -> None:
        self._options = options
        self._namespace = namespace
        self._timeout = timeout

    async def assigned(self, queues: Sequence[MessageQueue]) -> None:
        """Call `on_assigned` with queues that are not read yet."""
        await self._call("on_assigned", self._options.on_assigned, queues)

    async def revoked(self, queues: Sequence[MessageQueue]) -> None:
        """Call `on_revoked` with queues from which nothing more is read or delivered."""
        await self._call("on_revoked", self._options.on_revoked, queues)

    async def _call(
        self, name: str, callback: ShareCallback | None, queues: Sequence[MessageQueue]
    ) -> None:
        shown = [
            self._namespace.unwrap_queue(queue)
            for queue in sorted(queues)
            if not queue.topic.startswith(RETRY_PREFIX)
        ]
        if callback is None or not shown:
            return
        told = fields(group=self._options.group)
        bound = asyncio.timeout(self._timeout)
        try:
            async with bound:
                result = callback(shown)
                if inspect.isawaitable(result):
                    await result
        except Exception:
            if bound.expired():
                log.warning(
                    "%s of group %s took more than %g s: continuing without it",
                    name,
                    self._options.group,
                    self._timeout,
                    extra=told,
                )
            else:
                log.exception("%s of group %s failed", name, self._options.group, extra=told)
