"""What the revive log says: each message that was not acknowledged comes back exactly once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.pop.check_point import AckMessage, CheckPoint
from pocketmq.broker.pop.revive_log import MOST_SETTLED, ReviveLog


def point(start: int, count: int, *, pop_time: int = 0, invisible: int = 1_000) -> CheckPoint:
    return CheckPoint(
        topic="T",
        group="G",
        start_offset=start,
        num=count,
        differences=list(range(count)),
        pop_time=pop_time,
        invisible_time=invisible,
    )


def ack(of: CheckPoint, offset: int) -> AckMessage:
    return AckMessage(
        topic="T",
        group="G",
        start_offset=of.start_offset,
        pop_time=of.pop_time,
        ack_offset=offset,
    )


EVER = 2**60


def settle_all(log: ReviveLog) -> list[int]:
    left: list[int] = []
    log.extends(log.read_to, EVER)
    while (taken := log.take(EVER)) is not None:
        left += taken.unacknowledged()
        log.settled(taken)
    return left


Records = list[CheckPoint | AckMessage | None]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Records, list[int]]:
    """Records in an order that the timer may deliver, some twice, and what is left of them."""
    records: list[tuple[int, CheckPoint | AckMessage | None]] = []
    left: list[int] = []
    for n in range(draw(st.integers(0, 6))):
        invisible = draw(st.integers(1_000, 5_000))
        one = point(n * 100, draw(st.integers(1, 5)), pop_time=n, invisible=invisible)
        records.append((one.revive_time - 1000, one))
        for offset in one.unacknowledged():
            if draw(st.booleans()):
                records.append((one.revive_time, ack(one, offset)))
            else:
                left.append(offset)
    records += [(draw(st.integers(0, 6_000)), None) for _ in range(draw(st.integers(0, 2)))]
    ordered = [record for _, record in sorted(records, key=lambda pair: pair[0])]
    twice: bool = draw(st.booleans())
    if ordered and twice:
        # The timer was killed, and delivers once more from somewhere on.
        ordered += ordered[draw(st.integers(0, len(ordered) - 1)) :]
    return ordered, left


def fresh(record: CheckPoint | AckMessage | None) -> CheckPoint | AckMessage | None:
    """A record as it is read from the log: its bits are those that were written."""
    return type(record).decode(record.encode()) if record is not None else None


@given(histories(), st.data())
@settings(deadline=None)
def test_what_is_left_comes_back_once_and_nothing_else(
    history: tuple[Records, list[int]], data: st.DataObject
) -> None:
    records, left = history
    log = ReviveLog(0)
    for offset, record in enumerate(records):
        log.add(fresh(record), offset, direct=False)
    assert log.read_to == len(records)
    assert sorted(settle_all(log)) == left
    assert len(log) == 0
    assert log.settled_to == len(records)


@given(histories(), st.data())
@settings(deadline=None)
def test_a_restart_reads_again_what_was_not_settled(
    history: tuple[Records, list[int]], data: st.DataObject
) -> None:
    records, left = history
    log = ReviveLog(0)
    for offset, record in enumerate(records):
        log.add(fresh(record), offset, direct=False)
    log.extends(len(records), EVER)
    back = []
    for _ in range(data.draw(st.integers(0, 4))):
        taken = log.take(EVER)
        if taken is not None:
            came = taken.unacknowledged()
            back += came
            if log.settled(taken):
                # The service writes this, as the checkpoint is read again.
                records += [ack(taken, offset) for offset in came]
    again = ReviveLog(log.settled_to)
    for record in records[: log.settled_to]:
        if isinstance(record, CheckPoint):
            again.remember(record.id)
    for offset, record in enumerate(records[log.settled_to :], log.settled_to):
        again.add(fresh(record), offset, direct=False)
    assert sorted(back + settle_all(again)) == left


def test_a_checkpoint_waits_for_the_timer() -> None:
    log = ReviveLog(0)
    log.add(point(0, 1), 0, direct=False)
    assert log.next_time() == 1_000
    log.extends(1, 999)
    assert log.take(2_000) is None
    log.extends(1, 1_000)
    assert log.take(999) is None
    taken = log.take(1_000)
    assert taken is not None
    assert log.take(1_000) is taken
    assert not log.settled(taken)
    assert log.take(1_000) is None
    assert log.next_time() is None


def test_a_checkpoint_waits_for_what_is_not_read_yet() -> None:
    log = ReviveLog(0)
    log.add(point(0, 1), 0, direct=False)
    log.extends(3, 2_000)
    log.add(None, 1, direct=False)
    assert log.take(5_000) is None
    log.extends(4, 2_000)  # the log grows, but what is due lies before that
    log.add(None, 2, direct=False)
    taken = log.take(5_000)
    assert taken is not None
    assert taken.unacknowledged() == [0]


def test_one_that_did_not_pass_through_the_timer_waits_for_its_time_only() -> None:
    log = ReviveLog(5)
    log.add(point(0, 1, invisible=9_000), 5, direct=False)
    direct = point(10, 2)
    log.add(direct, 6, direct=True)
    assert log.ack(direct.id, 10)
    assert not log.ack(direct.id, 99)
    taken = log.take(1_000)
    assert taken is direct
    assert taken.unacknowledged() == [11]
    assert log.settled(taken)  # a restart reads it again
    assert log.settled_to == 5  # the other one is still open
    assert not log.ack(direct.id, 10)


def test_a_checkpoint_without_names_is_skipped() -> None:
    log = ReviveLog(0)
    log.add(CheckPoint(num=1), 0, direct=False)
    assert (len(log), log.settled_to) == (0, 1)


def test_what_was_settled_does_not_come_again() -> None:
    log = ReviveLog(7)
    before = point(0, 1)
    log.remember(before.id)
    log.add(point(0, 1), 7, direct=False)
    assert (len(log), log.settled_to) == (0, 8)
    log.add(point(5, 1), 8, direct=False)
    assert settle_all(log) == [5]
    log.add(point(5, 1), 9, direct=False)
    assert settle_all(log) == []
    again = point(5, 1)
    again.put_again = "1"  # an official broker could not read its message
    log.add(again, 10, direct=False)
    assert settle_all(log) == [5]


def test_only_so_many_settled_checkpoints_are_known() -> None:
    log = ReviveLog(0)
    for n in range(MOST_SETTLED + 1):
        log.remember(point(n, 1).id)
    log.add(point(0, 1), 0, direct=False)
    log.add(point(1, 1), 1, direct=False)
    assert settle_all(log) == [0]


def test_groups_have_one_in_turn() -> None:
    """What one of them has that is due would keep all others waiting. Each has its own in order."""
    log, end = ReviveLog(0), 0
    for group, count, at in (("many", 1_000, 1_000), ("few", 3, 1_001), ("other", 3, 1_001)):
        for number in range(count):
            one = CheckPoint(
                topic="T", group=group, start_offset=number, num=1, differences=[0],
                pop_time=at, invisible_time=number % 2,
            )  # fmt: skip
            log.add(one, end, direct=bool(number % 3))
            end += 1
    log.extends(end, EVER)
    order = []
    while (taken := log.take(2_000)) is not None:
        order.append(taken)
        log.settled(taken)
    assert len(order) == end
    assert max(place for place, one in enumerate(order) if one.group != "many") < 50
    assert log.next_time() is None
    assert log.settled_to == end
