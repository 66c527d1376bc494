"""`python -m bench.rolling.producer`: one sending process."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from pathlib import Path
from time import monotonic

import msgspec

from bench.rolling.latency import bucket
from bench.rolling.load import STAMP, Flag, Kind, Load, Tally
from pocketmq.client.errors import BatchSendError, RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.send_result import SendResult
from pocketmq.message.message import Message, MessageQueue

#: Messages that have become due are posted this often, and sent in order, seconds.
TICK = 0.005
LANE_TICK = 0.03
LINGER_MS = 10.0
#: Posted messages that are not answered yet, roughly, at which posting waits: more would only wait
#: in the producer until their time is over.
UNANSWERED = 4000
#: What the client counts for a message beside its body, bytes.
OVERHEAD = 400
#: Messages of one queue that are sent together at most.
MOST = 512
#: Pause before a failed send is repeated, seconds.
PAUSE = 0.1


class Settings(msgspec.Struct):
    """What the process is told. `begin`, CLOCK_MONOTONIC seconds, is when sending begins; what is
    not acknowledged `patience` seconds after its end stays so."""

    number: int
    namesrv: str
    directory: str
    load: Load
    begin: float
    patience: float = 30.0


class Flags:
    """One byte for each message of a topic, and its latencies."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.latencies: Counter[int] = Counter()

    def add(self) -> int:
        """A message more; its sequence number."""
        self.bytes.append(0)
        return len(self.bytes) - 1

    def acknowledged(self, seq: int, due: float) -> None:
        self.bytes[seq] |= Flag.ACKNOWLEDGED
        self.latencies[bucket(monotonic() - due)] += 1


class Sending:
    """Everything that one process sends."""

    def __init__(self, settings: Settings, producer: Producer) -> None:
        load = settings.load
        self._number = settings.number
        self._producer = producer
        self._begin = settings.begin
        self._end = settings.begin + load.seconds
        self._give_up = self._end + settings.patience
        self._rate = load.rate / load.producers / len(Kind)
        self._padding = bytes(max(load.size - STAMP.size, 0))
        self._key_seqs: dict[int, int] = defaultdict(int)
        first = settings.number * load.keys
        self._keys = range(first, first + load.keys)
        self.flags = {kind: Flags() for kind in Kind}
        self.errors: Counter[str] = Counter()

    async def run(self) -> None:
        queues = sorted(await self._producer.queues(str(Kind.ORDERED)))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._free())
            for index, queue in enumerate(queues):
                keys = self._keys[index :: len(queues)]
                group.create_task(self._lane(queue, keys, self._rate / len(queues)))

    def _message(self, kind: Kind, key: int, key_seq: int) -> tuple[int, Message]:
        seq = self.flags[kind].add()
        return seq, Message(str(kind), STAMP.pack(self._number, seq, key, key_seq) + self._padding)

    def _failed(self, kind: Kind, error: RemotingError) -> None:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        self.errors[f"{kind} {type(cause).__name__}"] += 1

    # Without order: posted at their time, whatever became of those before.

    async def _free(self) -> None:
        sent = 0
        async with asyncio.TaskGroup() as group:
            while (now := monotonic()) < self._end:
                due = int((now - self._begin) * self._rate) - sent
                if due > 0:
                    messages = [self._message(Kind.FREE, 0, 0) for _ in range(due)]
                    at = self._begin + sent / self._rate
                    sent += due
                    posted = [await self._producer.post(message) for _, message in messages]
                    group.create_task(self._answers(messages, posted, at))
                await asyncio.sleep(TICK)

    async def _answers(
        self,
        messages: Sequence[tuple[int, Message]],
        posted: Sequence[Awaitable[SendResult]],
        due: float,
    ) -> None:
        flags = self.flags[Kind.FREE]
        while messages:
            failed = []
            for each, answer in zip(messages, posted, strict=True):
                try:
                    await answer
                except RemotingError as error:
                    self._failed(Kind.FREE, error)
                    flags.bytes[each[0]] |= Flag.SENT_AGAIN
                    failed.append(each)
                else:
                    flags.acknowledged(each[0], due)
            messages = failed
            if messages:
                if monotonic() > self._give_up:
                    return
                await asyncio.sleep(PAUSE)
                posted = [await self._producer.post(message) for _, message in messages]

    # In order: the next batch of a queue when the one before is acknowledged.

    async def _lane(self, queue: MessageQueue, keys: Sequence[int], rate: float) -> None:
        sent = 0
        wanted = int((self._end - self._begin) * rate)
        while sent < wanted and monotonic() < self._give_up:
            due = min(int((monotonic() - self._begin) * rate), wanted) - sent
            if due <= 0:
                await asyncio.sleep(LANE_TICK)
                continue
            messages = []
            for number in range(sent, sent + min(due, MOST)):
                key = keys[number % len(keys)]
                messages.append(self._message(Kind.ORDERED, key, self._key_seqs[key]))
                self._key_seqs[key] += 1
            await self._in_order(queue, messages, self._begin + sent / rate)
            sent += len(messages)
            if len(messages) < MOST:
                await asyncio.sleep(LANE_TICK)

    async def _in_order(
        self, queue: MessageQueue, messages: Sequence[tuple[int, Message]], due: float
    ) -> None:
        flags = self.flags[Kind.ORDERED]
        while messages:
            results: Sequence[SendResult | None] = [None] * len(messages)
            try:
                batch = [message for _, message in messages]
                results = await self._producer.send_batch(batch, queue=queue)
            except BatchSendError as error:
                results = error.results
                self._failed(Kind.ORDERED, error)
            except RemotingError as error:
                self._failed(Kind.ORDERED, error)
            failed = []
            for (seq, message), result in zip(messages, results, strict=True):
                if result is None:
                    flags.bytes[seq] |= Flag.SENT_AGAIN
                    failed.append((seq, message))
                else:
                    flags.acknowledged(seq, due)
            messages = failed
            if messages:
                if monotonic() > self._give_up:
                    return
                await asyncio.sleep(PAUSE)


def write(settings: Settings, sending: Sending) -> None:
    """The tally and its files."""
    files = {}
    for kind, flags in sending.flags.items():
        path = Path(settings.directory, f"flags-{kind}-{settings.number}")
        path.write_bytes(flags.bytes)
        files[str(kind)] = str(path)
    latencies = {str(kind): dict(flags.latencies) for kind, flags in sending.flags.items()}
    tally = Tally(latencies, files, dict(sending.errors))
    path = Path(settings.directory, f"tally-{settings.number}.json")
    path.write_bytes(msgspec.json.encode(tally))


async def main(settings: Settings) -> Sending:
    group = f"rolling_producer_{settings.number}"
    async with Producer(
        group,
        namesrv=settings.namesrv,
        linger_ms=LINGER_MS,
        max_buffered_bytes=UNANSWERED * (settings.load.size + OVERHEAD),
    ) as producer:
        sending = Sending(settings, producer)
        await asyncio.sleep(settings.begin - monotonic())
        await sending.run()
    return sending


if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1], type=Settings)
    write(told, asyncio.run(main(told)))
