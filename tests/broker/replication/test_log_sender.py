"""How much goes to a slave at once, and in a second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pocketmq.broker.replication.log_sender import LogSender

SIZE = 100_000


class Wire(asyncio.Transport):
    """What is written, a turn each."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        self.turns.append(len(data))  # type: ignore[arg-type]


class Log:
    """A log of so many frames; the last one is a heartbeat."""

    def __init__(self, frames: int) -> None:
        self.left: Iterator[tuple[bytes, bytes]] = iter(
            [(b"head", bytes(SIZE))] * frames + [(b"head", b"")]
        )

    def next_frame(self) -> tuple[bytes, bytes] | None:
        return next(self.left, None)


async def turns(sender: LogSender, wire: Wire) -> list[int]:
    sender.open(wire)
    sender.send()
    for _ in range(10):
        await asyncio.sleep(0)
    return wire.turns


async def test_a_long_log_takes_several_turns() -> None:
    sent = await turns(LogSender(Log(25).next_frame), Wire())
    assert len(sent) == 3
    assert sum(sent) == 25 * (SIZE + 4) + 4


async def test_no_more_than_is_allowed_goes_out_in_a_second() -> None:
    sent = await turns(LogSender(Log(25).next_frame, 3 * SIZE), Wire())
    assert sent == [3 * (SIZE + 4)]


async def test_nothing_goes_to_a_slave_that_reads_slowly() -> None:
    sender, wire = LogSender(Log(25).next_frame), Wire()
    sender.pause()
    assert await turns(sender, wire) == []
    sender.resume()
    assert await turns(sender, wire)


async def test_slaves_share_a_turn() -> None:
    alone = await turns(LogSender(Log(25).next_frame), Wire())
    shared = await turns(LogSender(Log(25).next_frame, sharers=lambda: 5), Wire())
    assert shared[0] <= alone[0] // 3
