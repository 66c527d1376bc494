"""Sends a consumer's trace records with a separate producer, which the consumer starts and stops.

Reference: AsyncTraceDispatcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pocketmq.client.consumer.consumer_options import ConsumerOptions
from pocketmq.client.observation.consume_hooks import ConsumeHookList
from pocketmq.client.observation.trace import ConsumeTrace, TraceDispatcher
from pocketmq.client.options import ClientOptions
from pocketmq.client.producer.producer import Producer
from pocketmq.message.limits import TRACE_TOPIC

#: Prefix of the producer groups of trace records (TraceConstants).
GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"


class TraceSender:
    """The trace of one consumer: one of its `hooks` records its work until the shutdown.

    Does nothing if the consumer's option `trace` is off. The records are sent to the same cluster,
    with the same credentials.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        namesrv: str | Sequence[str] | None,
        hooks: ConsumeHookList,
    ) -> None:
        self._hooks = hooks
        self._running: asyncio.Task[None] | None = None
        self._producer: Producer | None = None
        if not options.trace:
            return
        client = options.client
        own: ClientOptions = {
            "unit_name": client.get("unit_name", ""),
            "credentials": client.get("credentials"),
            "tls": client.get("tls", False),
        }
        group = f"{GROUP_PREFIX}{options.group}-CONSUME"
        self._producer = Producer(group, namesrv=namesrv, **own)
        topic = TRACE_TOPIC if options.trace is True else options.trace
        self._dispatcher = TraceDispatcher(self._producer.send, topic)
        self._hook = ConsumeTrace(self._dispatcher)
        hooks.append(self._hook)

    async def start(self) -> None:
        """Start; raises as Producer.start."""
        if self._producer is None:
            return
        await self._producer.start()
        self._running = asyncio.get_running_loop().create_task(self._dispatcher.run())

    async def shutdown(self) -> None:
        """Send the pending records, and end."""
        if self._producer is None:
            return
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
        running, self._running = self._running, None
        try:
            if running is not None:
                await self._dispatcher.finish()
        finally:
            if running is not None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await self._producer.shutdown()
