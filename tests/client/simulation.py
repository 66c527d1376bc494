"""A world without a network: a clock that is set, queues, and brokers that answer as told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from pocketmq.client.errors import RemotingClosed, RemotingConnectError, RemotingTimeout, SystemBusy
from pocketmq.client.producer.delivery import Delivery, RetryPolicy
from pocketmq.client.selector.pipeline import PublishQueues, QueueSelector
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import MessageQueue

TOPIC = "T"


class Clock:
    """Seconds, moved by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def queues_of(brokers: Iterable[str], count: int = 2, topic: str = TOPIC) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, i) for broker in sorted(brokers) for i in range(count)]


def differ_most(used: Sequence[Hashable], queues: Iterable[Hashable], window: int) -> int:
    """How far the messages of any two queues differ at most among `window` successive messages.

    `used` has the queue of each message, in the order in which they were sent.
    """
    received = Counter(dict.fromkeys(queues, 0))
    most = 0
    for number, queue in enumerate(used):
        received[queue] += 1
        if number >= window:
            received[used[number - window]] -= 1
        if number >= window - 1:
            most = max(most, max(received.values()) - min(received.values()))
    return most


@dataclass
class World:
    """Brokers by name: how long each takes to answer, and how each fails if it does.

    `broken`: "dead" (refuses connections at once), "lost" (closes them), "hangs" (no answer in
    time), "busy" (an error answer), "slave" (the one with which a slave refuses sends).
    `bad_queues` refuse although their broker is well.
    """

    brokers: tuple[str, ...] = ("a", "b", "c")
    queue_count: int = 2
    switches: Switches = field(default_factory=Switches)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=Clock)
    latency: dict[str, float] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    bad_queues: set[MessageQueue] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.selector = QueueSelector(self.clock, switches=self.switches)
        self.queues = PublishQueues(queues_of(self.brokers, self.queue_count), start=0)
        self.asked: list[MessageQueue] = []
        self.shares: list[float] = []
        self.doubted: list[str] = []
        self.pauses: list[float] = []
        self.delivery = Delivery(
            self.selector,
            self.policy,
            self.clock,
            self.doubted.append,
            current=lambda topic: self.queues,
            wait=self.wait,
        )

    async def wait(self, broker_name: str, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    async def attempt(self, queue: MessageQueue, share: float) -> MessageQueue:
        self.asked.append(queue)
        self.shares.append(share)
        how = self.broken.get(queue.broker_name)
        if how == "hangs":
            self.clock.advance(share)
            raise RemotingTimeout("no answer")
        took = self.latency.get(queue.broker_name, 0.001)
        if took > share:
            self.clock.advance(share)
            raise RemotingTimeout("too late")
        self.clock.advance(took)
        if how == "dead":
            raise RemotingConnectError("connection refused")
        if how == "lost":
            raise RemotingClosed("closed by the broker")
        if how == "slave":
            raise SystemBusy("[REJECTREQUEST]system busy, start flow control for a while")
        if how == "busy" or queue in self.bad_queues:
            raise SystemBusy("[OVERLOAD]", queue.broker_name)
        return queue

    async def send(self, timeout: float = 3.0) -> MessageQueue:
        self.asked.clear()
        self.shares.clear()
        self.pauses.clear()
        return await self.delivery.deliver(TOPIC, self.queues, self.attempt, self.clock() + timeout)

    def works(self, queue: MessageQueue) -> bool:
        return queue.broker_name not in self.broken and queue not in self.bad_queues
