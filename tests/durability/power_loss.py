"""Lives of a broker, one after the other: each begins with what a power cut left of the last."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock
from uuid import uuid4

from pocketmq.broker.broker import Broker
from pocketmq.store.files import Files

from .crash_state import write_state
from .disk import Disk, Lie, Remains
from .traffic import Ledger, Traffic, configuration, small_wheel
from .verdict import Verdict

#: Moments of a life that are kept to draw states from.
MOMENTS: Final = 12
STEPS: Final = 30
#: Lives of one store. Each leaves more queues, topics and messages to look at than the one before,
#: and after twenty of them a state took five times as long.
LIVES: Final = 6
#: How many of the states are cut again while they are being recovered.
CUT_AGAIN: Final = 0.15
#: Of timed messages, ms; the longest is beyond what the small wheel has room for.
DELAYS: Final = (100, 400, 1_500, 15_000)


class Moment(NamedTuple):
    """A moment at which the power could be cut, and what had been promised by then."""

    remains: Remains
    ledger: Ledger


class Moments:
    """A fair sample of the moments of a life."""

    def __init__(
        self,
        ledger: Ledger,
        random: random.Random,
        most: int,
        log_begin: Callable[[], int] = lambda: 0,
    ) -> None:
        """`log_begin`: the physical offset before which the broker has removed the log."""
        self.kept: list[Moment] = []
        self._log_begin = log_begin
        self._ledger = ledger
        self._random = random
        self._most = most
        self._seen = 0

    def __call__(self, disk: Disk) -> None:
        """Keep this moment, perhaps instead of another."""
        self._seen += 1
        place = self._random.randrange(self._seen)
        if len(self.kept) < self._most:
            place = len(self.kept)
            self.kept.append(self._moment(disk))
        elif place < self._most:
            self.kept[place] = self._moment(disk)

    def _moment(self, disk: Disk) -> Moment:
        # The promises first: what is acknowledged from here on may come after the cut.
        ledger = self._ledger.copy()
        remains = disk.remains()
        ledger.expired = max(ledger.expired, self._log_begin())
        return Moment(remains, ledger)


def _empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


class PowerLoss:
    """Counts states and collects what is wrong in them, as lines that say how to see it again.

    `directory` had better be in memory: it is the recording disk that loses what was not synced.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        sync: bool,
        timed: bool = False,
        lie: Lie | None = None,
        most_mappings: int | None = None,
    ) -> None:
        """With `timed`, timed messages are sent as well; `most_mappings`: how many files of consume
        queues are kept mapped."""
        self.states = 0
        self.lives = 0
        self.faults: list[str] = []
        self._directory = directory
        self._random = random.Random(seed)
        self._sync = sync
        self._timed = timed
        self._lie = lie
        self._most_mappings = most_mappings

    async def run(self, states: int, per_life: int = 40) -> None:
        """Try at least so many states, or until one is wrong, which is left in the directory."""
        ledger, root = Ledger(), self._directory / "life"
        root.mkdir(parents=True)
        # Each store is opened after another start of the machine.
        boots = mock.patch.object(Files, "boot_id", side_effect=lambda: uuid4().bytes)
        with boots, self._few_mappings(), small_wheel():
            await self._run(ledger, root, states, per_life)

    def _few_mappings(self) -> contextlib.AbstractContextManager[object]:
        if self._most_mappings is None:
            return contextlib.nullcontext()
        return mock.patch.object(Files, "most_mappings", return_value=self._most_mappings)

    async def _run(self, ledger: Ledger, root: Path, states: int, per_life: int) -> None:
        while self.states < states and not self.faults:
            if self.lives % LIVES == 0:
                ledger = Ledger()
                _empty(root)
            self.lives += 1
            moments = await self._live(root, ledger)
            shutil.rmtree(root)
            left = [await self._try(self._random.choice(moments)) for _ in range(per_life)]
            survivor, ledger = self._random.choice(left)
            survivor.rename(root)
            for other, _ in left:
                if other != survivor and not self.faults:
                    shutil.rmtree(other)

    async def _live(self, root: Path, ledger: Ledger) -> list[Moment]:
        broker = Broker(configuration(root, sync=self._sync, timed=self._timed))

        def log_begin() -> int:
            return broker.store.commit_log.min_offset if hasattr(broker, "store") else 0

        moments = Moments(ledger, self._random, MOMENTS, log_begin)
        disk = Disk(root, self._random, watcher=moments, lie=self._lie)
        with disk.recording():
            async with broker:
                traffic = Traffic(ledger, self._random, self.lives, DELAYS)
                await traffic.run(broker, STEPS)
                assert traffic.refused == []
        return moments.kept

    async def _try(self, moment: Moment) -> tuple[Path, Ledger]:
        """Draw a state and look at it; return it as it was drawn, with what it must still hold."""
        root, how = self._draw(moment)
        opened = root.with_name("opened")
        shutil.copytree(root, opened)
        moments = Moments(moment.ledger, self._random, 3)
        if self._random.random() < CUT_AGAIN:
            verdict = self._verdict(opened, moment.ledger, Files())
            with Disk(opened, self._random, watcher=moments, lie=self._lie).recording():
                await verdict.find()
        else:
            verdict = self._verdict(opened, moment.ledger)
            await verdict.find()
        shutil.rmtree(opened)
        self._note(verdict, root, how)
        # What ASYNC_FLUSH lost; messages that were due have its place in the log by now.
        messages = moment.ledger.messages
        kept = [message for message in messages if message.physical_offset < verdict.end]
        ledger = Ledger(kept, moment.ledger.deleted, moment.ledger.expired)
        for again in moments.kept:
            second, how_again = self._draw(again)
            second_verdict = self._verdict(second, ledger)
            await second_verdict.find()
            self._note(second_verdict, root, f"{how}; cut again in recovery: {how_again}")
            shutil.rmtree(second)
        return root, ledger

    def _verdict(self, root: Path, ledger: Ledger, files: Files | None = None) -> Verdict:
        return Verdict(root, ledger, sync=self._sync, timed=self._timed, files=files)

    def _draw(self, moment: Moment) -> tuple[Path, str]:
        self.states += 1
        root = self._directory / f"state-{self.states}"
        return root, write_state(moment.remains, root, self._random)

    def _note(self, verdict: Verdict, root: Path, how: str) -> None:
        self.faults += [f"life {self.lives}, {root} ({how}): {text}" for text in verdict.faults[:3]]
