from __future__ import annotations

from collections import Counter

from pocketmq.client.selector.pipeline import PublishQueues, QueueSelector, Tries
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import MessageQueue
from tests.client.simulation import Clock, queues_of


def selector(clock: Clock | None = None, **switches: bool) -> QueueSelector:
    return QueueSelector(clock or Clock(), switches=Switches(**switches))


def chosen(selector: QueueSelector, queues: PublishQueues, count: int) -> Counter[str]:
    picks = [selector.select(queues) for _ in range(count)]
    return Counter(queue.broker_name for queue in picks if queue is not None)


def test_healthy_brokers_take_turns_queue_by_queue() -> None:
    queues = PublishQueues(queues_of("ab", 2), start=0)
    picks = [selector().select(queues) for _ in range(8)]
    assert picks == [*queues.queues, *queues.queues]


def test_the_walk_begins_at_a_random_queue() -> None:
    starts = {PublishQueues(queues_of("ab", 4)).next() for _ in range(200)}
    assert len(starts) == 8


def test_no_queue_at_all() -> None:
    assert selector().select(PublishQueues([])) is None
    assert selector().select(PublishQueues([]), Tries()) is None


def test_an_isolated_broker_gets_nothing_until_its_time_is_over() -> None:
    clock = Clock()
    chooser = selector(clock)
    queues = PublishQueues(queues_of("abc", 2), start=0)
    chooser.answered("a", 0.6)
    assert chosen(chooser, queues, 40) == {"b": 20, "c": 20}
    clock.advance(2.0)
    assert chosen(chooser, queues, 60) == {"a": 20, "b": 20, "c": 20}


def test_when_all_are_isolated_the_reachable_ones_are_used() -> None:
    chooser = selector()
    queues = PublishQueues(queues_of("abc", 2), start=0)
    chooser.refused("a", 0.1)
    chooser.refused("b", 0.1)
    chooser.silent("c", 0.1)
    assert chosen(chooser, queues, 20) == {"a": 10, "b": 10}


def test_when_none_is_reachable_every_queue_gets_its_turn() -> None:
    chooser = selector()
    queues = PublishQueues(queues_of("ab", 2), start=0)
    for broker in "ab":
        chooser.silent(broker, 0.1)
    assert [chooser.select(queues) for _ in range(4)] == list(queues.queues)


def test_an_error_answer_never_makes_unreachable() -> None:
    chooser = selector()
    chooser.silent("a", 0.1)
    assert not chooser.tolerance.is_reachable("a")
    chooser.refused("a", 0.1)
    assert chooser.tolerance.is_reachable("a")
    assert not chooser.tolerance.is_available("a")


def test_silence_isolates_but_stays_reachable_without_a_detector() -> None:
    chooser = selector(start_detector_enable=False)
    chooser.silent("a", 0.1)
    assert chooser.tolerance.is_reachable("a")
    assert not chooser.tolerance.is_available("a")


def test_a_retry_goes_to_another_broker_in_every_stage() -> None:
    for prepare in ("", "isolated", "unreachable"):
        chooser = selector()
        for broker in "ab":
            if prepare == "isolated":
                chooser.refused(broker, 0.1)
            elif prepare == "unreachable":
                chooser.silent(broker, 0.1)
        queues = PublishQueues(queues_of("ab", 3), start=0)
        tries = Tries()
        tries.failed(MessageQueue("T", "a", 0))
        for _ in range(5):
            queue = chooser.select(queues, tries)
            assert queue is not None
            assert queue.broker_name == "b", prepare


def test_a_retry_avoids_every_broker_that_failed_in_this_send() -> None:
    chooser = selector(send_latency_enable=False)
    queues = PublishQueues(queues_of("abc", 2), start=0)
    tries = Tries()
    tries.failed(MessageQueue("T", "a", 0))
    tries.failed(MessageQueue("T", "b", 1))
    assert [chooser.select(queues, tries) for _ in range(2)] == queues_of("c", 2)


def test_the_last_stage_offers_each_queue_once_and_then_none() -> None:
    chooser = selector()
    queues = PublishQueues(queues_of("ab", 2), start=0)
    tries = Tries()
    order: list[MessageQueue] = []
    while (queue := chooser.select(queues, tries)) is not None:
        chooser.silent(queue.broker_name, 0.1)
        tries.failed(queue)
        order.append(queue)
    assert sorted(order) == sorted(queues.queues)
    assert [queue.broker_name for queue in order] == ["a", "b", "a", "b"]


def test_the_users_filters_are_preferred_but_can_not_leave_a_send_without_queue() -> None:
    chooser = selector()
    queues = PublishQueues(queues_of("abc", 2), start=0)
    chooser.filters.append(lambda queue: queue.broker_name != "a")
    assert chosen(chooser, queues, 20) == {"b": 10, "c": 10}
    chooser.silent("b", 0.1)
    assert chosen(chooser, queues, 20) == {"c": 20}
    chooser.filters.append(lambda queue: False)
    assert chosen(chooser, queues, 12) == {"a": 4, "b": 4, "c": 4}


def test_users_filters_work_without_the_latency_switch() -> None:
    chooser = selector(send_latency_enable=False)
    chooser.filters.append(lambda queue: queue.queue_id == 1)
    queues = PublishQueues(queues_of("ab", 2), start=0)
    assert {chooser.select(queues) for _ in range(6)} == {
        MessageQueue("T", "a", 1),
        MessageQueue("T", "b", 1),
    }


def test_without_the_latency_switch_nothing_is_learnt() -> None:
    chooser = selector(send_latency_enable=False)
    queues = PublishQueues(queues_of("ab", 1), start=0)
    chooser.silent("a", 20)
    chooser.answered("b", 20)
    assert len(chooser.tolerance) == 0
    assert chosen(chooser, queues, 10) == {"a": 5, "b": 5}


def test_switching_off_drops_what_was_learnt() -> None:
    chooser = selector()
    chooser.silent("a", 0.1)
    chooser.apply(Switches(start_detector_enable=False))
    assert chooser.tolerance.is_reachable("a")
    assert not chooser.tolerance.is_available("a")
    chooser.apply(Switches(send_latency_enable=False))
    assert chooser.tolerance.is_available("a")
    assert not chooser.tolerance.on_trial
