"""Delayed deliveries against a model, over restarts and kills.

Nothing is lost, nothing comes early, and nothing comes twice except after a kill.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pocketmq.message.limits import TIMER_TOPIC
from tests.broker.delayed_broker import DelayedBroker
from tests.fake_time import FakeTime

T = TypeVar("T")

LEVELS = [2_000, 5_000, 60_000]
PRECISION = 1_000
WINDOW = 30_000  # of rolling


class DelayedMachine(RuleBasedStateMachine):
    """The model: when each message is due at the latest, and whether a kill may have doubled it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="delayed-"))
        self.lives = 0
        self.time = FakeTime()
        self.due: dict[bytes, int] = {}
        self.delayed_ones: list[bytes] = []
        self.back = 0  # by how many ms the clock was set back in all
        # What was delivered, and stored anew, when progress was written.
        self.saved: Counter[bytes] = Counter()
        self.saved_rolls: Counter[bytes] = Counter()
        self.allowed: dict[bytes, int] = {}  # deliveries, where it may be more than one
        self.taken_back: set[bytes] = set()
        self.broker = self.start(self.directory / "0")

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def start(self, root: Path) -> DelayedBroker:
        broker = DelayedBroker(
            root,
            self.time,
            message_delay_level=" ".join(f"{level // 1000}s" for level in LEVELS),
            timer_roll_window_slot=WINDOW // PRECISION,
            mapped_file_size_commit_log=1 << 14,
            mapped_file_size_consume_queue=400,
            mapped_file_size_timer_log=1024,
        )
        self.run(broker.start())
        return broker

    def send(self, due: int, **properties: Any) -> bytes:
        body = b"%d" % len(self.due)
        self.due[body] = due
        self.broker.send(body, **properties)
        return body

    @rule(level=st.integers(1, len(LEVELS)), count=st.sampled_from([1, 2, 100]))
    def delayed(self, level: int, count: int) -> None:
        for _ in range(count):
            body = self.send(self.time.now + LEVELS[level - 1], DELAY=str(level))
            self.delayed_ones.append(body)

    @rule(delay=st.integers(1, 100_000), count=st.sampled_from([1, 2, 100]))
    def timed(self, delay: int, count: int) -> None:
        for _ in range(count):
            self.send(self.time.now + delay, TIMER_DELAY_MS=str(delay))

    @rule(delay=st.integers(5_000, 100_000))
    def taken_back_in_time(self, delay: int) -> None:
        deliver = str(self.time.now + delay)
        body = self.send(self.time.now + delay, TIMER_DELIVER_MS=deliver)
        self.taken_back.add(body)
        self.broker.send(
            b"-" + body, TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY=f"T+{body.decode()}"
        )

    @rule(milliseconds=st.sampled_from([0, 1, 300, 999, 1_000, 7_777, 61_000]))
    def passes(self, milliseconds: int) -> None:
        self.time.advance(milliseconds)

    @rule(milliseconds=st.sampled_from([1, 999, 10_000, 100_000]))
    def is_set_back(self, milliseconds: int) -> None:
        """The clock; what comes by a delay level may then be early, and what was due may be on its
        way."""
        due = [body for body, due in self.due.items() if due <= self.time.now]
        self.time.set_back(milliseconds)
        self.back += milliseconds
        for body in (*self.delayed_ones, *due):
            self.due[body] = 0

    @rule(steps=st.integers(1, 5))
    def passes_in_part(self, steps: int) -> None:
        """The next few turns, perhaps not all of a moment."""
        for _ in range(steps):
            if self.time.sleeping:
                self.time.step()

    @rule()
    def saves(self) -> None:
        self.time.advance()  # progress is counted in whole slots: finish the one that is begun
        self.check_count()
        self.run(self.broker.save())
        self.note_saved()

    @rule(down=st.sampled_from([0, 500, 20_000]))
    def restarts(self, down: int) -> None:
        self.run(self.broker.stop())
        self.goes_on(self.broker.root, down)
        self.note_saved()

    @rule(down=st.sampled_from([0, 500, 20_000]))
    def is_killed(self, down: int) -> None:
        for body in self.delivered() - self.saved:
            self.allowed[body] = self.allowed.get(body, 1) + 1
        for body, times in (self.rolled() - self.saved_rolls).items():
            self.allowed[body] = self.allowed.get(body, 1) + times
        self.lives += 1
        copy = shutil.copytree(self.broker.root, self.directory / str(self.lives))
        self.run(self.broker.stop())
        self.goes_on(copy, down)

    def goes_on(self, root: Path, down: int) -> None:
        self.time.advance(down)
        self.broker = self.start(root)
        self.check_count()

    def check_count(self) -> None:
        """What waits by topic is what waits, unless a slot is begun."""
        waiting = self.broker.statistics.timers.waiting(["T"]).get("T", 0)
        assert waiting == max(0, self.broker.delayed.timer.index.waiting)

    def note_saved(self) -> None:
        self.saved = self.delivered()
        self.saved_rolls = self.rolled()

    def rolled(self) -> Counter[bytes]:
        """How often messages were stored anew while they waited."""
        waiting = self.broker.records(TIMER_TOPIC)
        return Counter(bytes(r.body) for r in waiting if "TIMER_ROLL_TIMES" in r.properties)

    def delivered(self) -> Counter[bytes]:
        return Counter(self.broker.bodies())

    @invariant()
    def nothing_early_or_twice(self) -> None:
        for record in self.broker.records():
            assert record.store_timestamp >= self.due[bytes(record.body)]
        for body, times in self.delivered().items():
            assert times <= self.allowed.get(body, 1)
            assert body not in self.taken_back

    def teardown(self) -> None:
        self.time.advance()
        self.run(self.broker.save())
        self.time.advance(200_000 + self.back)
        lost = self.due.keys() - self.taken_back - self.delivered().keys()
        self.run(self.broker.stop())
        self.runner.close()
        shutil.rmtree(self.directory)
        assert not lost


TestDelayedMachine = DelayedMachine.TestCase
TestDelayedMachine.settings = settings(
    max_examples=10,
    stateful_step_count=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.too_slow],
)
