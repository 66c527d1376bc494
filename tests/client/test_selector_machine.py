"""What must hold of sends whatever brokers do: a state machine over a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pocketmq.client.errors import SendError
from pocketmq.client.selector.detector import Detector
from pocketmq.client.selector.pipeline import PublishQueues
from pocketmq.client.selector.switches import Switches
from tests.client.simulation import TOPIC, World, queues_of

R = TypeVar("R")
BROKERS = ("a", "b", "c", "d")
names = st.sampled_from(BROKERS)


class Cluster(RuleBasedStateMachine):
    """Brokers die, hang, refuse and recover; routes and switches change; sends go on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()

    def teardown(self) -> None:
        self.loop.close()

    def wait(self, work: Awaitable[R]) -> R:
        async def done() -> R:
            return await work

        return self.loop.run_until_complete(done())

    @initialize(count=st.integers(1, 3))
    def start(self, count: int) -> None:
        self.world = World(brokers=BROKERS, queue_count=count)
        self.routed = set(BROKERS)
        # A broker's address is its name here, so that the probe knows whom it asks.
        self.detector = Detector(
            self.world.selector, lambda: {name: name for name in self.routed}, self.probe
        )

    async def probe(self, address: str, timeout: float) -> bool:
        return self.world.broken.get(address) not in ("dead", "hangs")

    @rule(name=names, how=st.sampled_from(["dead", "busy"]))
    def break_broker(self, name: str, how: str) -> None:
        self.world.broken[name] = how

    @rule(name=names)
    def mend(self, name: str) -> None:
        self.world.broken.pop(name, None)

    @rule(name=names, latency=st.sampled_from([0.0, 0.04, 0.2, 0.8]))
    def slow_down(self, name: str, latency: float) -> None:
        self.world.latency[name] = latency

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule(routed=st.sets(names, min_size=1))
    def route_changes(self, routed: set[str]) -> None:
        self.routed = routed
        count = self.world.queue_count
        self.world.queues = PublishQueues(queues_of(routed, count, TOPIC))

    @rule(latency=st.booleans(), detector=st.booleans())
    def switch(self, latency: bool, detector: bool) -> None:
        self.world.selector.apply(
            Switches(send_latency_enable=latency, start_detector_enable=detector)
        )

    @rule()
    def detect(self) -> None:
        before = {name: self.world.selector.tolerance.is_reachable(name) for name in self.routed}
        self.wait(self.detector.round())
        tolerance = self.world.selector.tolerance
        # Suspects that left the routes are kept for a while.
        assert {item.broker_name for item in tolerance if not item.on_trial} <= self.routed
        for name, reachable in before.items():
            assert tolerance.is_reachable(name) or not reachable

    @rule()
    def send(self) -> None:
        world = self.world
        tolerance = world.selector.tolerance
        some_works = any(world.works(queue) for queue in world.queues.queues)
        available = {name for name in self.routed if tolerance.is_available(name)}
        reachable = {name for name in self.routed if tolerance.is_reachable(name)}
        # A minute: what is looked at here is the order of tries, not the deadline.
        work = world.send(timeout=60.0)
        if some_works:
            queue = self.wait(work)
            assert world.works(queue)
            assert queue == world.asked[-1]
        else:
            with pytest.raises(SendError) as caught:
                self.wait(work)
            assert [attempt.queue for attempt in caught.value.tries] == world.asked
            assert set(world.asked) == set(world.queues.queues)
        brokers = [queue.broker_name for queue in world.asked]
        # Never twice in a row to one broker while the route has another with an untried queue.
        for i in range(1, len(brokers)):
            if brokers[i] == brokers[i - 1]:
                untried = set(world.queues.queues) - set(world.asked[:i])
                assert {queue.broker_name for queue in untried} <= {brokers[i]}
        if world.selector.switches.send_latency_enable:
            if available:
                assert brokers[0] in available
            elif reachable:
                assert brokers[0] in reachable

    @invariant()
    def the_short_way_knows_when_it_may_be_taken(self) -> None:
        if not hasattr(self, "world"):
            return
        tolerance = self.world.selector.tolerance
        if not tolerance.on_trial:
            assert all(tolerance.is_available(item.broker_name) for item in tolerance)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
