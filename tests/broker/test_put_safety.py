"""A put that waits for the disk and for replicas is answered once, with the worse outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.config import FlushDiskType, StoreConfig
from pocketmq.store.message_store import MessageStore

END = 1000
DONE, DISK, SLAVE, LOST = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SERVICE_NOT_AVAILABLE,
)


class Waits:
    """A disk, or replicas: what they are asked for is answered when a test says so."""

    def __init__(self, needed: int = 2) -> None:
        self.needed = needed
        self.config = StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        self.refusal = self.told_refusal = ""
        self.asked: list[tuple[int, Callable[[bool], None]]] = []

    def when_flushed(self, end: int, listener: Callable[[bool], None]) -> None:
        self.asked.append((end, listener))

    when_replicated = when_flushed

    def answer(self, *, done: bool) -> None:
        [(end, listener)] = self.asked
        assert end == END
        listener(done)


@pytest.mark.parametrize("disk_first", [True, False])
@pytest.mark.parametrize(
    ("on_disk", "on_replicas", "refusal", "code"),
    [
        (True, True, "", DONE),
        (False, True, "", DISK),
        (True, False, "", SLAVE),
        (False, False, "", SLAVE),
        (False, True, "the disk fails", LOST),
        (False, False, "the disk fails", LOST),
    ],
)
def test_the_worse_outcome_is_the_answer(
    on_disk: bool, on_replicas: bool, refusal: str, code: int, disk_first: bool
) -> None:
    disk, replicas, told = Waits(), Waits(), list[int]()
    disk.refusal = disk.told_refusal = refusal
    safety = PutSafety(cast(MessageStore, disk))
    safety.wait_for(replicas)
    safety.when_safe(END, lambda code, remark: told.append(code))
    answers = [(disk, on_disk), (replicas, on_replicas)]
    for number, (waits, done) in enumerate(answers if disk_first else reversed(answers)):
        assert len(told) == 0, f"answered after {number} of 2 outcomes"
        waits.answer(done=done)
    assert told == [code]


def test_a_master_that_needs_no_replica_waits_for_the_disk_only() -> None:
    disk, replicas, told = Waits(), Waits(needed=1), list[int]()
    safety = PutSafety(cast(MessageStore, disk))
    safety.wait_for(replicas)
    safety.when_safe(END, lambda code, remark: told.append(code))
    disk.answer(done=True)
    assert told == [DONE]
    assert not replicas.asked
