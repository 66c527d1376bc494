"""The stores that are damaged: each was written by a broker and has files of every kind."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.store.files import Files
from tests.fake_time import FakeTime

from .damage import Image
from .serving import Place, Served, life, served_by
from .traffic import Ledger, Traffic, configuration

#: Steps of the traffic in a round: small stores are quick to open and to check, large ones have
#: more files of each kind.
STEPS: Final = (3, 3, 6, 12)
ROUNDS: Final = 4


class Waiting(NamedTuple):
    """A timed message that is not delivered yet: its record, and where it is to go, at which time
    (ms)."""

    begin: int
    end: int
    topic: str
    body: bytes
    due: int


class BaseStore(NamedTuple):
    """A store as it was left, and what it must serve.

    `now` is the ms after that; `deleted` has topics whose queues may be there or not.
    """

    name: str
    image: Image
    served: dict[Place, Served]
    waiting: tuple[Waiting, ...]
    deleted: frozenset[str]
    timed: bool
    now: int


def settings(root: Path, *, timed: bool) -> BrokerConfig:
    """The settings that the stores are written and opened with."""
    config = configuration(root, sync=False)
    config.file_reserved_time = 72
    config.timer_wheel_enable = timed
    config.timer_precision_ms = 100
    config.mapped_file_size_timer_log = 1024
    return config


@contextlib.contextmanager
def quick_disk() -> Iterator[None]:
    """Let no file wait for the disk, or take blocks that it does not use yet."""

    def nothing(*_: object) -> None:
        pass

    with (
        mock.patch.object(Files, "fdatasync", nothing),
        mock.patch.object(Files, "sync_directory", nothing),
        mock.patch.object(Files, "allocate", nothing),
    ):
        yield


async def base_stores(directory: Path, seed: int) -> list[BaseStore]:
    """Write them below `directory`, which they do not need afterwards. Whether they are small or
    large depends on the seed."""
    steps = STEPS[seed % len(STEPS)]
    return [
        await _base_store(directory / name, name, seed + number, steps)
        for number, name in enumerate(("closed", "killed", "expired", "timed", "timed killed"))
    ]


async def _base_store(root: Path, name: str, seed: int, steps: int) -> BaseStore:
    timed = name.startswith("timed")
    config, clock = settings(root, timed=timed), FakeTime(int(time.time() * 1000))
    if name == "expired":
        config.file_reserved_time = 0
    ledger, dice, killed = Ledger(), random.Random(seed), None
    async with Broker(config, clock=clock.clock, call_later=clock.call_later) as broker:
        traffic = Traffic(ledger, dice, 1)
        for _ in range(ROUNDS):
            await traffic.run(broker, steps)
            clock.advance(700)
        if "killed" in name:
            broker.store.settle()
            killed = Image.read(root)
    image = killed or Image.read(root)
    shutil.rmtree(root)
    image.write(root)
    async with life(settings(root, timed=timed), clock) as alive:
        assert alive.refusal is None, alive.refusal
        served = served_by(alive.broker_store)
        # Whether one was delivered is not known any more where its topic was deleted.
        waiting = [each for each in _waiting(served) if each.topic not in ledger.deleted]
    shutil.rmtree(root)
    return BaseStore(
        name, image, served, tuple(waiting), frozenset(ledger.deleted), timed, clock.now + 1
    )


def _waiting(served: dict[Place, Served]) -> Iterator[Waiting]:
    delivered = {
        (topic, each.properties.get("UNIQ_KEY"), each.body)
        for (topic, _, _), each in served.items()
        if topic != TIMER_TOPIC
    }
    for (topic, _, _), each in served.items():
        if topic != TIMER_TOPIC:
            continue
        real = each.properties["REAL_TOPIC"]
        if (real, each.properties.get("UNIQ_KEY"), each.body) not in delivered:
            due = int(each.properties["TIMER_OUT_MS"])
            yield Waiting(each.begin, each.end, real, each.body, due)
