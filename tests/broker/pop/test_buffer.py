"""Checkpoints in memory: the consumer offset never passes what is neither written nor acked."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.buffer import BUCKET_MS, BufferedCheckPoint, PopBuffer
from pocketmq.broker.pop.check_point import CheckPointId

QUEUE = ("T", "G", 0)


class BufferMachine(RuleBasedStateMachine):
    """One queue: pops, acknowledgements, and writes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.config = BrokerConfig(
            broker_name="b0",
            pop_ck_stay_buffer_time=1_000,
            pop_ck_stay_buffer_time_out=300,
            pop_ck_max_buffer_size=5,
            pop_ck_offset_max_queue_size=8,
        )
        self.now = 1_000_000
        self.committed = 0
        self.next = 0  # where the next pop reads
        self.unwritten: dict[CheckPointId, BufferedCheckPoint] = {}
        self.buffer = PopBuffer(self.config, self.commit)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        assert (topic, group, queue_id) == QUEUE
        assert offset >= self.committed
        self.committed = offset

    @rule(count=st.integers(1, 4), left_out=st.integers(0, 2), invisible=st.integers(0, 4_000))
    def pop(self, count: int, left_out: int, invisible: int) -> None:
        start = self.next
        id = CheckPointId("T", "G", 0, start, self.now)
        offsets = range(start + left_out, start + left_out + count)
        self.next = offsets.stop
        point = BufferedCheckPoint(id, offsets, invisible, 0, self.next)
        if self.buffer.has_room(QUEUE, self.now, invisible):
            self.buffer.keep(point)
            self.unwritten[id] = point
        else:
            self.buffer.pass_by(point)

    @rule(count=st.integers(1, 9))
    def pop_in_vain(self, count: int) -> None:
        self.next += count
        self.buffer.skip(QUEUE, self.next)

    @precondition(lambda self: self.unwritten)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        point = data.draw(st.sampled_from(sorted(self.unwritten.values(), key=lambda p: p.id)))
        offset = data.draw(st.sampled_from(point.offsets))
        assert self.buffer.ack(point.id, offset)
        if not point.waiting:
            del self.unwritten[point.id]
            assert not self.buffer.ack(point.id, offset)

    @rule(passed=st.integers(0, 600), fails=st.booleans())
    def write_due(self, passed: int, fails: bool) -> None:
        self.now += passed
        due = list(self.buffer.due(self.now))
        expected = [
            point for point in self.unwritten.values() if point.write_at + BUCKET_MS <= self.now
        ]
        assert {point.id for point in expected} <= {point.id for point in due}
        for point in due:
            assert point.write_at <= self.now
            if not fails:
                self.buffer.written(point)
                del self.unwritten[point.id]

    @invariant()
    def offsets(self) -> None:
        first = min((point.id.start_offset for point in self.unwritten.values()), default=self.next)
        assert self.committed <= first
        if not self.unwritten:
            assert self.committed == self.next
        assert max(self.committed, self.buffer.latest_offset(QUEUE)) == self.next
        assert len(self.buffer) == len(self.unwritten) <= self.config.pop_ck_max_buffer_size
        due = self.buffer.next_due()
        assert (due is None) == (not self.unwritten)

    def teardown(self) -> None:
        for point in self.buffer.all():
            self.buffer.written(point)
        assert self.committed == self.next
        assert self.buffer.unfinished == 0


BufferMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestBuffer = BufferMachine.TestCase


def made(start: int, offsets: list[int], pop_time: int = 1_000) -> BufferedCheckPoint:
    return BufferedCheckPoint(
        CheckPointId("T", "G", 0, start, pop_time), offsets, 60_000, 3, offsets[-1] + 1
    )


def test_what_is_written_says_what_was_acknowledged() -> None:
    buffer = PopBuffer(BrokerConfig(broker_name="b0"), lambda *_: None)
    point = made(10, [10, 12, 15])
    buffer.keep(point)
    buffer.ack(point.id, 12)
    written = point.check_point("b0")
    assert (written.differences, written.num, written.revive_time) == ([0, 2, 5], 3, 61_000)
    (ack,) = point.acks("b0", together=False)
    assert (ack.id, list(ack.offsets), ack.broker_name) == (point.id, [12], "b0")
    (ack,) = point.acks("b0", together=True)
    assert list(ack.offsets) == [12]
    assert made(10, [10]).acks("b0", together=True) == []


def test_the_offset_of_a_queue_that_was_set_does_not_follow_its_checkpoints() -> None:
    commits: list[int] = []
    buffer = PopBuffer(BrokerConfig(broker_name="b0"), lambda *commit: commits.append(commit[3]))
    point = made(10, [10])
    buffer.keep(point)
    buffer.forget_queue(QUEUE)
    assert buffer.latest_offset(QUEUE) == -1
    assert buffer.ack(point.id, 10)
    assert commits == []


def test_a_deleted_topic_is_forgotten() -> None:
    buffer = PopBuffer(BrokerConfig(broker_name="b0"), lambda *_: None)
    point = made(10, [10])
    buffer.keep(point)
    buffer.forget(lambda queue: queue[0] == "T")
    assert (len(buffer), buffer.latest_offset(QUEUE), buffer.next_due()) == (0, -1, None)
    assert not buffer.ack(point.id, 10)


def test_without_the_buffer_nothing_stays_in_memory() -> None:
    config = BrokerConfig(broker_name="b0", enable_pop_buffer_merge=False)
    assert not PopBuffer(config, lambda *_: None).has_room(QUEUE, 0, 60_000)
