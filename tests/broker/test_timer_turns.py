"""Timed messages of several topics that are due at one time: who waits for whom."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.delayed_broker import DelayedBroker, broker, time
from tests.fake_time import START, FakeTime

__all__ = ["broker", "time"]

SECOND, MINUTE, DAY = 1_000, 60_000, 24 * 3_600_000
#: Of one topic: many turns.
MANY = [b"%d" % n for n in range(3_000)]
#: How many of them may come before one of another topic: those of a few turns.
FEW = 400


def flood(broker: DelayedBroker, seconds: int) -> None:
    for body in MANY:
        broker.send(body, TIMER_DELAY_SEC=str(seconds))


async def be_down_while_slots_pass(broker: DelayedBroker, time: FakeTime) -> None:
    """One of a flood, and two later ones of another topic."""
    flood(broker, 10)
    for seconds in (11, 12):
        broker.send(b"%d" % seconds, topic="Other", TIMER_DELAY_SEC=str(seconds))
    time.advance(9 * SECOND)
    await broker.stop()
    time.advance(MINUTE)


def step_until(time: FakeTime, condition: Callable[[], bool]) -> None:
    while not condition():
        time.step()


async def test_topics_alternate_in_a_slot(broker: DelayedBroker, time: FakeTime) -> None:
    flood(broker, 10)
    broker.send(b"m", topic="Other", TIMER_DELAY_SEC="10")
    time.advance(9_999)
    step_until(time, lambda: broker.bodies("Other") == [b"m"])
    assert len(broker.bodies()) < FEW
    time.advance()
    assert broker.bodies() == MANY


@pytest.mark.parametrize("later", [1, 30])
async def test_a_later_slot_of_another_topic_does_not_wait(
    broker: DelayedBroker, time: FakeTime, later: int
) -> None:
    flood(broker, 10)
    broker.send(b"m", topic="Other", TIMER_DELAY_SEC=str(10 + later))
    broker.send(b"later", TIMER_DELAY_SEC=str(10 + later))
    time.advance(5 * SECOND)
    await broker.stop()
    time.advance(MINUTE)
    async with DelayedBroker(broker.root, time) as again:
        step_until(time, lambda: again.bodies("Other") == [b"m"])
        assert len(again.bodies()) < FEW
        time.advance()
        assert again.bodies() == [*MANY, b"later"]


async def test_what_is_new_enters_and_is_delivered_meanwhile(
    broker: DelayedBroker, time: FakeTime
) -> None:
    flood(broker, 10)
    time.advance(9_999)
    step_until(time, lambda: bool(broker.bodies()))
    broker.send(b"m", topic="Other", TIMER_DELAY_SEC="1")
    step_until(time, lambda: broker.delayed.timer.behind().unread == 0)
    assert len(broker.bodies()) < FEW
    # A second passes before the next turn.
    time.now += SECOND
    step_until(time, lambda: broker.bodies("Other") == [b"m"])
    assert len(broker.bodies()) < 2 * FEW


async def test_how_far_a_topic_is_delivered_does_not_depend_on_others(
    broker: DelayedBroker, time: FakeTime
) -> None:
    flood(broker, 10)
    broker.send(b"m", topic="Other", TIMER_DELAY_SEC="10")
    time.advance(9_999)
    timer = broker.delayed.timer
    assert timer.delivered_until("T") == timer.delivered_until("Other") == START + 9 * SECOND
    step_until(time, lambda: broker.bodies("Other") == [b"m"])
    assert timer.delivered_until("T") == START + 9 * SECOND
    assert timer.delivered_until("Other") == START + 10 * SECOND
    time.advance()
    assert timer.delivered_until("T") == START + 10 * SECOND


async def test_a_stop_delivers_the_slots_that_were_begun(
    broker: DelayedBroker, time: FakeTime
) -> None:
    await be_down_while_slots_pass(broker, time)
    async with DelayedBroker(broker.root, time) as again:
        step_until(time, lambda: len(again.bodies("Other")) == 2)
        assert len(again.bodies()) < FEW
    async with DelayedBroker(broker.root, time) as once_more:
        time.advance(MINUTE)
        assert once_more.bodies() == MANY
        assert once_more.bodies("Other") == [b"11", b"12"]
        assert once_more.delayed.timer.figures()["timerCongestNum"] == 0


async def test_a_kill_within_several_slots_loses_nothing(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    await be_down_while_slots_pass(broker, time)
    async with DelayedBroker(broker.root, time) as again:
        step_until(time, lambda: len(again.bodies("Other")) == 2)
        again.send(b"new", topic="Other", TIMER_DELAY_SEC="5")
        step_until(time, lambda: again.delayed.timer.behind().unread == 0)
        await again.save()
        killed = shutil.copytree(again.root, tmp_path / "killed")
    async with DelayedBroker(killed, time) as after:
        time.advance(MINUTE)
        assert set(after.bodies()) == set(MANY)
        # The slot before them was not delivered, so they come again.
        assert after.bodies("Other") == [b"11", b"12", b"11", b"12", b"new"]


async def test_a_slave_that_refuses_leaves_what_was_begun_to_its_master(
    broker: DelayedBroker, time: FakeTime
) -> None:
    flood(broker, 10)
    broker.send(b"m", topic="Other", TIMER_DELAY_SEC="11")
    time.advance(9_999)
    step_until(time, lambda: bool(broker.bodies()))
    timer = broker.delayed.timer
    waiting = timer.index.waiting
    broker.store.refuse("the disk is full")
    await timer.retire()
    assert timer.index.next_slot() == START + 9 * SECOND
    assert timer.index.waiting == waiting
    broker.store.accept()
    timer.take_over()
    time.advance(MINUTE)
    assert set(broker.bodies()) == set(MANY)
    assert broker.bodies("Other") == [b"m"]


async def test_a_slot_of_the_wheel_is_empty_before_another_one_has_its_place(
    broker: DelayedBroker, time: FakeTime
) -> None:
    """The wheel is two weeks long."""
    bodies = [b"%d" % n for n in range(1, 11)]
    for body in bodies:
        broker.send(body, TIMER_DELAY_SEC=body.decode())
    time.advance()
    await broker.stop()
    time.advance(13 * DAY)
    async with DelayedBroker(broker.root, time) as again:
        # The place of the last slot.
        again.send(b"m", topic="Other", TIMER_DELIVER_MS=str(START + 14 * DAY + 10 * SECOND))
        time.advance(DAY)
        assert again.bodies() == bodies
        assert again.bodies("Other") == []
        time.advance(MINUTE)
        assert again.bodies("Other") == [b"m"]


TOPICS = ("T", "Other", "Third")


@given(
    sent=st.lists(
        st.tuples(st.sampled_from(TOPICS), st.integers(1, 12), st.sampled_from([1, 1, 1, 150])),
        max_size=25,
    ),
    taken_back=st.sets(st.integers(0, 24)),
    steps=st.integers(0, 20),
)
@settings(max_examples=15, deadline=None)
def test_each_topic_gets_its_messages_in_order(
    sent: list[tuple[str, int, int]], taken_back: set[int], steps: int
) -> None:
    """With slots that are overdue, and a clean stop after some turns."""

    async def run(root: Path) -> None:
        time = FakeTime()
        expected: dict[str, list[tuple[int, int, bytes]]] = {topic: [] for topic in TOPICS}
        async with DelayedBroker(root, time, timer_roll_window_slot=30) as broker:
            for n, (topic, seconds, count) in enumerate(sent):
                for each in range(count):
                    body = b"%d-%d" % (n, each)
                    deliver = str(START + seconds * SECOND)
                    broker.send(body, topic=topic, TIMER_DELIVER_MS=deliver)
                    if n not in taken_back:
                        expected[topic].append((seconds, n * 1_000 + each, body))
                    else:
                        broker.send(
                            b"recall of " + body,
                            topic=topic,
                            TIMER_DELIVER_MS=deliver,
                            TIMER_DEL_UNIQKEY=f"{topic}+{body.decode()}",
                        )
            time.advance(0)
        time.advance(MINUTE)
        async with DelayedBroker(root, time, timer_roll_window_slot=30) as broker:
            for _ in range(steps):
                if time.sleeping:
                    time.step()
        async with DelayedBroker(root, time, timer_roll_window_slot=30) as broker:
            time.advance(MINUTE)
            for topic in TOPICS:
                assert broker.bodies(topic) == [body for _, _, body in sorted(expected[topic])]

    with tempfile.TemporaryDirectory(prefix="timers-") as directory:
        asyncio.run(run(Path(directory)))
