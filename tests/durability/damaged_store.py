"""Damages stores, opens them as a broker does, and judges what happens.

A damaged store is opened, or refused with an error that says what to type. What is opened serves
every message outside the damage at its place, and nothing wrong; what is missing is in the log. A
queue may be refused by itself when it is used.
What is refused can be repaired, and then the same holds.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pocketmq.store.check.report import Report
from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import NotADirectory, NotAFile, StoreError
from pocketmq.store.files import check_places
from pocketmq.store.repair.store_repair import Repair, repair_store
from tests.fake_time import FakeTime

from .base_stores import BaseStore, base_stores, settings
from .damage import Damage, damaged, log_ranges
from .serving import Life, Place, Served, life, served_by
from .traffic import LOG_FILE

#: How many of the stores that open in spite of what `check` found are repaired as well.
REPAIRED_ANYWAY: Final = 0.3
#: Bytes of a record before its body.
HEAD: Final = 88
TWO_DAMAGES: Final = 0.3
LATER_MS: Final = 2 * 3600 * 1000


class Damages:
    """Cases, and what was wrong in them, as lines that say how to see it again.

    Attributes:
        cases: how many were tried; `refused`, `repaired` of them.
    """

    def __init__(
        self, directory: Path, seed: int, stores: Sequence[BaseStore] | None = None
    ) -> None:
        """Without `stores`, they are written when they are needed."""
        self.cases = self.refused = self.repaired = 0
        self.faults: list[str] = []
        self._directory = directory
        self._seed = seed
        self._stores = stores

    async def run(self, cases: int, first: int = 0, most_faults: int = 1) -> None:
        """Try so many cases, or until some are wrong; those stay in the directory."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._stores = self._stores or await base_stores(self._directory, self._seed)
        for number in range(first, first + cases):
            await self._try(number, self._stores)
            if len(self.faults) >= most_faults:
                return

    async def _try(self, number: int, stores: Sequence[BaseStore]) -> None:
        dice = random.Random(f"{self._seed} {number}")
        weights = [4, 4, 2, 1, 1]
        store, other = dice.choices(stores, weights)[0], dice.choice(stores)
        image = store.image.copy()
        damages = [damaged(image, other.image, dice)]
        if dice.random() < TWO_DAMAGES:
            damages.append(damaged(image, other.image, dice))
        root = self._directory / "case"
        image.write(root)
        case = Case(root, store, damages, dice)
        try:
            await case.judge()
        except Exception:
            case.faults.append(traceback.format_exc())
        self.cases += 1
        self.refused += case.refused
        self.repaired += case.repaired
        if case.faults:
            kept = self._directory / f"case-{number}"
            image.write(kept)
            what = "; ".join(each.text for each in damages)
            self.faults += [
                f"case {number}, {store.name} store {kept} ({what}): {text}"
                for text in case.faults[:3]
            ]
        shutil.rmtree(root)


class Case:
    """One damaged store, at `root`."""

    def __init__(
        self, root: Path, store: BaseStore, damages: list[Damage], dice: random.Random
    ) -> None:
        self.faults: list[str] = []
        self.refused = self.repaired = False
        self._root = root
        self._store = store
        self._hits = sorted(log_ranges(damages, LOG_FILE))
        # Records of another store, at their place in it, are as good as ours.
        foreign = [damage for damage in damages if "of another store" in damage.text]
        self._foreign_hits = list(log_ranges(foreign, LOG_FILE))
        self._dice = dice
        # What a queue has lost is not seen by a start when its witness is gone as well, or was
        # never written: only a check finds that.
        touched = [path.partition("/")[0] for damage in damages for path, _, _ in damage.touched]
        self._unseen = "consumequeue" in touched and (
            "killed" in store.name or "checkpoint" in touched
        )
        # A read does not build an entry again if the log is damaged near its message, or if it
        # points before the begin of the log, as if its message had expired.
        self._unmended = "consumequeue" in touched and (
            "commitlog" in touched or "expired" in store.name
        )
        # The table of another store may say that our topics were deleted.
        self._deleted = store.deleted
        tables = ("config/topics.json is ", "config/topics.json.bak is ")
        if any(damage.text.startswith(tables) for damage in damages):
            self._deleted |= {topic for topic, _, _ in store.served}
        self._said: list[str] = []
        # Recovery after a kill enters records again, and so does a repair, and no checksum covers
        # the head that says where one belongs: a wrong one may end a queue early, or take the
        # place of another.
        bodies = [
            (each.begin + HEAD, each.begin + HEAD + len(each.body))
            for each in store.served.values()
        ]
        self._misleading = "killed" in store.name and not all(
            any(begin <= low and high <= end for begin, end in bodies) for low, high in self._hits
        )
        # Each of them misleads about its own queue, and about the one that it now seems to be of.
        hit = [place for place, each in store.served.items() if self._is_hit(each.begin, each.end)]
        self._queues_hit = {place[:2] for place in hit}
        self._heads_hit = max(len(hit), len(self._hits))
        # The checkpoint says whose the timers are; no checksum covers them. Units of another store
        # are as good as ours.
        self._untimed = "killed" in store.name and (
            {"checkpoint", "timerlog"} <= set(touched)
            or any(damage.text.startswith("timerlog/") for damage in foreign)
        )
        # Without the checkpoint nobody knows what was flushed: after a kill the log ends where it
        # cannot be read.
        self._is_cut = {"checkpoint", "commitlog"} <= set(touched) and "killed" in store.name
        self._must_repair = False
        self._refused_queues: dict[tuple[str, int], StoreError] = {}
        self._foreign = False  # a person has to move something away
        self._config = settings(root, timed=store.timed)
        self._config.check_crc_on_read = dice.random() < 0.5

    def _clock(self) -> int:
        return self._store.now

    async def judge(self) -> None:
        config = self._config
        try:
            check_places(config.directories, config.files)
        except (NotADirectory, NotAFile) as error:
            self.refused = True
            async with life(config, FakeTime(self._store.now)) as alive:
                if str(alive.refusal) != str(error):
                    self.faults.append(f"{error}, but: {alive.refusal}")
            return
        has_log = config.commit_log_directory.is_dir()
        report = check_store(config, clock=self._clock) if has_log else None
        clock = FakeTime(self._store.now)
        async with life(config, clock) as alive:
            self._judge_start(alive, report)
            if alive.refusal is None and not alive.bug:
                missing = self._judge_served(alive, None, report)
                if report is not None and not report.problems and missing:
                    self.faults.append(f"check finds nothing, but {missing} is missing")
                timers = report is not None and any(p.part == "timers" for p in report.problems)
                self._judge_timed(alive, clock, early_only=timers)
        if alive.bug:
            self.faults.append(alive.bug)
        self.faults += [text for text in alive.said if "Traceback" in text]
        if self.faults or report is None or self._foreign:
            return
        if (
            self.refused
            or self._must_repair
            or (report.problems and self._dice.random() < REPAIRED_ANYWAY)
        ):
            await self._repair()

    def _judge_start(self, alive: Life, report: Report | None) -> None:
        if alive.refusal is not None:
            self.refused = True
            text = str(alive.refusal)
            if isinstance(alive.refusal, (NotADirectory, NotAFile)):
                self._foreign = True
            elif not isinstance(alive.refusal, StoreError):
                self.faults.append(f"{type(alive.refusal).__name__} while it starts: {text}")
            elif str(self._root) not in text:
                self.faults.append(f"the refusal names no file: {text}")
            elif report is not None and "pocketmq store repair" not in text:
                self.faults.append(f"the refusal names no command: {text}")
        if report is not None and report.starts is self.refused and not alive.bug:
            starts = "it does not start" if self.refused else "it starts"
            self.faults.append(
                f"check says starts={report.starts} ({report.refusal}), but {starts}: "
                f"{alive.refusal}"
            )

    async def _repair(self) -> None:
        self.repaired = True
        config = self._config
        try:
            repair = repair_store(config, clock=self._clock)
        except (NotADirectory, NotAFile):
            return  # a person has to move something away
        except (StoreError, OSError) as error:
            # Without a file of the log, a person has to bring it back.
            if any(
                each.name.isdecimal() and each.stat().st_size
                for each in config.commit_log_directory.iterdir()
            ):
                self.faults.append(f"not repaired: {type(error).__name__}: {error}")
            return
        report = check_store(config, clock=self._clock)
        problems = [
            each for each in report.problems if each.where.partition("/")[0] not in self._deleted
        ]
        if (problems and not self._misleading) or not report.starts:
            self.faults.append(f"after the repair: {report.refusal} {problems[:3]}")
        clock = FakeTime(self._store.now)
        async with life(config, clock) as alive:
            if alive.refusal is not None or alive.bug:
                self.faults.append(f"does not start after a repair: {alive.refusal} {alive.bug}")
                return
            self._judge_served(alive, repair, None)
            self._judge_timed(alive, clock, early_only=False)
        self.faults += [text for text in alive.said if "Traceback" in text]

    def _is_new(self, served: Served) -> bool:
        """Return whether a message was delivered after the damage: what a kill had not let flush
        may be lost, and then its offset is given again."""
        return served.stored >= self._store.now

    def _is_hit(self, begin: int, end: int) -> bool:
        return _overlaps(self._hits, begin, end)

    def _judge_served(
        self, alive: Life, repair: Repair | None, report: Report | None
    ) -> Place | None:
        """Compare what is served with what there was; return a message that is not there."""
        store, when = alive.broker_store, "after the repair " if repair is not None else ""
        refused = None if repair is not None else self._refused_queues
        found = served_by(store, refused)
        for error in self._refused_queues.values():
            self._must_repair = True
            if isinstance(error, (NotADirectory, NotAFile)):
                self._foreign = True
            elif "pocketmq store repair" not in str(error):
                self.faults.append(f"the refusal of a queue names no command: {error}")
        self._said += [*alive.said, *(repair.lines() if repair is not None else ())]
        # Queues whose loss a start did not see, so that it gave their offsets again.
        renewed = {
            place[:2]
            for place, served in found.items()
            if self._unseen and place in self._store.served and self._is_new(served)
        }
        missing: list[Place] = []
        astray: set[tuple[str, int]] = set()
        for place, before in self._store.served.items():
            now = found.get(place)
            if place[:2] in renewed or _overlaps(self._foreign_hits, before.begin, before.end):
                continue
            hit = self._is_hit(before.begin, before.end)
            if now is not None:
                if now.body == before.body or (self._is_new(now) and hit):
                    continue
                if self._misleading and (self._is_new(now) or self._is_hit(now.begin, now.end)):
                    astray.add(place[:2])
                elif not hit or self._config.check_crc_on_read or repair is not None:
                    self.faults.append(f"{when}{place} is served with another body")
            elif place[0] in self._deleted:
                continue
            elif refused and place[:2] in refused:
                if report is not None and not report.problems:
                    self.faults.append(f"check finds nothing, but {refused[place[:2]]}")
            elif hit:
                # Without `check_crc_on_read` it is served, perhaps, but its parts do not add up.
                if (
                    self._config.check_crc_on_read or repair is not None
                ) and before.begin >= store.commit_log.min_offset:
                    missing.append(place)
            elif self._is_cut and before.begin >= self._hits[0][0]:
                continue
            elif self._misleading:
                astray.add(place[:2])
            elif (self._unseen or self._unmended) and report is not None and report.problems:
                self._must_repair = True
            else:
                self.faults.append(f"{when}{place} at {before.begin} is lost: {alive.said[:3]}")
        if len(astray - self._queues_hit) > self._heads_hit:
            self.faults.append(f"{when}{astray} lost messages, more than the damage can be for")
        last = max((each.end for each in self._store.served.values()), default=0)
        for place in found.keys() - self._store.served.keys():
            extra = found[place]
            # No checksum covers the head of a record, which says where it belongs.
            if place[0] in self._deleted or self._is_hit(extra.begin, extra.end):
                continue
            if extra.begin < last and not self._is_new(extra):
                self.faults.append(f"{when}{place} never was: {extra}")
        if missing and not self._said:
            self.faults.append(f"{when}{missing[:3]} are missing, and the log does not say so")
        return missing[0] if missing else None

    def _judge_timed(self, alive: Life, clock: FakeTime, *, early_only: bool) -> None:
        """Let time pass, and look whether what waited is delivered, and when."""
        if not self._store.waiting or self._untimed:
            return
        # What a refused queue did not take waits for up to an hour more, and the clock begins anew.
        clock.advance(2 * LATER_MS if self.repaired else LATER_MS)
        self._said += alive.said
        delivered: dict[tuple[str, bytes], int] = {}
        refused = None if self.repaired else self._refused_queues
        for (topic, _, _), each in served_by(alive.broker_store, refused).items():
            delivered.setdefault((topic, each.body), each.stored)
        for waiting in self._store.waiting:
            at = delivered.get((waiting.topic, waiting.body))
            # The log of another store has messages with the same bodies.
            if at is not None and at < waiting.due and not self._foreign_hits:
                self.faults.append(f"{waiting} is delivered too early, at {at}")
            lost = at is None and not early_only and not refused
            if lost and not self._is_hit(waiting.begin, waiting.end):
                self.faults.append(f"{waiting} is not delivered: {alive.said[:3]}")


def _overlaps(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> bool:
    return any(low < end and begin < high for low, high in ranges)
