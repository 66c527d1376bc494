"""The messages of one queue, against a model: a set of what is not done."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.message.message import MessageExt, MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int) -> MessageExt:
    return MessageExt("T", b"x", b"", 0, 0, offset, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0, "b")


class ProcessQueueMachine(RuleBasedStateMachine):
    """Pulls, hand-outs, ends of work in any order, returns, seeks."""

    def __init__(self) -> None:
        super().__init__()
        self.pq: ProcessQueue[MessageExt] = ProcessQueue(QUEUE)
        self.pq.next_offset = 0
        self.read: list[MessageExt] = []
        self.in_work: list[MessageExt] = []
        self.stale: list[MessageExt] = []

    @rule(gaps=st.lists(st.integers(1, 3), max_size=5), behind=st.integers(0, 3))
    def pull(self, gaps: list[int], behind: int) -> None:
        # Filters leave gaps, also behind the last message.
        at = self.pq.next_offset
        assert at is not None
        messages = []
        for gap in gaps:
            at += gap
            messages.append(message(at - 1))
        self.pq.accept(messages, at + behind)
        self.read += messages

    @rule(count=st.integers(0, 4))
    def take(self, count: int) -> None:
        taken = self.pq.take(count)
        assert taken == self.read[:count]
        self.in_work += taken
        del self.read[: len(taken)]

    @precondition(lambda self: self.in_work)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.in_work))
        assert self.pq.done(chosen)
        self.in_work.remove(chosen)
        assert not self.pq.done(chosen)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def what_was_sought_past_is_not_in_work(self, data: st.DataObject) -> None:
        assert not self.pq.done(data.draw(st.sampled_from(self.stale)))

    @precondition(lambda self: len(self.in_work) == 1)
    @rule()
    def put_back(self) -> None:
        assert self.pq.put_back(self.in_work[0])
        self.read.insert(0, self.in_work.pop())

    @rule(offset=st.integers(0, 50))
    def seek(self, offset: int) -> None:
        self.stale += self.in_work
        self.pq.seek(offset)
        self.read, self.in_work = [], []

    @rule()
    def drop_buffer(self) -> None:
        self.pq.drop_buffer()
        self.read = []

    @invariant()
    def the_safe_offset_is_before_all_that_is_not_done(self) -> None:
        left = [m.queue_offset for m in self.in_work + self.read]
        safe = self.pq.safe_offset
        assert safe == (min(left) if left else self.pq.next_offset)
        assert len(self.pq.unfinished) == len(self.in_work)
        assert sorted(m.queue_offset for m in self.pq.unfinished.values()) == sorted(
            m.queue_offset for m in self.in_work
        )
        position = self.read[0].queue_offset if self.read else self.pq.next_offset
        assert self.pq.position == position


ProcessQueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestProcessQueue = ProcessQueueMachine.TestCase


def test_the_span_reaches_from_the_first_undone_to_the_last_read() -> None:
    pq: ProcessQueue[MessageExt] = ProcessQueue(QUEUE)
    assert pq.span == 0
    pq.accept([message(5), message(6), message(9)], 10)
    assert pq.span == 4
    first, second = pq.take(2)
    pq.done(second)
    assert pq.span == 4
    pq.done(first)
    assert pq.span == 0
    pq.take(1)
    assert (pq.span, pq.position) == (0, 10)
