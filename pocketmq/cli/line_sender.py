"""Sends lines as messages, many on the way at once, and counts what became of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, Callable, Sequence
from functools import partial

import msgspec

from pocketmq.cli.lines import Lines
from pocketmq.client.errors import BatchSendError, RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message

#: Requests and bytes on the way at once; beyond either, no further line is read.
MAX_REQUESTS = 64
MAX_BYTES = 16 * 1024 * 1024

#: Requests failed in a row after which the rest is not tried any more.
GIVE_UP_AFTER = 20

#: Failures that are reported one by one; the rest is only counted.
MAX_REPORTS = 10


class Tally(msgspec.Struct):
    """Lines by what became of them; `skipped` are empty ones, which can not be messages.

    `read` counts bytes of the files, line ends included.
    """

    read: int = 0
    sent: int = 0
    failed: int = 0
    skipped: int = 0
    gave_up: bool = False


class LineSender:
    """Sends each line as one message made by `make_message(body)`.

    With `batch` above 1, up to that many lines travel in one request. Requests overtake each
    other, so the order of the lines in a queue is not theirs in the file.

    Attributes:
        tally: complete after `drained`.
    """

    def __init__(
        self,
        producer: Producer,
        make_message: Callable[[bytes], Message],
        *,
        batch: int = 1,
        on_progress: Callable[[Tally], None] = lambda tally: None,
    ) -> None:
        self.tally = Tally()
        self._producer = producer
        self._make_message = make_message
        self._batch = batch
        self._on_progress = on_progress
        self._requests: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self._room = asyncio.Event()
        self._failed_in_a_row = 0
        self._reports = 0

    async def feed(self, pieces: AsyncIterable[Lines]) -> None:
        """Starts a request for every batch of lines; returns when the lines end or it gives up."""
        async for lines in pieces:
            numbered = [(number, body) for number, body in enumerate(lines.bodies, lines.first)]
            full = [(number, body) for number, body in numbered if body]
            self.tally.skipped += len(numbered) - len(full)
            self.tally.read += lines.read
            for start in range(0, len(full), self._batch):
                await self._start(lines.source, full[start : start + self._batch])
                if self.tally.gave_up:
                    return

    async def drained(self) -> Tally:
        """Waits for the requests on the way; each ends within the producer's timeout."""
        while self._requests:
            await asyncio.wait(self._requests)
        return self.tally

    async def _start(self, source: str, batch: Sequence[tuple[int, bytes]]) -> None:
        while len(self._requests) >= MAX_REQUESTS or self._bytes >= MAX_BYTES:
            self._room.clear()
            await self._room.wait()
        size = sum(len(body) for _, body in batch)
        self._bytes += size
        messages = [self._make_message(body) for _, body in batch]
        numbers = [number for number, _ in batch]
        request = asyncio.ensure_future(self._send(source, numbers, messages))
        self._requests.add(request)
        request.add_done_callback(partial(self._ended, size))

    async def _send(self, source: str, numbers: list[int], messages: Sequence[Message]) -> None:
        failed = numbers
        try:
            if len(messages) == 1:
                await self._producer.send(messages[0])
            else:
                await self._producer.send_batch(messages)
            failed = []
            self._failed_in_a_row = 0
        except RemotingError as error:
            if isinstance(error, BatchSendError):
                stored = zip(numbers, error.results, strict=True)
                failed = [number for number, result in stored if result is None]
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= GIVE_UP_AFTER:
                self.tally.gave_up = True
            self._report(source, failed, error)
        finally:
            self.tally.failed += len(failed)
            self.tally.sent += len(messages) - len(failed)

    def _report(self, source: str, failed: Sequence[int], error: RemotingError) -> None:
        self._reports += 1
        if self._reports <= MAX_REPORTS:
            what = "line" if len(failed) == 1 else f"{len(failed)} lines from line"
            print(f"not sent: {what} {failed[0]} of {source}: {error}", file=sys.stderr)
        if self._reports == MAX_REPORTS:
            print("further failures are only counted", file=sys.stderr)

    def _ended(self, size: int, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        self._bytes -= size
        self._room.set()
        self._on_progress(self.tally)
