"""Queue locks: who holds them, renewal, expiry."""

from __future__ import annotations

import pytest

from pocketmq.broker.tables.queue_locks import LOCK_LIVE_MS, QueueLocks
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.monotonic import MonotonicMs
from pocketmq.remoting.serving.long_requests import at_once

QUEUES = [MessageQueue("T", "b", queue_id) for queue_id in range(3)]


class Clock:
    """Milliseconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> MonotonicMs:
        return MonotonicMs(self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def locks(clock: Clock) -> QueueLocks:
    return QueueLocks(clock)


def test_free_queues_are_locked(locks: QueueLocks) -> None:
    assert locks.lock("G", QUEUES, "c1") == QUEUES


def test_a_held_queue_is_refused_to_others_but_not_to_its_holder(locks: QueueLocks) -> None:
    locks.lock("G", QUEUES[:2], "c1")

    assert locks.lock("G", QUEUES, "c2") == [QUEUES[2]]
    assert locks.lock("G", QUEUES, "c1") == QUEUES[:2]


def test_groups_do_not_share_locks(locks: QueueLocks) -> None:
    locks.lock("G", QUEUES, "c1")

    assert locks.lock("H", QUEUES, "c2") == QUEUES


def test_an_expired_lock_goes_to_whoever_asks(locks: QueueLocks, clock: Clock) -> None:
    locks.lock("G", QUEUES, "c1")
    clock.now += LOCK_LIVE_MS
    assert locks.lock("G", QUEUES, "c2") == []

    clock.now += 1
    assert locks.lock("G", QUEUES, "c2") == QUEUES
    assert locks.lock("G", QUEUES, "c1") == []


def test_locking_again_renews(locks: QueueLocks, clock: Clock) -> None:
    locks.lock("G", QUEUES, "c1")
    clock.now += LOCK_LIVE_MS
    locks.lock("G", QUEUES[:1], "c1")
    clock.now += 1

    assert locks.lock("G", QUEUES, "c2") == QUEUES[1:]


def test_unlocking_frees_only_ones_own(locks: QueueLocks) -> None:
    locks.lock("G", QUEUES[:1], "c1")
    locks.lock("G", QUEUES[1:], "c2")

    locks.unlock("G", QUEUES, "c1")

    assert locks.lock("G", QUEUES, "c3") == [QUEUES[0]]
    locks.unlock("unknown", QUEUES, "c1")


def test_a_client_without_a_name_unlocks_what_nobody_holds(locks: QueueLocks) -> None:
    locks.lock("G", QUEUES[:1], "c1")

    locks.unlock("G", QUEUES, "")

    assert locks.lock("G", QUEUES, "c1") == QUEUES


def test_a_group_with_a_live_lock_consumes_in_order(locks: QueueLocks, clock: Clock) -> None:
    assert not locks.has_live_locks("G")
    locks.lock("G", QUEUES, "c1")
    assert locks.has_live_locks("G")

    clock.now += LOCK_LIVE_MS + 1
    assert not locks.has_live_locks("G")


def test_expired_locks_are_forgotten(locks: QueueLocks, clock: Clock) -> None:
    locks.lock("G", QUEUES, "c1")
    clock.now += LOCK_LIVE_MS + 1
    locks.lock("H", QUEUES, "c2")

    at_once(locks.expire())

    # Had G's locks been kept, turning the clock back would show them.
    clock.now -= LOCK_LIVE_MS
    assert not locks.has_live_locks("G")
    assert locks.has_live_locks("H")


def test_locks_are_bounded(clock: Clock) -> None:
    locks = QueueLocks(clock, most=6)  # half of it for one owner
    assert len(locks.lock("G", QUEUES[:2], "c1")) == 2
    assert len(locks.lock("H", QUEUES, "c1")) == 1
    # Those that are there are renewed, change hands, and leave room.
    assert locks.lock("G", QUEUES[:2], "c1") == QUEUES[:2]
    clock.now += LOCK_LIVE_MS + 1
    assert locks.lock("G", QUEUES, "c2") == QUEUES[:2]
    locks.unlock("G", QUEUES[:1], "c2")
    assert locks.lock("I", QUEUES, "c1") == [QUEUES[0]]
    at_once(locks.expire())  # H's lock is over
    assert locks.lock("I", QUEUES, "c1") == [QUEUES[0], QUEUES[1]]


def test_one_owner_leaves_locks_to_others(clock: Clock) -> None:
    locks = QueueLocks(clock, most=4)
    assert len(locks.lock("G", QUEUES, "c1", owner="eve")) == 2
    assert len(locks.lock("H", QUEUES, "c2", owner="bob")) == 2
    assert locks.lock("I", QUEUES, "c3", owner="carol") == []
    clock.now += LOCK_LIVE_MS + 1
    taken = locks.lock("G", QUEUES, "c3", owner="carol")  # eve's, which are over
    assert len(taken) == 2
    at_once(locks.expire())
    assert len(locks.lock("H", QUEUES, "c1", owner="eve")) == 2
    locks.unlock("G", taken, "c3")
    assert len(locks.lock("I", QUEUES, "c3", owner="carol")) == 2


def test_no_lock_keeps_long_names(locks: QueueLocks) -> None:
    assert locks.lock("G", QUEUES, "c" * 2_000) == []
    assert locks.lock("G" * 2_000, QUEUES, "c") == []
    assert locks.lock("G", [MessageQueue("T" * 2_000, "b", 0), QUEUES[0]], "c") == [QUEUES[0]]


def test_the_end_of_a_connection_releases_what_is_bound_to_it(locks: QueueLocks) -> None:
    first, second = object(), object()
    locks.lock("G", QUEUES, "c1", first)
    locks.lock("H", QUEUES[:1], "c1", first)
    locks.lock("G", QUEUES[:1], "c1", second)  # renewed over another connection
    locks.lock("G", QUEUES[1:2], "c1")  # bound no longer

    locks.release(first)
    assert locks.lock("G", QUEUES, "c2") == [QUEUES[2]]
    assert locks.lock("H", QUEUES[:1], "c2") == [QUEUES[0]]

    locks.release(second)
    locks.release(second)
    assert locks.lock("G", QUEUES, "c3") == [QUEUES[0]]


def test_a_connection_releases_nothing_that_has_changed_hands(
    locks: QueueLocks, clock: Clock
) -> None:
    connection = object()
    locks.lock("G", QUEUES, "c1", connection)
    locks.unlock("G", QUEUES[:1], "c1")
    locks.lock("G", QUEUES[:1], "c2", object())
    clock.now += LOCK_LIVE_MS + 1
    locks.lock("G", QUEUES[1:], "c2")

    locks.release(connection)

    assert locks.lock("G", QUEUES, "c3") == [QUEUES[0]]  # c2's has expired, too


def test_a_lock_that_is_renewed_between_two_steps_does_not_expire(clock: Clock) -> None:
    locks = QueueLocks(clock)
    many = [MessageQueue("T", "b", queue_id) for queue_id in range(3000)]
    locks.lock("G", many, "c1")
    clock.now += LOCK_LIVE_MS + 1
    steps = locks.expire()
    next(steps)
    assert locks.lock("G", many[-1:], "c1") == many[-1:]
    at_once(steps)
    assert locks.lock("G", many, "c2") == many[:-1]
