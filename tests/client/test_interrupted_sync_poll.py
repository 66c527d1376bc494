"""A synchronous poll that Ctrl-C ends as it is about to return loses no message."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pocketmq import Message, sync
from pocketmq.hooks import ConsumeContext
from pocketmq.testing import RocketMQ

TAKES: dict[str, Callable[[Any], list[bytes]]] = {
    "poll": lambda consumer: [message.body for message in consumer.poll(4, timeout=10)],
    "iteration": lambda consumer: [next(iter(consumer)).body],
}


class Interrupts:
    """Interrupts the main thread, which hears of it when the call that it waits for has ended."""

    def __init__(self) -> None:
        self.left = 3

    def after_consume(self, context: ConsumeContext) -> None:
        if self.left:
            self.left -= 1
            _thread.interrupt_main()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what runs in its background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
def test_its_messages_come_with_the_next_call(
    rocketmq: RocketMQ, take: Callable[[Any], list[bytes]]
) -> None:
    rocketmq.sync.create_topic("T", queues=1)
    bodies = [b"%d" % number for number in range(8)]
    with sync.Producer("P", namesrv=rocketmq.namesrv) as producer:
        producer.send_batch([Message("T", body) for body in bodies])
    hook: Any = Interrupts()
    found: list[bytes] = []
    with sync.PullConsumer(
        "G", namesrv=rocketmq.namesrv, start="begin", hooks=[hook], auto_commit=False
    ) as consumer:
        consumer.assign("T")
        [queue] = consumer.queues("T")
        while len(found) < 8:
            try:
                found += take(consumer)
            except KeyboardInterrupt:
                consumer.commit()
                # Nothing of what the interrupted call had taken.
                assert (consumer.committed(queue) or 0) == len(found)
    assert hook.left == 0
    assert found == bodies
