"""One broker from its start to its end, which may come while files of a kind roll."""

from __future__ import annotations

import asyncio
import enum
import random
from pathlib import Path
from typing import Final

from tests.interop.harness.official import Server

from .traffic import Traffic


class Stop(enum.Enum):
    """How a life ends. The values name directories of the store, or say how."""

    CLEAN = "cleanly"
    KILL = "by SIGKILL"
    LOG = "commitlog"
    QUEUE = "consumequeue"
    INDEX = "index"
    TIMER = "timerlog"

    @property
    def rolls(self) -> bool:
        """Whether the broker is killed when a file of a kind appears."""
        return self not in (Stop.CLEAN, Stop.KILL)

    def __str__(self) -> str:
        return f"while {self.value} rolls" if self.rolls else self.value


#: Seconds after which a broker is killed though no file of the kind appeared.
_PATIENCE: Final = 20.0
#: Seconds until checkpoints know of what came last.
_FLUSHED: Final = 1.5


async def work_until_the_end(
    server: Server,
    traffic: Traffic,
    life: int,
    stop: Stop,
    chance: random.Random,
    messages: int,
    pause: float,
) -> bool:
    """Send about so many messages, with a pause of so many seconds in between, then end the broker;
    False when no file rolled in time.

    After a pause of more than three seconds, by which recovery goes back, it begins in the
    middle of the log, if the checkpoint is up to date.
    """
    assert server.store is not None
    enough = asyncio.Event()
    try:
        if pause:
            for share, seconds in ((2, pause), (4, _FLUSHED)):
                sending = await traffic.begin(server.address, life, enough, messages // share)
                enough.set()
                await sending
                await asyncio.sleep(seconds)
                enough.clear()
            messages //= 4
        sending = await traffic.begin(server.address, life, enough, messages)
        seen = True
        if stop is Stop.CLEAN:
            enough.set()
            await sending
            await asyncio.to_thread(server.process.terminate, 60)
        else:
            if stop.rolls:
                seen = await _rolled(server.store / stop.value)
            await asyncio.sleep(chance.choice((0, 0, chance.uniform(0, 0.004))))
            server.process.kill()
            await sending
        return seen
    finally:
        enough.set()


async def _rolled(directory: Path) -> bool:
    """Wait until a file appears in the directory, or in one below it."""

    def files() -> int:
        return sum(1 for path in directory.rglob("*") if path.is_file())

    before = files()
    try:
        async with asyncio.timeout(_PATIENCE):
            while files() <= before:  # noqa: ASYNC110 - nothing tells of a new file
                await asyncio.sleep(0)
    except TimeoutError:
        return False
    return True
