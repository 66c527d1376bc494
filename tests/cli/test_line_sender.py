"""Sending lines: how many are on the way at once, and what is said of those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from pocketmq.cli.messages import line_sender
from pocketmq.cli.messages.line_sender import GIVE_UP_AFTER, MAX_BYTES, MAX_REQUESTS, LineSender
from pocketmq.cli.messages.lines import Lines
from pocketmq.client.errors import BatchSendError, InvalidMessage, SendAttempt, SendError
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.errors import SystemBusy

QUEUE = MessageQueue("t", "broker-a", 0)
STORED = SendResult(SendStatus.SEND_OK, "id", "", QUEUE, 0)


class FakeProducer:
    """Holds every request until `gate` is open; fails those with a body in `refused`."""

    def __init__(self, refused: Sequence[bytes] = ()) -> None:
        self.gate = asyncio.Event()
        self.refused = set(refused)
        self.requests: list[list[bytes]] = []

    async def send(self, message: Message) -> None:
        await self.send_batch([message])

    async def send_batch(self, messages: Sequence[Message]) -> None:
        bodies = [message.body for message in messages]
        self.requests.append(bodies)
        await self.gate.wait()
        failed = [message for message in messages if message.body in self.refused]
        if failed:
            busy = SystemBusy("too many", "broker-a")
            error = SendError("t", 0.0, [SendAttempt(QUEUE, 0.0, busy)], busy)
            if len(messages) == 1:
                raise error
            results = [None if message in failed else STORED for message in messages]
            raise BatchSendError(error, results, failed)


def sender(producer: FakeProducer, batch: int = 1) -> LineSender:
    return LineSender(producer, lambda body: Message("t", body), batch=batch)  # type: ignore[arg-type]


async def pieces(*bodies: Sequence[bytes]) -> AsyncIterator[Lines]:
    number = 1
    for piece in bodies:
        yield Lines("stdin", number, list(piece), sum(map(len, piece)) + len(piece))
        number += len(piece)


async def settled() -> None:
    """Until nothing more happens without a push: every task has had its turn several times."""
    for _ in range(1000):
        await asyncio.sleep(0)


async def test_requests_on_the_way_are_bounded_and_all_are_sent() -> None:
    producer = FakeProducer()
    lines = sender(producer)
    feeding = asyncio.ensure_future(lines.feed(pieces([b"%d" % i for i in range(500)])))
    await settled()
    assert len(producer.requests) == MAX_REQUESTS
    assert not feeding.done()
    producer.gate.set()
    await feeding
    tally = await lines.drained()
    assert (tally.sent, tally.failed, tally.skipped) == (500, 0, 0)
    assert sorted(producer.requests) == sorted([b"%d" % i] for i in range(500))


async def test_bytes_on_the_way_are_bounded() -> None:
    producer = FakeProducer()
    body = b"x" * (MAX_BYTES // 4)
    lines = sender(producer)
    feeding = asyncio.ensure_future(lines.feed(pieces([body] * 20)))
    await settled()
    assert len(producer.requests) == 4
    producer.gate.set()
    await feeding
    assert (await lines.drained()).sent == 20


async def test_batches_and_empty_lines() -> None:
    producer = FakeProducer()
    producer.gate.set()
    lines = sender(producer, batch=3)
    await lines.feed(pieces([b"a", b"", b"b", b"c", b"d"], [b"", b"e"]))
    tally = await lines.drained()
    assert producer.requests == [[b"a", b"b", b"c"], [b"d"], [b"e"]]
    assert (tally.sent, tally.skipped, tally.read) == (5, 2, 5 + 7)


async def test_what_failed_is_named_by_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    producer = FakeProducer(refused=[b"d", b"e"])
    producer.gate.set()
    lines = sender(producer, batch=2)
    await lines.feed(pieces([b"a", b"", b"b", b"c", b"d"], [b"e"]))
    tally = await lines.drained()
    # Of the batch "c", "d" only "d" was not stored.
    assert (tally.sent, tally.failed) == (3, 2)
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith("not sent: line 5 of stdin: ")
    assert errors[1].startswith("not sent: line 6 of stdin: ")
    assert "too many" in errors[1]


async def test_it_gives_up_when_nothing_gets_through(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [b"%d" % i for i in range(1000)]
    producer = FakeProducer(refused=bodies)
    producer.gate.set()
    lines = sender(producer)
    await lines.feed(pieces(*([body] for body in bodies)))
    tally = await lines.drained()
    assert tally.gave_up
    assert tally.sent == 0
    assert GIVE_UP_AFTER <= tally.failed <= GIVE_UP_AFTER + MAX_REQUESTS
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == line_sender.MAX_REPORTS + 1
    assert errors[-1] == "further failures are only counted"


async def test_failures_between_successes_do_not_add_up() -> None:
    bodies = [b"%d" % i for i in range(200)]
    producer = FakeProducer(refused=bodies[::2])
    producer.gate.set()
    lines = sender(producer)
    await lines.feed(pieces(bodies))
    tally = await lines.drained()
    assert (tally.sent, tally.failed, tally.gave_up) == (100, 100, False)


async def test_a_line_that_is_no_message_is_named_and_the_others_are_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def message(line: bytes) -> Message:
        if line == b"b":
            raise InvalidMessage("the line is not JSON")
        return Message("t", line)

    producer = FakeProducer()
    producer.gate.set()
    lines = LineSender(producer, message, batch=2)  # type: ignore[arg-type]
    await lines.feed(pieces([b"a", b"b", b"c"]))
    tally = await lines.drained()
    assert (tally.sent, tally.failed) == (2, 1)
    assert producer.requests == [[b"a", b"c"]]
    assert capsys.readouterr().err == "not sent: line 2 of stdin: the line is not JSON\n"


async def test_a_delayed_message_travels_alone() -> None:
    producer = FakeProducer()
    producer.gate.set()
    lines = LineSender(
        producer,  # type: ignore[arg-type]
        lambda line: Message("t", line, delay=1 if line == b"b" else 0),
        batch=3,
    )
    await lines.feed(pieces([b"a", b"b", b"c"]))
    await lines.drained()
    assert sorted(producer.requests) == [[b"a", b"c"], [b"b"]]
