"""Sends a list of messages: the parts concurrently, the results in the order of the list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pocketmq.client.errors import RemotingError, batch_send_error
from pocketmq.client.producer.batch import BatchPart, split
from pocketmq.client.producer.sender import Sender
from pocketmq.client.send_result import SendResult
from pocketmq.message.identity import new_unique_id
from pocketmq.message.message import Message, MessageQueue

#: Parts of one list in flight at the same time; those to one broker share requests.
BATCH_CONCURRENCY = 32


class BatchSender:
    """Sends lists through one Sender.

    `max_bytes`: largest body of a batch. `max_message_size`: largest body of a message. `extra`:
    encoded system properties for every message.
    """

    def __init__(
        self, sender: Sender, *, max_bytes: int, max_message_size: int, extra: str
    ) -> None:
        self._sender = sender
        self._max_bytes = max_bytes
        self._max_message_size = max_message_size
        self._extra = extra

    async def send(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        deadline: float,
        extra: str = "",
    ) -> list[SendResult]:
        """Send all messages. With `queue`, the batches are sent one after another, up to the first
        failure. `extra`: encoded system properties for each message.

        Raises InvalidMessage and InvalidName before anything is sent; BatchSendError.
        """
        parts = split(
            messages,
            new_unique_id,
            max_bytes=self._max_bytes,
            max_message_size=self._max_message_size,
            extra=extra,
        )
        results: list[SendResult | None] = [None] * len(messages)
        errors = await self._send_parts(parts, results, queue, deadline)
        if errors:
            failed = [
                message for message, result in zip(messages, results, strict=True) if result is None
            ]
            raise batch_send_error(errors[0], results, failed) from errors[0]
        return [result for result in results if result is not None]

    async def _send_parts(
        self,
        parts: Sequence[BatchPart],
        results: list[SendResult | None],
        queue: MessageQueue | None,
        deadline: float,
    ) -> list[RemotingError]:
        errors: list[RemotingError] = []
        waiting = iter(parts)

        async def work() -> None:
            for part in waiting:
                try:
                    stored = await self.send_part(part, queue, deadline)
                except RemotingError as error:
                    errors.append(error)
                    if queue is not None:
                        return
                    continue
                for index, result in zip(part.indexes, stored, strict=True):
                    results[index] = result

        if len(parts) == 1 or queue is not None:
            await work()
        else:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(BATCH_CONCURRENCY, len(parts))):
                    group.create_task(work())
        return errors

    async def send_part(
        self, part: BatchPart, queue: MessageQueue | None, deadline: float
    ) -> list[SendResult]:
        """Send one batch, or a single message. Raises SendError, NoRouteInfo."""
        if len(part.msg_ids) == 1:
            return [await self._sender.send(part.single(self._extra), queue, deadline)]
        return await self._sender.send_batch(part.outgoing(self._extra), queue, deadline)
