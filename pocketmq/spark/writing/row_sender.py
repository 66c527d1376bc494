"""Sends the rows of one task: a bounded number of batches in flight while the next are made.

Reading an Arrow batch from Spark blocks, so a thread waits for it while the loop reads answers. For
backpressure, no further batch is read while `batches_in_flight` batches are unanswered.

Messages with a sharding key go to the queue of their key, in the order of their rows: a batch for a
queue waits for the answer to the previous one, and is not sent if that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count, repeat
from typing import Any, NamedTuple

from pocketmq.client.errors import BatchSendError, InvalidMessage, RemotingError
from pocketmq.client.producer.prepared_message import prepare
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.queue_choice import ShardingKey, selector_named
from pocketmq.client.validation import check_message, goes_alone
from pocketmq.message.limits import MAX_BODY
from pocketmq.message.message import Message, MessageQueue
from pocketmq.spark.options.writer_options import WriterOptions
from pocketmq.spark.rows import Block, RowError, Rows

Numbered = tuple[int, Message]


class RowsNotSent(Exception):
    """Brokers did not accept some rows; the text gives the topic, the rows and the client's
    reason."""

    def __init__(self, rows: Sequence[int], topic: str, why: RemotingError) -> None:
        told = f"row {rows[0]}" if len(rows) == 1 else f"{len(rows)} rows from {rows[0]} on"
        super().__init__(f"{told} (topic {topic}) not sent: {why}")
        self.rows = tuple(rows)
        self.topic = topic


def send_rows(batches: Iterator[Any], rows: Rows, options: WriterOptions) -> int:
    """Send all rows of `pyarrow.RecordBatch`es, and return how many. Connects only if there are
    rows.

    Raises:
        RowError: a row is invalid. Rows of earlier batches may have been sent.
        RowsNotSent: brokers did not accept rows within the timeout and the retries.
        OSError: a file of TLS cannot be read.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0
    return asyncio.run(_send(first, batches, rows, options))


async def _send(first: Any, batches: Iterator[Any], rows: Rows, options: WriterOptions) -> int:
    producer = Producer(
        options.group,
        namesrv=options.connection.namesrv,
        timeout=options.timeout,
        retries=options.retries,
        batch_bytes=options.batch_bytes,
        **options.client_options(),
    )
    sent = 0
    async with producer:
        try:
            async with asyncio.TaskGroup() as group:
                sender = _RowSender(producer, group, options)
                batch = first
                while batch is not None:
                    for block in rows.blocks(batch):
                        await sender.send(block)
                        sent += len(block.messages)
                    batch = await asyncio.to_thread(next, batches, None)
        except BaseExceptionGroup as errors:
            # The other errors have the same cause, and their tracebacks would only obscure this
            # one.
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from error.__cause__
    return sent


class _Parts(NamedTuple):
    """The messages of a block by route; those in `alone` cannot be batched."""

    plain: list[Numbered]
    alone: list[tuple[int, Message, ShardingKey | None]]
    by_queue: dict[MessageQueue, list[Numbered]]


class _RowSender:
    """Sends blocks through one producer, in tasks of one group."""

    def __init__(
        self, producer: Producer, group: asyncio.TaskGroup, options: WriterOptions
    ) -> None:
        self._producer = producer
        self._group = group
        self._selector = selector_named(options.queue_selector)
        self._places = asyncio.Semaphore(options.batches_in_flight)
        self._locks: dict[MessageQueue, asyncio.Lock] = {}
        self._failed: set[MessageQueue] = set()

    async def send(self, block: Block) -> None:
        """Start sending a block as soon as a slot is free."""
        parts = await self._parted(block)
        await self._places.acquire()
        self._group.create_task(self._send_parts(parts))

    async def _parted(self, block: Block) -> _Parts:
        parts = _Parts([], [], {})
        queues: dict[str, Sequence[MessageQueue]] = {}
        keys = block.sharding_keys or repeat(None)
        for number, message, key in zip(count(block.first_row), block.messages, keys, strict=False):
            if goes_alone(message):
                parts.alone.append((number, message, key))
            elif key is None:
                parts.plain.append((number, message))
            else:
                if message.topic not in queues:
                    queues[message.topic] = await self._queues(number, message)
                queue = self._selector(queues[message.topic], message, key)
                parts.by_queue.setdefault(queue, []).append((number, message))
        return parts

    async def _queues(self, number: int, message: Message) -> Sequence[MessageQueue]:
        try:
            return await self._producer.queues(message.topic)
        except RemotingError as error:
            raise RowsNotSent([number], message.topic, error) from error

    async def _send_parts(self, parts: _Parts) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                if parts.plain:
                    group.create_task(self._send_batch(parts.plain, None))
                for queue, messages in parts.by_queue.items():
                    group.create_task(self._send_in_order(messages, queue))
                for number, message, key in parts.alone:
                    group.create_task(self._send_one(number, message, key))
        finally:
            self._places.release()

    async def _send_in_order(self, messages: list[Numbered], queue: MessageQueue) -> None:
        # Tasks start in order, and the lock is acquired in the order of the requests.
        async with self._locks.setdefault(queue, asyncio.Lock()):
            if queue in self._failed:
                return
            try:
                await self._send_batch(messages, queue)
            except BaseException:
                self._failed.add(queue)
                raise

    async def _send_batch(self, messages: list[Numbered], queue: MessageQueue | None) -> None:
        try:
            await self._producer.send_batch([message for _, message in messages], queue=queue)
        except BatchSendError as error:
            pairs = zip(messages, error.results, strict=True)
            failed = [numbered for numbered, result in pairs if result is None]
            rows = [number for number, _ in failed]
            raise RowsNotSent(rows, failed[0][1].topic, error) from error
        except InvalidMessage:
            for number, message in messages:
                _check(number, message)
            raise

    async def _send_one(self, number: int, message: Message, key: ShardingKey | None) -> None:
        _check(number, message)
        try:
            await self._producer.send(message, key=key)
        except RemotingError as error:
            raise RowsNotSent([number], message.topic, error) from error


def _check(number: int, message: Message) -> None:
    """Raise RowError for what the client refuses to send."""
    try:
        check_message(message, MAX_BODY)
        prepare(message, "0" * 32)
    except InvalidMessage as error:
        raise RowError(number, message.topic, str(error)) from error
