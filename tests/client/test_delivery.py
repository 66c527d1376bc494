from __future__ import annotations

import asyncio

import pytest

from pocketmq.client.errors import (
    BrokerNotFound,
    InvalidMessage,
    MessageIllegal,
    NoPermission,
    NoRouteInfo,
    RemotingClosed,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    SendError,
    SendTimeout,
    SystemBusy,
    TopicNotExist,
    error_for,
)
from pocketmq.client.producer.delivery import Delivery, RetryPolicy
from pocketmq.client.selector.pipeline import PublishQueues
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.errors import EncodeError
from tests.client.simulation import World, queues_of

QUIET = Switches(send_latency_enable=False)


async def test_the_first_attempt_gets_a_share_and_its_latency_is_learnt() -> None:
    world = World(latency={"a": 0.7})
    assert (await world.send()).broker_name == "a"
    assert world.shares == [pytest.approx(1.0)]
    assert not world.selector.tolerance.is_available("a")
    assert world.selector.tolerance.is_reachable("a")


async def test_a_retry_goes_to_another_broker_than_the_last() -> None:
    world = World(broken={"a": "dead"}, switches=QUIET)
    assert (await world.send()).broker_name == "b"
    assert [queue.broker_name for queue in world.asked] == ["a", "b"]
    assert world.doubted == ["T"]


async def test_after_a_failure_the_broker_gets_no_more_sends() -> None:
    world = World(broken={"a": "dead"})
    await world.send()
    for _ in range(50):
        await world.send()
        assert len(world.asked) == 1
        assert world.asked[0].broker_name != "a"


async def test_a_broker_that_hangs_leaves_time_for_the_others() -> None:
    world = World(brokers=("a", "b"), broken={"a": "hangs"})
    began = world.clock()
    assert (await world.send(timeout=3.0)).broker_name == "b"
    assert world.shares == [pytest.approx(1.0), pytest.approx(1.0)]
    assert world.clock() - began == pytest.approx(1.001)


async def test_the_last_attempt_may_use_all_that_is_left() -> None:
    world = World(broken={"a": "hangs", "b": "hangs"})
    await world.send(timeout=3.0)
    assert world.shares == [pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0)]


async def test_no_number_of_brokers_that_hang_uses_up_the_time_of_the_last() -> None:
    world = World(brokers=tuple("abcdef"), broken=dict.fromkeys("abcde", "hangs"))
    assert (await world.send(timeout=3.0)).broker_name == "f"
    assert world.shares == [pytest.approx(s) for s in (1, 1, 0.5, 0.25, 0.125, 0.125)]


async def test_where_no_other_broker_is_available_an_attempt_gets_more_time() -> None:
    world = World(latency=dict.fromkeys("abc", 1.2))
    with pytest.raises(SendError):
        await world.send(timeout=3.0)
    assert world.shares == [pytest.approx(1.0)] * 3
    await world.send(timeout=3.0)
    assert world.shares == [pytest.approx(1.5)]


async def test_what_is_under_way_is_counted_whatever_its_end() -> None:
    world = World(broken={"a": "dead"})
    tolerance = world.selector.tolerance
    seen: list[int] = []

    async def attempt(queue: MessageQueue, share: float) -> MessageQueue:
        seen.append(tolerance.item(queue.broker_name).in_flight)
        return await world.attempt(queue, share)

    await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert seen == [1, 1]

    async def cancelled(queue: MessageQueue, share: float) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await world.delivery.deliver("T", world.queues, cancelled, world.clock() + 3)
    assert [item.in_flight for item in tolerance] == [0] * len(tolerance)


async def test_a_single_broker_gets_the_whole_time() -> None:
    world = World(brokers=("a",), latency={"a": 2.5})
    assert (await world.send(timeout=3.0)).broker_name == "a"
    assert world.shares == [pytest.approx(3.0)]


async def test_the_attempt_timeout_can_be_set() -> None:
    world = World(broken={"a": "hangs"}, policy=RetryPolicy(attempt_timeout=0.25))
    await world.send()
    assert world.shares[0] == 0.25


async def test_every_queue_is_tried_one_by_one_before_the_send_fails() -> None:
    world = World(brokers=("a", "b"), queue_count=4, broken={"a": "busy", "b": "busy"})
    with pytest.raises(SendError) as caught:
        await world.send()
    assert sorted(world.asked) == sorted(world.queues.queues)
    brokers = [queue.broker_name for queue in world.asked]
    assert brokers == ["a", "b"] * 4
    error = caught.value
    assert [attempt.queue for attempt in error.tries] == world.asked
    assert error.topic == "T"
    assert isinstance(error.__cause__, SystemBusy)
    assert (error.code, error.broker, error.retriable) == (2, "b", True)
    assert "8 attempts" in str(error)


async def test_one_queue_that_works_is_found_behind_all_that_do_not() -> None:
    world = World(brokers=("a", "b"), queue_count=4)
    last = MessageQueue("T", "b", 2)
    world.bad_queues = set(world.queues.queues) - {last}
    assert await world.send() == last


async def test_with_fewer_queues_than_retries_queues_are_tried_again() -> None:
    world = World(brokers=("a",), queue_count=1, broken={"a": "busy"})
    with pytest.raises(SendError) as caught:
        await world.send()
    assert len(caught.value.tries) == 3


async def test_without_retries_there_is_one_attempt() -> None:
    world = World(broken={"a": "lost"}, policy=RetryPolicy(retries=0))
    with pytest.raises(SendError) as caught:
        await world.send(timeout=2.0)
    assert len(caught.value.tries) == 1
    assert world.shares == [pytest.approx(2.0)]
    assert isinstance(caught.value.__cause__, RemotingClosed)


async def test_the_deadline_ends_the_tries() -> None:
    world = World(queue_count=4, broken=dict.fromkeys("abc", "hangs"))
    began = world.clock()
    with pytest.raises(SendError) as caught:
        await world.send(timeout=3.0)
    assert world.clock() - began == pytest.approx(3.0)
    assert len(caught.value.tries) == 3
    assert isinstance(caught.value, SendTimeout)
    assert isinstance(caught.value.__cause__, RemotingTimeout)


async def test_without_any_time_nobody_is_asked_or_blamed() -> None:
    world = World()
    with pytest.raises(SendTimeout, match="no time was left"):
        await world.send(timeout=0)
    assert world.asked == []
    assert all(item.latency == 0 for item in world.selector.tolerance)
    assert not world.selector.tolerance.on_trial


async def test_a_topic_without_queues() -> None:
    world = World()
    world.queues = PublishQueues([])
    with pytest.raises(NoRouteInfo, match="No route info of this topic"):
        await world.send()


async def test_an_answer_that_no_retry_can_mend_ends_the_send() -> None:
    world = World()

    async def refuse(queue: MessageQueue, share: float) -> None:
        world.asked.append(queue)
        raise MessageIllegal("too long", queue.broker_name)

    with pytest.raises(SendError) as caught:
        await world.delivery.deliver("T", world.queues, refuse, world.clock() + 3)
    assert len(world.asked) == 1
    assert caught.value.code == 13
    assert not caught.value.retriable
    assert not world.selector.tolerance.on_trial


@pytest.mark.parametrize("error", [NoPermission("no grant"), TopicNotExist("x")])
async def test_a_refused_caller_does_not_count_against_any_broker(error: RemotingError) -> None:
    world = World()

    async def refuse(queue: MessageQueue, share: float) -> None:
        world.asked.append(queue)
        raise error

    with pytest.raises(SendError):
        await world.delivery.deliver("T", world.queues, refuse, world.clock() + 3)
    assert {queue.broker_name for queue in world.asked} == {"a", "b", "c"}
    assert not world.selector.tolerance.on_trial


@pytest.mark.parametrize(
    ("denying", "pinned", "most"), [("a", False, 2), ("a", True, 1), ("ab", False, 3)]
)
async def test_a_broker_that_denies_a_send_is_asked_once(
    denying: str, pinned: bool, most: int
) -> None:
    world = World(switches=QUIET)
    queues = PublishQueues(world.queues.queues[:1]) if pinned else world.queues

    async def attempt(queue: MessageQueue, share: float) -> str:
        world.asked.append(queue)
        if queue.broker_name in denying:
            raise NoPermission("no grant", queue.broker_name)
        return queue.broker_name

    sending = world.delivery.deliver("T", queues, attempt, world.clock() + 3, pinned=pinned)
    if pinned:
        with pytest.raises(SendError, match="no grant"):
            await sending
    else:
        assert await sending not in denying
    asked = [queue.broker_name for queue in world.asked]
    assert 1 <= len(asked) == len(set(asked)) <= most
    assert world.pauses == []


async def test_a_send_that_every_broker_denies_ends_after_the_last() -> None:
    world = World()

    async def deny(queue: MessageQueue, share: float) -> None:
        world.asked.append(queue)
        raise NoPermission("no grant", queue.broker_name)

    with pytest.raises(SendError) as caught:
        await world.delivery.deliver("T", world.queues, deny, world.clock() + 3)
    assert caught.value.code == 16
    assert sorted(queue.broker_name for queue in world.asked) == ["a", "b", "c"]
    assert world.pauses == []


async def test_a_busy_broker_is_tried_again_and_not_the_one_that_denies() -> None:
    world = World(brokers=("a", "b"), queue_count=1, switches=QUIET)

    async def attempt(queue: MessageQueue, share: float) -> str:
        world.asked.append(queue)
        if queue.broker_name == "a":
            raise NoPermission("no grant", "a")
        if len(world.asked) < 3:
            raise SystemBusy("x", "b")
        return queue.broker_name

    assert await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3) == "b"
    assert [queue.broker_name for queue in world.asked] == ["a", "b", "b"]


@pytest.mark.parametrize("error", [SystemBusy("x"), TopicNotExist("x"), BrokerNotFound("a")])
async def test_other_answers_are_tried_elsewhere(error: Exception) -> None:
    world = World(switches=QUIET)

    async def attempt(queue: MessageQueue, share: float) -> str:
        if queue.broker_name == "a":
            raise error
        return queue.broker_name

    assert await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3) == "b"


async def test_a_broker_that_was_not_asked_is_not_blamed() -> None:
    world = World()

    async def attempt(queue: MessageQueue, share: float) -> str:
        if queue.broker_name == "a":
            raise BrokerNotFound("a")
        return queue.broker_name

    await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert world.selector.tolerance.is_available("a")
    assert world.doubted == ["T"]


async def test_a_slave_puts_the_route_in_doubt_and_the_send_waits_for_the_master() -> None:
    world = World(brokers=("a",), broken={"a": "slave"})
    doubts = 12

    def doubt(topic: str) -> None:
        nonlocal doubts
        doubts -= 1
        if not doubts:
            world.broken.clear()  # the route of the new master has come

    delivery = Delivery(
        world.selector,
        RetryPolicy(),
        world.clock,
        doubt,
        current=lambda topic: world.queues,
        wait=world.wait,
    )
    deadline = world.clock() + 30
    found = await delivery.deliver("T", world.queues, world.attempt, deadline)
    assert found.broker_name == "a"
    assert len(world.asked) == 13
    assert world.pauses[-1] > 0.4  # the refusing broker is not asked more and more often


async def test_a_send_goes_to_the_broker_that_comes_while_its_own_is_away() -> None:
    world = World(brokers=("a",), broken={"a": "dead"})
    sending = world.attempt

    async def attempt(queue: MessageQueue, share: float) -> MessageQueue:
        if len(world.asked) == 3:
            # The route changes: "a" is no longer in it.
            world.queues = PublishQueues(queues_of(("b",), 2), start=0)
        return await sending(queue, share)

    found = await world.delivery.deliver("T", world.queues, attempt, world.clock() + 30)
    assert found.broker_name == "b"
    assert [queue.broker_name for queue in world.asked] == ["a"] * 4 + ["b"]


async def test_a_pinned_send_stays_with_its_queue_whatever_becomes_of_the_route() -> None:
    world = World(brokers=("a",), broken={"a": "dead"})
    pinned = PublishQueues((MessageQueue("T", "a", 1),))
    world.queues = PublishQueues(queues_of(("b",), 2), start=0)
    with pytest.raises(SendTimeout):
        await world.delivery.deliver("T", pinned, world.attempt, world.clock() + 3, pinned=True)
    assert {queue.broker_name for queue in world.asked} == {"a"}


async def test_a_single_attempt_at_a_slave_fails_but_doubts() -> None:
    world = World(brokers=("a",), broken={"a": "slave"}, policy=RetryPolicy(retries=0))
    with pytest.raises(SendError, match="REJECTREQUEST"):
        await world.send()
    assert len(world.asked) == 1
    assert world.doubted == ["T"]


async def test_a_busy_master_does_not_put_the_route_in_doubt() -> None:
    world = World(brokers=("a",), broken={"a": "busy"})
    with pytest.raises(SendError):
        await world.send()
    assert world.doubted == []


@pytest.mark.parametrize("code", [11, 14])
async def test_other_answers_of_a_broker_that_is_not_the_master(code: int) -> None:
    world = World(brokers=("a",))

    async def attempt(queue: MessageQueue, share: float) -> str:
        raise error_for(code, "no", queue.broker_name)

    with pytest.raises(SendError):
        await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert set(world.doubted) == {"T"}


def missing(code: int, queue: MessageQueue) -> Exception:
    remark = f"request queueId[{queue.queue_id}] is illegal, topic T has 1 queue"
    return error_for(code, remark, queue.broker_name)


@pytest.mark.parametrize("code", [1, 29])
async def test_a_queue_that_the_broker_does_not_know_is_left_for_the_others(code: int) -> None:
    """A broker that is the master since a moment may know a topic by its first queue only."""
    world = World(brokers=("a",), queue_count=16)

    async def attempt(queue: MessageQueue, share: float) -> MessageQueue:
        world.asked.append(queue)
        if queue.queue_id != 15:
            raise missing(code, queue)
        return queue

    found = await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert found.queue_id == 15
    assert sorted(world.asked) == sorted(world.queues.queues)
    assert world.pauses == []
    assert world.doubted == ["T"] * 15
    assert world.selector.tolerance.is_available("a")


@pytest.mark.parametrize("queues", [1, 2, 16])
async def test_no_queue_that_is_missing_is_tried_twice(queues: int) -> None:
    world = World(brokers=("a",), queue_count=queues)

    async def attempt(queue: MessageQueue, share: float) -> None:
        world.asked.append(queue)
        raise missing(29, queue)

    with pytest.raises(SendError, match="queueId") as caught:
        await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert not isinstance(caught.value, SendTimeout)
    assert sorted(world.asked) == sorted(world.queues.queues)
    world.asked.clear()
    once = World(policy=RetryPolicy(retries=0)).delivery
    with pytest.raises(SendError, match="queueId"):
        await once.deliver("T", world.queues, attempt, world.clock() + 3)
    assert len(world.asked) == 1


async def test_a_topic_that_the_broker_does_not_know_puts_the_route_in_doubt() -> None:
    world = World(brokers=("a", "b"), queue_count=1)

    async def attempt(queue: MessageQueue, share: float) -> str:
        if queue.broker_name == "a":
            raise TopicNotExist("topic[T] not exist", "a")
        return queue.broker_name

    assert await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3) == "b"
    assert world.doubted == ["T"]


async def test_what_can_not_be_encoded_is_nobodys_fault() -> None:
    world = World()

    async def attempt(queue: MessageQueue, share: float) -> None:
        raise EncodeError("a header over 16 MiB")

    with pytest.raises(InvalidMessage):
        await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert all(item.latency == 0 for item in world.selector.tolerance)
    assert not world.selector.tolerance.on_trial


async def test_a_oneway_attempt_proves_nothing() -> None:
    world = World(brokers=("a",))
    world.selector.silent("a", 0.1)
    await world.delivery.deliver("T", world.queues, world.attempt, world.clock() + 3, oneway=True)
    assert not world.selector.tolerance.is_reachable("a")
    await world.delivery.deliver("T", world.queues, world.attempt, world.clock() + 3)
    assert world.selector.tolerance.is_reachable("a")


async def test_a_busy_broker_is_given_time_if_there_is_no_other() -> None:
    world = World(brokers=("a",), queue_count=6, broken={"a": "busy"})
    with pytest.raises(SendError) as caught:
        await world.send()
    assert sorted(world.asked) == sorted(world.queues.queues)
    most = [0.02, 0.04, 0.08, 0.16, 0.2]
    assert all(m / 2 <= pause <= m for pause, m in zip(world.pauses, most, strict=True))
    assert sum(tried.elapsed for tried in caught.value.tries) == pytest.approx(0.006)
    assert caught.value.elapsed == pytest.approx(0.006 + sum(world.pauses))


async def test_no_pause_lasts_longer_than_the_send() -> None:
    world = World(brokers=("a",), queue_count=100, broken={"a": "busy"})
    began = world.clock()
    with pytest.raises(SendError) as caught:
        await world.send(timeout=1.0)
    assert world.clock() - began < 1.0
    assert isinstance(caught.value, SendTimeout)
    # The last attempt may use up the time, so that no pause follows it.
    tries = len(caught.value.tries)
    assert tries - len(world.pauses) in (0, 1)
    assert tries < 20


@pytest.mark.parametrize("how", ["dead", "busy"])
async def test_no_other_broker_waits_for_a_busy_one(how: str) -> None:
    world = World(brokers=("a", "b", "c"), queue_count=2, broken={"a": "busy", "b": how})
    assert (await world.send()).broker_name == "c"
    assert world.pauses == []
    world = World(brokers=("a", "b"), broken={"a": "busy", "b": "dead"})
    with pytest.raises(SendError):
        await world.send()
    assert [queue.broker_name for queue in world.asked[:4]] == ["a", "b"] * 2
    assert len(world.pauses) == len(world.asked) - 2  # before each that was tried already


@pytest.mark.parametrize("how", ["dead", "lost"])
async def test_a_broker_that_restarts_costs_no_retries(how: str) -> None:
    """However long it takes, as long as there is time: the attempts are spread over it."""
    world = World(brokers=("a",), queue_count=1, broken={"a": how})
    back = world.clock() + 8.0

    async def attempt(queue: MessageQueue, share: float) -> MessageQueue:
        if world.clock() >= back:
            world.broken.clear()
        return await world.attempt(queue, share)

    deadline = world.clock() + 10.0
    await world.delivery.deliver("T", world.queues, attempt, deadline)
    most = [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 20]
    assert all(m / 2 <= pause <= m for pause, m in zip(world.pauses, most, strict=False))
    assert len(world.asked) == len(world.pauses) + 1 < 25
    assert back <= world.clock() < back + 1.1


@pytest.mark.parametrize("retries", [0, 2, 100_000])
async def test_a_broker_that_stays_away_takes_the_whole_timeout(retries: int) -> None:
    world = World(brokers=("a",), broken={"a": "dead"}, policy=RetryPolicy(retries=retries))
    began = world.clock()
    with pytest.raises(SendTimeout) as caught:
        await world.send(timeout=10.0)
    assert 9.9 < world.clock() - began < 10.0
    assert len(caught.value.tries) == len(world.asked) < 40
    assert isinstance(caught.value.__cause__, RemotingConnectError)


async def test_attempts_that_reach_a_broker_are_counted_among_those_that_do_not() -> None:
    world = World(brokers=("a",), queue_count=1)
    answers = ["dead", "busy", "lost", "busy", "dead", "busy", "dead", "busy"]

    async def attempt(queue: MessageQueue, share: float) -> MessageQueue:
        world.broken["a"] = answers[len(world.asked)]
        return await world.attempt(queue, share)

    with pytest.raises(SendError) as caught:
        await world.delivery.deliver("T", world.queues, attempt, world.clock() + 60)
    assert not isinstance(caught.value, SendTimeout)
    assert len(caught.value.tries) == 6  # three of them were answered


async def test_without_retries_a_message_is_handed_over_once_at_most() -> None:
    world = World(brokers=("a",), broken={"a": "dead"}, policy=RetryPolicy(retries=0))

    async def attempt(queue: MessageQueue, share: float) -> MessageQueue:
        if len(world.asked) == 3:
            world.broken["a"] = "lost"
        return await world.attempt(queue, share)

    with pytest.raises(SendError) as caught:
        await world.delivery.deliver("T", world.queues, attempt, world.clock() + 60)
    assert [type(tried.error) for tried in caught.value.tries] == [
        *[RemotingConnectError] * 3,
        RemotingClosed,
    ]


async def test_another_broker_is_asked_at_once_and_the_same_after_a_pause() -> None:
    world = World(brokers=("a", "b"), broken={"a": "dead", "b": "lost"})
    with pytest.raises(SendTimeout):
        await world.send(timeout=10.0)
    assert {queue.broker_name for queue in world.asked[:2]} == {"a", "b"}
    assert len(world.pauses) >= len(world.asked) - 2


async def test_a_client_that_was_shut_down_tries_no_more() -> None:
    world = World(brokers=("a",))

    async def attempt(queue: MessageQueue, share: float) -> None:
        world.asked.append(queue)
        error = RemotingClosed("the connection pool is closed")
        error.retriable = False
        raise error

    with pytest.raises(SendError):
        await world.delivery.deliver("T", world.queues, attempt, world.clock() + 3)
    assert len(world.asked) == 1
