"""How much goes to a slave at once, and in a second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pocketmq.broker.replication.log_sender import MOST, SHORT_TURN, TURN, CopyTurns, LogSender
from pocketmq.remoting.serving.light_clients import LightClients

SIZE = 100_000


class Wire(asyncio.Transport):
    """What is written, a turn each; a full one takes no more for now."""

    sender: LogSender

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = []
        self.full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        self.turns.append(len(data))  # type: ignore[arg-type]
        if self.full:
            self.sender.pause()


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
    sender.send_soon()
    for _ in range(10):
        await asyncio.sleep(0)
    return wire.turns


async def test_a_long_log_takes_several_turns() -> None:
    sent = await turns(LogSender(Log(25).next_frame), Wire())
    assert max(sent) <= MOST + SIZE
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
    copied = CopyTurns()
    wires = [copying(copied) for _ in range(40)]
    for _ in range(5):
        before = sent(wires)
        await asyncio.sleep(0)
        assert 0 < sent(wires) - before <= TURN + SIZE
    for _ in range(100):
        await asyncio.sleep(0)
    assert {sum(wire.turns) // SIZE for wire in wires} == {25}


async def test_slaves_leave_the_turn_to_clients_that_send_little() -> None:
    now, light = 0.0, LightClients()
    copied = CopyTurns(light, clock=lambda: now)
    wires = [copying(copied) for _ in range(40)]
    light.heard(now)
    for _ in range(10):
        before = sent(wires)
        await asyncio.sleep(0)
        assert 0 < sent(wires) - before <= SHORT_TURN + SIZE
    now += 1
    before = sent(wires)
    await asyncio.sleep(0)
    assert sent(wires) - before > TURN


async def test_what_is_new_goes_before_what_others_copy() -> None:
    light = LightClients()
    copied = CopyTurns(light, clock=lambda: 0.0)
    light.heard(0.0)
    for _ in range(40):
        copying(copied)
    for _ in range(40):
        await asyncio.sleep(0)
    wire = copying(copied, 1)
    await asyncio.sleep(0)
    assert sum(wire.turns) > SIZE
    wire = Wire()
    hurried = LogSender(Log(1).next_frame, turns=copied)
    hurried.open(wire)
    hurried.hurry()
    assert sum(wire.turns) > SIZE


async def test_a_slave_that_reads_slowly_takes_no_turn_and_little_memory() -> None:
    wire = copying(copied := CopyTurns())
    other = copying(copied)
    wire.full = True
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(wire.turns) <= MOST + SIZE
    assert sum(other.turns) >= 25 * SIZE
    wire.full = False
    wire.sender.resume()
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(wire.turns) >= 25 * SIZE


async def test_one_that_fails_does_not_stop_the_others() -> None:
    def fail() -> None:
        raise OSError("the log is gone")

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    failing = LogSender(fail, turns=(copied := CopyTurns()))
    failing.open(Wire())
    failing.send_soon()
    wire = copying(copied)
    for _ in range(5):
        await asyncio.sleep(0)
    assert sum(wire.turns) >= 25 * SIZE
    assert len(errors) == 1


def copying(turns: CopyTurns, frames: int = 25) -> Wire:
    """A slave that has so much to copy."""
    wire = Wire()
    wire.sender = LogSender(Log(frames).next_frame, turns=turns)
    wire.sender.open(wire)
    wire.sender.send_soon()
    return wire


def sent(wires: list[Wire]) -> int:
    return sum(sum(wire.turns) for wire in wires)
