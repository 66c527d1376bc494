"""The rules of a master and its slaves as a state machine: two logs, and everything that can go
wrong between them. No sockets, no files, no clock.

A byte of the log is its offset and the life of the master that wrote it, so that a splice shows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pocketmq.broker.replication.feed import Feed, LogSpan, UnfitSlave
from pocketmq.broker.replication.frames import BadFrame, Head
from pocketmq.broker.replication.intake import Intake
from pocketmq.broker.replication.replica_waits import CopyStarts, ReplicaWaits, enough

FILE = 64
HEARTBEAT = 5.0
HOUSEKEEPING = 20.0

Byte = tuple[int, int]  # offset, life of the master


class Link:
    """One connection: what is under way in both directions."""

    def __init__(self, starts: CopyStarts, now: float) -> None:
        timing = {"heartbeat_interval": HEARTBEAT, "housekeeping_interval": HOUSEKEEPING}
        self.feed = Feed(starts, batch_size=20, now=now, **timing)
        self.intake = Intake(FILE, now=now, **timing)
        self.frames: list[tuple[Head, list[Byte]]] = []
        self.reports: list[int] = []


class Pair(RuleBasedStateMachine):
    """A master, and a slave that is killed, cut off and left without power."""

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.life = 0
        self.master: list[Byte] = []
        self.flushed = 0
        self.slave: list[Byte] = []
        self.slave_begin = 0
        self.link: Link | None = None
        self.acknowledged: list[int] = []  # ends of sends that were told to be replicated
        self.starts = CopyStarts()
        self.waits = ReplicaWaits(self._replicated)
        self.is_forked = False

    def _replicated(self, end: int, needed: int) -> bool:
        feed = self.link.feed if self.link is not None else None
        return enough([(feed.holds_from, feed.acked)] if feed is not None else [], end, needed)

    @property
    def slave_end(self) -> int:
        return self.slave_begin + len(self.slave)

    def span(self) -> LogSpan:
        return LogSpan(0, len(self.master), FILE)

    @rule(size=st.integers(1, 50))
    def put(self, size: int) -> None:
        begin = len(self.master)
        self.master += [(begin + at, self.life) for at in range(size)]
        end = len(self.master)

        def told(done: bool) -> None:
            if done:
                self.acknowledged.append(end)

        self.waits.add(end, 2, self.now + 3.0, told)

    @rule()
    def flush(self) -> None:
        self.flushed = len(self.master)

    @precondition(lambda self: self.link is None)
    @rule()
    def connect(self) -> None:
        self.link = Link(self.starts, self.now)

    @precondition(lambda self: self.link is not None)
    @rule()
    def disconnect(self) -> None:
        self.link = None

    def _closing(self, step: Callable[[Link], None]) -> None:
        assert self.link is not None
        try:
            step(self.link)
        except UnfitSlave:
            assert self.slave_end > len(self.master)
            self.link = None
        except BadFrame:
            self.link = None

    @precondition(lambda self: self.link is not None)
    @rule()
    def slave_reports(self) -> None:
        assert self.link is not None
        offset = self.link.intake.report(self.slave_end, self.now)
        if offset is not None:
            self.link.reports.append(offset)

    @precondition(lambda self: self.link is not None and self.link.reports)
    @rule()
    def report_arrives(self) -> None:
        def take(link: Link) -> None:
            link.feed.report(link.reports.pop(0), self.span(), self.now)
            self.waits.acked(link.feed.holds_from)

        self._closing(take)

    @precondition(lambda self: self.link is not None)
    @rule()
    def master_sends(self) -> None:
        assert self.link is not None
        head = self.link.feed.next_frame(self.span(), self.now)
        if head is not None:
            body = self.master[head.offset : head.offset + head.size]
            assert len(body) == head.size
            self.link.frames.append((head, body))

    @precondition(lambda self: self.link is not None and self.link.frames)
    @rule(part=st.floats(0, 1))
    def frame_arrives(self, part: float) -> None:
        """All of it, or a part before the connection is lost."""

        def take(link: Link) -> None:
            head, body = link.frames.pop(0)
            link.intake.check(head, self.slave_end, self.now)
            if not self.slave and not self.slave_begin and head.size:
                self.slave_begin = head.offset
            kept = body if part > 0.3 else body[: int(len(body) * part)]
            self.slave += kept
            if len(kept) < len(body):
                self.link = None

        self._closing(take)

    @rule(seconds=st.floats(0.5, 30))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.waits.expire(self.now)
        link = self.link
        if link is not None and (link.feed.is_lost(self.now) or link.intake.is_lost(self.now)):
            self.link = None

    @rule()
    def slave_is_killed(self) -> None:
        self.link = None

    @rule()
    def master_is_killed(self) -> None:
        self.link = None
        self.waits.fail_all()
        self.starts = CopyStarts()
        self.life += 1

    @rule()
    def master_loses_power(self) -> None:
        """What was not flushed is gone, while the slave may have it."""
        self.link = None
        self.waits.fail_all()
        self.starts = CopyStarts()
        self.life += 1
        del self.master[self.flushed :]
        if self.slave_end > len(self.master):
            self.is_forked = True

    @precondition(lambda self: self.is_forked and self.slave_end > len(self.master))
    @rule()
    def operator_empties_the_slave(self) -> None:
        self.link = None
        self.slave, self.slave_begin, self.is_forked = [], 0, False
        self.acknowledged.clear()

    @invariant()
    def the_slave_is_a_copy(self) -> None:
        """Where the master has not lost power, the slave has what the master has."""
        if self.is_forked:
            return
        assert self.slave == self.master[self.slave_begin : self.slave_end]

    @invariant()
    def acknowledged_is_on_both(self) -> None:
        if not self.is_forked:
            assert all(self.slave_begin < end <= self.slave_end for end in self.acknowledged)


def test_a_master_and_a_slave() -> None:
    run_state_machine_as_test(Pair, settings=settings(max_examples=60, deadline=None))


def test_an_empty_slave_gets_the_newest_file() -> None:
    feed = Feed(
        CopyStarts(), batch_size=1000, heartbeat_interval=5, housekeeping_interval=20, now=0
    )
    log = LogSpan(64, 200, FILE)
    assert feed.next_frame(log, 100) is None
    feed.report(0, log, 0)
    assert feed.next_frame(log, 0) == Head(192, 8)
    assert feed.next_frame(log, 0) is None
    assert feed.next_frame(log, 5.5) == Head(200, 0)


def test_an_empty_slave_does_not_confirm_what_lies_before_its_first_file() -> None:
    feed = Feed(
        CopyStarts(), batch_size=1000, heartbeat_interval=5, housekeeping_interval=20, now=0
    )
    log = LogSpan(0, 200, FILE)
    feed.report(0, log, 0)
    feed.report(200, log, 0)
    copies = [(feed.holds_from, feed.acked)]
    assert [enough(copies, end, 2) for end in (100, 192, 193, 200, 201)] == [
        False, False, True, True, False
    ]  # fmt: skip


def test_a_slave_that_connects_again_may_be_one_that_came_empty() -> None:
    timing = {"batch_size": 1000, "heartbeat_interval": 5, "housekeeping_interval": 20, "now": 0}
    starts = CopyStarts()
    log = LogSpan(0, 200, FILE)
    Feed(starts, **timing).report(0, log, 0)
    found = {}
    for end in (191, 192, 200):
        again = Feed(starts, **timing)
        again.report(end, log, 0)
        found[end] = again.holds_from
    assert found == {191: 0, 192: 192, 200: 192}


def test_frames_end_with_the_file() -> None:
    feed = Feed(CopyStarts(), batch_size=50, heartbeat_interval=5, housekeeping_interval=20, now=0)
    log = LogSpan(0, 200, FILE)
    feed.report(10, log, 0)
    heads = [feed.next_frame(log, 0) for _ in range(4)]
    assert heads == [Head(10, 50), Head(60, 4), Head(64, 50), Head(114, 14)]


@pytest.mark.parametrize(("offset", "text"), [(201, "ends at 200"), (63, "begins at 64")])
def test_a_slave_that_does_not_fit(offset: int, text: str) -> None:
    feed = Feed(CopyStarts(), batch_size=50, heartbeat_interval=5, housekeeping_interval=20, now=0)
    with pytest.raises(UnfitSlave, match=text):
        feed.report(offset, LogSpan(64, 200, FILE), 0)


@pytest.mark.parametrize(
    ("head", "own_end", "text"),
    [
        (Head(64, 10), 63, "sends the physical offset 64, but this log ends at 63"),
        (Head(65, 0), 64, "sends the physical offset 65"),
        (Head(32, 10), 0, "mappedFileSizeCommitLog"),
        (Head(64, 65), 64, "mappedFileSizeCommitLog"),
    ],
)
def test_a_frame_that_does_not_fit(head: Head, own_end: int, text: str) -> None:
    intake = Intake(FILE, heartbeat_interval=5, housekeeping_interval=20, now=0)
    with pytest.raises(BadFrame, match=text):
        intake.check(head, own_end, 0)


def test_waits_are_answered_in_order_and_expire() -> None:
    acks = {"a": 0, "b": 0}
    told: list[tuple[str, bool]] = []
    waits = ReplicaWaits(
        lambda end, needed: enough([(0, ack) for ack in acks.values()], end, needed)
    )

    def tell(name: str) -> Callable[[bool], None]:
        return lambda done: told.append((name, done))

    waits.add(10, 1, 3.0, tell("alone"))
    waits.add(20, 2, 3.0, tell("one"))
    waits.add(30, 3, 4.0, tell("two"))
    waits.add(40, 2, 5.0, tell("late"))
    assert told == [("alone", True)]
    acks["a"] = 40
    waits.acked()
    assert told[1:] == [("one", True)]
    assert waits.expire(3.5) == 4.0
    acks["b"] = 30
    waits.acked()
    assert told[2:] == [("two", True), ("late", True)]
    waits.add(50, 2, 9.0, tell("never"))
    assert waits.expire(9.0) is None
    assert told[4:] == [("never", False)]
