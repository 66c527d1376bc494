"""Where a consumer's trace records leave: by a producer of their own, which the consumer starts and
ends. Reference: AsyncTraceDispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pocketmq.client.log_fields import fields
from pocketmq.client.options import ClientOptions
from pocketmq.client.producer.producer import Producer
from pocketmq.client.trace import ConsumeTrace, TraceDispatcher
from pocketmq.message.limits import TRACE_TOPIC

__all__ = ["TraceSender"]

log = logging.getLogger(__name__)

#: What groups of producers of trace records are named by (TraceConstants).
GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"
#: Shutdown does not wait longer than this for the last records, seconds.
LAST_FLUSH_TIMEOUT = 3.0


class TraceSender:
    """The trace of one consumer group; `hook` records its work.

    `topic`: True for RocketMQ's own. `options` are the consumer's: the records go to the same
    cluster, with the same credentials.
    """

    def __init__(
        self,
        group: str,
        topic: str | bool,
        namesrv: str | Sequence[str] | None,
        options: ClientOptions,
    ) -> None:
        own: ClientOptions = {
            "unit_name": options.get("unit_name", ""),
            "credentials": options.get("credentials"),
            "tls": options.get("tls", False),
        }
        self._producer = Producer(f"{GROUP_PREFIX}{group}-CONSUME", namesrv=namesrv, **own)
        self._dispatcher = TraceDispatcher(
            self._producer.send, TRACE_TOPIC if topic is True else str(topic)
        )
        self.hook = ConsumeTrace(self._dispatcher)
        self._group = group
        self._running: asyncio.Task[None] | None = None

    @property
    def dropped(self) -> int:
        """Records that found no room or could not be sent."""
        return self._dispatcher.dropped

    async def start(self) -> None:
        """Begin to send; raises as Producer.start does."""
        await self._producer.start()
        self._running = asyncio.get_running_loop().create_task(self._dispatcher.run())

    async def shutdown(self) -> None:
        """Send what was recorded until now, and end."""
        running, self._running = self._running, None
        try:
            if running is not None:
                async with asyncio.timeout(LAST_FLUSH_TIMEOUT):
                    await self._dispatcher.flush()
        except TimeoutError:
            log.warning("the last trace records are lost", extra=fields(group=self._group))
        finally:
            if running is not None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await self._producer.shutdown()
