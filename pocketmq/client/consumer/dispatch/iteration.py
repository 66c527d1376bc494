"""Delivers messages to the application's loops: `async for message in consumer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.consume_service import ConsumeService
from pocketmq.client.consumer.dispatch.expired_requests import MARK, ExpiredRequests

#: Messages after which an iteration yields to the event loop.
TURN = 32


class Iteration:
    """The messages of a service, one by one."""

    def __init__(self, service: ConsumeService, expired: ExpiredRequests) -> None:
        #: Called before each wait; may raise.
        self.before_wait: Callable[[], None] = lambda: None
        self._service = service
        self._drops = expired.drops
        self._handed_out = 0
        self._arrival = asyncio.Event()

    def wake(self) -> None:
        """Wake the waiters: messages have arrived, or the service has stopped."""
        self._arrival.set()

    async def next(self) -> ConsumedMessage | None:
        """Wait for the next message; return None when the service has stopped."""
        self._handed_out += 1
        if self._handed_out % TURN == 0:
            await asyncio.sleep(0)
        while True:
            message = self._service.take()
            if message is not None:
                if message.properties_bytes.find(MARK) >= 0 and self._drops(message):
                    self._service.succeeded(message)
                    continue
                return message
            if self._service.stopped:
                return None
            self.before_wait()
            self._arrival.clear()
            await self._arrival.wait()
