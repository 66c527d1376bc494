"""Sends lines as messages, many in flight at once, and counts the outcomes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from functools import partial

import msgspec

from pocketmq.cli.explanation import no_topic_to_send_to
from pocketmq.cli.messages.lines import Lines
from pocketmq.client.errors import BatchSendError, InvalidMessage, RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.validation import goes_alone
from pocketmq.message.message import Message
from pocketmq.remoting.codes import ResponseCode

#: Limits of requests and bytes in flight; at either, no further line is read.
MAX_REQUESTS = 64
MAX_BYTES = 16 * 1024 * 1024

#: Consecutive failed requests after which the rest is not tried.
GIVE_UP_AFTER = 20

#: Failures that are reported one by one; the rest is only counted.
MAX_REPORTS = 10


class Tally(msgspec.Struct):
    """Counts of lines by outcome; `skipped` are empty ones, which cannot be messages.

    `read` counts bytes of the files, line ends included.
    """

    read: int = 0
    sent: int = 0
    failed: int = 0
    skipped: int = 0
    gave_up: bool = False


class LineSender:
    """Sends each line as one message made by `make_message(line)`.

    A line that is too long, or for which `make_message` raises InvalidMessage, is reported as not
    sent. With `batch` above 1, a request carries up to that many lines, except for delayed
    messages. Requests overtake each other, so the order in a queue may differ from that in the
    file.

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
        """Start a request for every batch of lines; return at the last line, or when it gives
        up."""
        async for lines in pieces:
            full: list[tuple[int, bytes]] = []
            for number, body in enumerate(lines.bodies, lines.first):
                if body is None:
                    self.tally.failed += 1
                    self._report(lines.source, [number], "it is longer than a message may be")
                elif body:
                    full.append((number, body))
                else:
                    self.tally.skipped += 1
            self.tally.read += lines.read
            for batch in self._batches(lines.source, full):
                await self._start(lines.source, batch)
                if self.tally.gave_up:
                    return

    def _batches(
        self, source: str, lines: Sequence[tuple[int, bytes]]
    ) -> Iterator[list[tuple[int, Message]]]:
        """Return the messages of `lines` with their numbers, grouped by request."""
        batch: list[tuple[int, Message]] = []
        for number, line in lines:
            try:
                message = self._make_message(line)
            except InvalidMessage as error:
                self.tally.failed += 1
                self._report(source, [number], str(error))
                continue
            if goes_alone(message):
                yield [(number, message)]
                continue
            batch.append((number, message))
            if len(batch) == self._batch:
                yield batch
                batch = []
        if batch:
            yield batch

    async def drained(self) -> Tally:
        """Wait for the requests in flight; each ends within the producer's timeout."""
        while self._requests:
            await asyncio.wait(self._requests)
        return self.tally

    async def _start(self, source: str, batch: Sequence[tuple[int, Message]]) -> None:
        while len(self._requests) >= MAX_REQUESTS or self._bytes >= MAX_BYTES:
            self._room.clear()
            await self._room.wait()
        numbers = [number for number, _ in batch]
        messages = [message for _, message in batch]
        size = sum(len(message.body) for message in messages)
        self._bytes += size
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
            why = str(error)
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                why = no_topic_to_send_to(messages[0].topic)
            self._report(source, failed, why)
        finally:
            self.tally.failed += len(failed)
            self.tally.sent += len(messages) - len(failed)

    def _report(self, source: str, failed: Sequence[int], why: str) -> None:
        self._reports += 1
        if self._reports <= MAX_REPORTS:
            what = "line" if len(failed) == 1 else f"{len(failed)} lines from line"
            print(f"not sent: {what} {failed[0]} of {source}: {why}", file=sys.stderr)
        if self._reports == MAX_REPORTS:
            print("further failures are only counted", file=sys.stderr)

    def _ended(self, size: int, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        self._bytes -= size
        self._room.set()
        self._on_progress(self.tally)
