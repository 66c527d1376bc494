from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import InvalidName, NoNameServer, NotRunning, SubscriptionParseFailed
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)


def consumer(
    cluster: FakeCluster, *args: Any, pauses: Pauses | None = None, **options: Any
) -> PushConsumer:
    return impatient(PushConsumer, pauses)(
        "G", *args, namesrv=cluster.namesrv, **({"start": "begin"} | options)
    )


def fill(cluster: FakeCluster, count: int = 20, topic: str = "T") -> set[bytes]:
    """`count` messages over all queues of a topic."""
    bodies = [b"%d" % i for i in range(count)]
    for i, body in enumerate(bodies):
        cluster["ab"[i % 2]].store(topic, i // 2 % 2, body, f"UNIQ_KEY\x01id{i}\x02")
    return set(bodies)


def committed(cluster: FakeCluster, group: str = "G", topic: str = "T") -> list[int | None]:
    return [cluster[b].offsets.get((group, topic, i)) for b in "ab" for i in range(2)]


async def test_handlers_get_every_message_once(cluster: FakeCluster) -> None:
    bodies = fill(cluster)
    seen: list[bytes] = []
    c = consumer(cluster)

    @c.on("T")
    async def handle(message: ConsumedMessage) -> None:
        await asyncio.sleep(0)
        seen.append(message.body)

    async with c:
        await until(lambda: len(seen) == 20)
        assert c.assignment == [MessageQueue("T", b, i) for b in "ab" for i in range(2)]
        (beat,) = cluster["a"].heartbeats[-1].consumer_data_set
        assert (beat.consume_type, beat.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        topics = {data.topic: data.sub_string for data in beat.subscription_data_set}
        assert topics == {"T": "*", "%RETRY%G": "*"}
    assert len(seen) == 20
    assert set(seen) == bodies
    assert committed(cluster) == [5] * 4
    assert cluster["a"].unregistered[-1].consumer_group == "G"


async def test_plain_functions_are_handlers_too(cluster: FakeCluster) -> None:
    bodies = fill(cluster)
    seen: set[bytes] = set()
    async with consumer(cluster, {"T": "*"}, handler=lambda message: seen.add(message.body)):
        await until(lambda: seen == bodies)


async def test_iteration_acknowledges_by_leaving_the_block(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = fill(cluster)
    seen: set[bytes] = set()
    async with consumer(cluster, {"T": "*"}) as c:
        async for message in c:
            async with message:
                seen.add(message.body)
                if message.body == b"7":
                    raise RuntimeError("no sevens")
                if message.body == b"8":
                    raise ReconsumeLater("later", delay_level=5)
            if len(seen) == 20:
                break
    assert seen == bodies
    assert committed(cluster) == [5] * 4
    back = cluster["b"].sent_back + cluster["a"].sent_back
    assert [(header.origin_msg_id, header.delay_level) for header in back] == [
        ("id7", 0),
        ("id8", 5),
    ]
    assert {header.group for header in back} == {"G"}
    assert {header.origin_topic for header in back} == {"T"}
    assert {header.max_reconsume_times for header in back} == {16}
    traced = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in traced if record.exc_info] == ["no sevens"]


async def test_the_offset_never_passes_a_message_in_work(cluster: FakeCluster) -> None:
    for i in range(10):
        cluster["a"].store("T", 0, b"%d" % i)
    gate = asyncio.Event()
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.body == b"3":
            await gate.wait()
        seen.append(message.body)

    async with consumer(cluster, {"T": "*"}, handler=handle, commit_interval=0.01):
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 3)
        assert len(seen) == 9
        gate.set()
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 10)


async def test_what_was_not_acknowledged_comes_again(cluster: FakeCluster) -> None:
    bodies = fill(cluster)
    async with consumer(cluster, {"T": "*"}) as c:
        async for message in c:
            if message.body == b"0":
                break
    seen: set[bytes] = set()
    async with consumer(cluster, {"T": "*"}, handler=lambda m: seen.add(m.body)):
        await until(lambda: seen == bodies)


async def test_acknowledging_by_hand(cluster: FakeCluster) -> None:
    fill(cluster, 4)
    async with consumer(cluster, {"T": "*"}) as c:
        messages = [await anext(c) for _ in range(4)]
        for message in messages[:3]:
            message.ack()
            message.ack()
        await messages[3].reconsume(2)
        messages[3].ack()
    assert committed(cluster) == [1] * 4
    back = cluster["a"].sent_back + cluster["b"].sent_back
    assert [header.delay_level for header in back] == [2]


async def test_a_message_that_the_broker_does_not_take_back_is_tried_here_again(
    cluster: FakeCluster,
) -> None:
    cluster["a"].store("T", 0, b"x")
    cluster["a"].back_answer = Response(ResponseCode.SYSTEM_ERROR, "can not")
    tries: list[int] = []

    async def handle(message: ConsumedMessage) -> None:
        tries.append(message.reconsume_times)
        if len(tries) < 4:
            raise ReconsumeLater

    async with consumer(cluster, {"T": "*"}, handler=handle, pauses=Pauses(local_retry=0.01)):
        await until(lambda: len(tries) == 4)
    assert tries == [0, 1, 2, 3]
    assert len(cluster["a"].sent_back) == 3
    assert cluster["a"].offsets["G", "T", 0] == 1


async def test_a_redelivered_message_has_its_topic(
    cluster: FakeCluster,
) -> None:
    seen: list[ConsumedMessage] = []
    async with consumer(
        cluster, {"T": "*"}, handler=seen.append, start="end", pauses=Pauses(missing_topic=0.01)
    ):
        # The broker makes the topic when it hears of the group; none of its messages is too old.
        cluster["b"].store("%RETRY%G", 0, b"again", "RETRY_TOPIC\x01T\x02")
        cluster.put("%RETRY%G", "b", queues=1)
        await until(lambda: seen)
        (message,) = seen
        assert (message.topic, message.body) == ("T", b"again")
        assert message.queue == MessageQueue("%RETRY%G", "b", 0)
    assert cluster["b"].offsets["G", "%RETRY%G", 0] == 1


@pytest.mark.parametrize("iterate", [False, True])
async def test_orderly_keeps_the_order_of_each_queue(cluster: FakeCluster, iterate: bool) -> None:
    fill(cluster, 80)
    seen: dict[MessageQueue, list[int]] = defaultdict(list)
    active: set[MessageQueue] = set()
    most_active = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal most_active
        assert message.queue not in active
        active.add(message.queue)
        most_active = max(most_active, len(active))
        await asyncio.sleep(0)
        seen[message.queue].append(message.queue_offset)
        active.discard(message.queue)
        if message.queue_offset == 4 and message.reconsume_times < 2:
            raise RuntimeError("again")

    async def iteration(c: PushConsumer) -> None:
        async for message in c:
            async with message:
                await handle(message)

    options: dict[str, Any] = {"orderly": True, "suspend_current_queue": 0.01}
    if iterate:
        async with consumer(cluster, {"T": "*"}, **options) as c:
            tasks = [asyncio.create_task(iteration(c)) for _ in range(4)]
            await until(lambda: sum(map(len, seen.values())) == 88)
        await asyncio.gather(*tasks)
    else:
        async with consumer(cluster, {"T": "*"}, handler=handle, **options):
            await until(lambda: sum(map(len, seen.values())) == 88)
    expected = [*range(4), 4, 4, *range(4, 20)]
    assert list(seen.values()) == [expected] * 4
    assert most_active > 1
    assert committed(cluster) == [20] * 4
    assert not cluster["a"].sent_back


async def test_orderly_locks_before_it_reads_and_unlocks_at_the_end(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client.consumer")
    fill(cluster, 8)
    cluster["b"].locks[MessageQueue("T", "b", 1)] = "somebody else"
    seen: list[bytes] = []
    async with consumer(
        cluster, {"T": "*"}, handler=lambda m: seen.append(m.body), orderly=True
    ) as c:
        await until(lambda: len(seen) == 6)
        assert MessageQueue("T", "b", 1) not in c.assignment
        [waiting] = [m for m in caplog.messages if "waiting for" in m and "locked" in m]
        assert waiting.startswith("group G, topic T: waiting for b/1, which another consumer has")
        assert {queue for queue, owner in cluster["a"].locks.items() if owner == c.client_id} == {
            A0,
            MessageQueue("T", "a", 1),
        }
        # Taken as soon as it is free, a second later at the latest.
        cluster["b"].locks.clear()
        await until(lambda: len(seen) == 8)
    assert not cluster["a"].locks
    assert not cluster["b"].locks


async def test_orderly_sends_to_the_dead_letters_in_the_end(cluster: FakeCluster) -> None:
    for i in range(3):
        cluster["a"].store("T", 0, b"%d" % i)
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if message.body == b"1":
            raise ReconsumeLater

    async with consumer(
        cluster, {"T": "*"}, handler=handle, orderly=True, max_reconsume_times=2,
        suspend_current_queue=0.01,
    ):  # fmt: skip
        await until(lambda: seen[-1:] == [b"2"])
    assert seen == [b"0", b"1", b"1", b"1", b"2"]
    # More attempts than are allowed: the broker puts it into the dead letters.
    (header,) = cluster["a"].sent
    told = (header.topic, header.reconsume_times, header.max_reconsume_times)
    assert told == ("%RETRY%G", 3, 2)
    assert cluster["a"].offsets["G", "T", 0] == 3


async def test_a_lost_lock_ends_the_reading_and_the_queue_is_taken_anew(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 8)
    events: list[ConsumerEvent] = []
    seen: list[bytes] = []
    gate = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        await gate.wait()

    async with consumer(
        cluster, {"T": "*"}, pauses=Pauses(lock_renewal=0.01), handler=handle, orderly=True,
        on_event=events.append,
    ) as c:  # fmt: skip
        await until(lambda: len(seen) == 4)
        cluster["a"].locks[A0] = "a thief"
        await until(lambda: ConsumerEvent(ConsumerEventKind.LOCK_LOST, A0) in events)
        assert A0 not in c.assignment
        # Free again, but the message that is in work goes first.
        del cluster["a"].locks[A0]
        rounds = cluster["a"].seen[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
        cluster["a"].notify("G")
        await until(lambda: cluster["a"].seen[RequestCode.GET_CONSUMER_LIST_BY_GROUP] > rounds)
        assert A0 not in c.assignment
        gate.set()
        await until(lambda: A0 in c.assignment)
        # Its first message was in work without the lock: it comes once more.
        await until(lambda: len(seen) == 9)
    assert seen.count(b"0") == 2


async def test_an_orderly_queue_changes_hands_when_its_message_is_done(
    cluster: FakeCluster,
) -> None:
    begun: list[str] = []
    order: list[tuple[str, MessageQueue, int]] = []
    gates: dict[str, asyncio.Event] = {"one": asyncio.Event(), "two": asyncio.Event()}

    def handler(name: str) -> Any:
        async def handle(message: ConsumedMessage) -> None:
            begun.append(name)
            await gates[name].wait()
            order.append((name, message.queue, message.queue_offset))

        return handle

    fill(cluster, 40)
    async with consumer(cluster, {"T": "*"}, handler=handler("one"), orderly=True) as one:
        await until(lambda: begun.count("one") == 4)
        async with consumer(cluster, {"T": "*"}, handler=handler("two"), orderly=True) as two:
            for name in "ab":
                cluster[name].notify("G")
            await until(lambda: len(one.assignment) == 2)
            assert two.assignment == []  # the locks are still held
            gates["one"].set()
            await until(lambda: len(two.assignment) == 2)
            gates["two"].set()
            await until(lambda: len(order) == 40)
    by_queue: dict[MessageQueue, list[int]] = defaultdict(list)
    for _, queue, offset in order:
        by_queue[queue].append(offset)
    assert list(by_queue.values()) == [list(range(10))] * 4
    assert {name for name, _, _ in order} == {"one", "two"}


async def test_broadcast_reads_everything_and_keeps_its_offsets_in_a_file(
    cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = fill(cluster)
    options: dict[str, Any] = {"broadcast": True, "offset_directory": tmp_path}

    async def run(expected: set[bytes], instance: str) -> list[bytes]:
        seen: list[bytes] = []

        async def handle(message: ConsumedMessage) -> None:
            seen.append(message.body)
            if message.body == b"3":
                raise RuntimeError("three")

        async with consumer(
            cluster, {"T": "*"}, handler=handle, instance_name=instance, **options
        ) as c:
            assert c.client_id.endswith(f"@{instance}")
            await until(lambda: set(seen) == expected)
        return seen

    assert len(await run(bodies, "DEFAULT")) == 20
    assert len(await run(bodies, "other")) == 20
    cluster["a"].store("T", 0, b"new")
    assert await run({b"new"}, "DEFAULT") == [b"new"]
    assert not cluster["a"].sent_back + cluster["b"].sent_back
    assert "broadcast mode does not retry" in caplog.text
    assert cluster["a"].offsets == {}
    (beat,) = cluster["a"].heartbeats[-1].consumer_data_set
    assert beat.message_model == "BROADCASTING"
    assert len(list(tmp_path.glob("*@DEFAULT/G/offsets.json"))) == 1  # noqa: ASYNC240


async def test_no_more_handlers_run_than_allowed(cluster: FakeCluster) -> None:
    fill(cluster, 40)
    running = most = ended = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        ended += 1

    async with consumer(cluster, {"T": "*"}, handler=handle, concurrency=3):
        await until(lambda: ended == 40)
    assert most == 3


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"pull_threshold_for_queue": 10}, 10 + 4),
        ({"pull_threshold_for_topic": 20}, 20 + 2 * 4),
        ({"pull_threshold_size_for_queue": 1}, 15 + 4),
        ({"pull_threshold_size_for_topic": 1}, 15 + 2 * 4),
        ({"max_buffered_bytes": 1024 * 1024}, 15 + 2 * 4),
        ({"consume_concurrently_max_span": 10}, 12 + 4),
    ],
)
async def test_reading_waits_while_too_much_is_in_work(
    cluster: FakeCluster, limits: dict[str, Any], most: int
) -> None:
    for _ in range(60):
        cluster["a"].store("T", 0, bytes(70_000))
        cluster["b"].store("T", 1, bytes(70_000))
    options: dict[str, Any] = {"pull_batch_size": 4, **limits}
    async with consumer(cluster, {"T": "*"}, **options) as c:
        held: list[ConsumedMessage] = []
        done = 0
        async with asyncio.timeout(20):
            while done < 120:
                try:
                    async with asyncio.timeout(0.02 if held else 5):
                        held.append(await anext(c))
                except TimeoutError:
                    count = {q: sum(m.queue == q for m in held) for q in {m.queue for m in held}}
                    if "pull_threshold_for_topic" in limits or (
                        {"pull_threshold_size_for_topic", "max_buffered_bytes"} & limits.keys()
                    ):
                        assert len(held) <= most
                    else:
                        assert max(count.values()) <= most
                    done += len(held)
                    for message in held:
                        message.ack()
                    held.clear()


async def test_work_that_takes_too_long_is_ended_and_comes_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 4)
    ended: list[str] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.body != b"1":
            return
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(message.msg_id)
            raise

    async with consumer(cluster, {"T": "*"}, handler=handle, consume_timeout=0.04):
        await until(lambda: cluster["b"].sent_back)
    assert ended == ["id1"]
    (header,) = cluster["b"].sent_back
    assert (header.origin_msg_id, header.delay_level) == (
        "id1",
        0,
    )  # the broker waits longer each time
    (told,) = [r for r in caplog.records if "redelivering" in r.message]
    assert told.levelname == "WARNING"
    assert told.message.endswith(": TimeoutError: its work took longer than consume_timeout")
    assert committed(cluster) == [1] * 4


@pytest.mark.parametrize(
    ("options", "level"),
    [({"retry_delays": {TimeoutError: (60, 600)}}, 5), ({"dead_letter_on": (TimeoutError,)}, -1)],
)
async def test_work_that_takes_too_long_is_a_timeout_error(
    cluster: FakeCluster, options: dict[str, Any], level: int
) -> None:
    """It was a ReconsumeLater with a level of its own, for which neither option counts."""
    cluster["a"].store("T", 0, b"x")
    cluster["a"].mode = ResponseCode.MESSAGE_ILLEGAL  # of sends, so that it is asked for a copy

    async def handle(message: ConsumedMessage) -> None:
        await asyncio.Event().wait()

    async with consumer(cluster, {"T": "*"}, handler=handle, consume_timeout=0.04, **options):
        await until(lambda: cluster["a"].sent_back)
    assert cluster["a"].sent_back[0].delay_level == level


async def test_a_message_that_is_never_acknowledged_comes_again(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")
    async with consumer(cluster, {"T": "*"}, consume_timeout=0.04) as c:
        message = await anext(c)
        await until(lambda: cluster["a"].sent_back)
        message.ack()  # too late
    assert cluster["a"].offsets["G", "T", 0] == 1


async def test_shutdown_lets_handlers_end(cluster: FakeCluster) -> None:
    fill(cluster, 8)
    began: set[bytes] = set()
    ended: set[bytes] = set()
    gate = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        began.add(message.body)
        await gate.wait()
        ended.add(message.body)

    c = consumer(cluster, {"T": "*"}, handler=handle, concurrency=5)
    await c.start()
    await until(lambda: len(began) == 5)
    shutdown = asyncio.create_task(c.shutdown())
    again = asyncio.create_task(c.shutdown())
    await until(lambda: not c.running)
    assert not shutdown.done()
    gate.set()
    await asyncio.gather(shutdown, again)
    assert len(began) == 5
    assert began == ended
    assert sum(offset or 0 for offset in committed(cluster)) <= 5


async def test_shutdown_has_a_deadline(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["a"].store("T", 0, b"x")
    began = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        began.set()
        await asyncio.sleep(60)

    async with consumer(cluster, {"T": "*"}, handler=handle, shutdown_timeout=0.02):
        await began.wait()
    assert "handlers that have not ended are cancelled" in caplog.text
    assert cluster["a"].offsets.get(("G", "T", 0)) in (None, 0)


def shut_down_by_its_handler(cluster: FakeCluster) -> PushConsumer:
    cluster["a"].store("T", 0, b"x")
    c = consumer(cluster)

    @c.on("T")
    async def handle(message: ConsumedMessage) -> None:
        await c.shutdown()

    return c


async def test_a_handler_may_shut_the_consumer_down(cluster: FakeCluster) -> None:
    c = shut_down_by_its_handler(cluster)
    async with asyncio.timeout(10):
        await c.run()
    assert cluster["a"].offsets.get(("G", "T", 0)) in (None, 0)


async def test_a_handler_may_be_quicker_than_the_start(cluster: FakeCluster) -> None:
    c = shut_down_by_its_handler(cluster)
    async with asyncio.timeout(10):
        await c.start()
        await c.shutdown()


async def test_run_ends_by_cancellation(cluster: FakeCluster) -> None:
    bodies = fill(cluster)
    seen: set[bytes] = set()
    c = consumer(cluster, {"T": "*"}, handler=lambda m: seen.add(m.body))
    task = asyncio.create_task(c.run())
    await until(lambda: seen == bodies)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert committed(cluster) == [5] * 4


async def test_iteration_ends_with_the_consumer(cluster: FakeCluster) -> None:
    async with consumer(cluster, {"T": "*"}) as c:
        task = asyncio.create_task(anext(c, None))
        await asyncio.sleep(0)
        await c.shutdown()
        assert await task is None
        assert [message async for message in c] == []


async def test_wrong_use(cluster: FakeCluster, unused_port: str) -> None:
    with pytest.raises(InvalidName):
        consumer(cluster, {"T": "||"})
    with pytest.raises(InvalidName, match="not both"):
        consumer(cluster).on("T", "a", sql="b > 1")
    c = consumer(cluster, {"T": "*"})
    with pytest.raises(ValueError, match="already"):
        c.on("T")(print)
    c.on("U")(print)
    with pytest.raises(ValueError, match="no handler for T"):
        await c.start()
    with pytest.raises(ValueError, match="concurrency"):
        consumer(cluster, concurrency=0)
    with pytest.raises(NoNameServer):
        async with PushConsumer("G", {"T": "*"}, namesrv=unused_port, start_timeout=0):
            pass
    async with consumer(cluster, {"T": "*"}, handler=print) as c:
        with pytest.raises(ValueError, match="handlers"):
            await anext(c)
        with pytest.raises(ValueError, match="running"):
            c.on("U")(print)
        with pytest.raises(ValueError, match="no handler for U"):
            await c.subscribe("U")
    with pytest.raises(NotRunning):
        await c.subscribe("U", handler=print)


async def test_topics_come_and_go_while_running(cluster: FakeCluster) -> None:
    cluster.put("U")
    fill(cluster, 4)
    fill(cluster, 4, "U")
    seen: list[tuple[str, bytes]] = []

    def handle(message: ConsumedMessage) -> None:
        seen.append((message.topic, message.body))

    async with consumer(cluster, {"T": "*"}, handler=handle) as c:
        await until(lambda: len(seen) == 4)
        await c.subscribe("U", "*", handler=handle)
        await until(lambda: len(seen) == 8)
        await c.unsubscribe("T")
        assert {queue.topic for queue in c.assignment} == {"U"}
        assert committed(cluster) == [1] * 4
        cluster["a"].store("T", 0, b"unheard")
        cluster["a"].store("U", 0, b"heard")
        await until(lambda: len(seen) == 9)
    assert seen[-1] == ("U", b"heard")


async def test_two_clients_share_and_one_goes_on_for_the_other(cluster: FakeCluster) -> None:
    seen: list[bytes] = []
    options: dict[str, Any] = {"handler": lambda m: seen.append(m.body)}
    async with consumer(cluster, {"T": "*"}, **options) as one:
        await until(lambda: len(one.assignment) == 4)
        async with consumer(cluster, {"T": "*"}, **options) as two:
            for name in "ab":
                cluster[name].notify("G")
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            bodies = fill(cluster)
            await until(lambda: set(seen) == bodies)
        for name in "ab":
            cluster[name].notify("G")
        await until(lambda: len(one.assignment) == 4)
        fill(cluster, 4)
        await until(lambda: len(seen) == 24)
    assert committed(cluster) == [6] * 4


async def test_pause_and_resume(cluster: FakeCluster) -> None:
    fill(cluster, 8)
    seen: list[bytes] = []
    async with consumer(cluster, {"T": "*"}, handler=lambda m: seen.append(m.body)) as c:
        await until(lambda: len(seen) == 8)
        c.pause()
        fill(cluster, 8)
        for _ in range(3):  # meanwhile it could have handed out more
            await cluster["a"].running_info(c.client_id)
        assert len(seen) == 8
        c.resume()
        await until(lambda: len(seen) == 16)


async def test_sql92_is_told_to_brokers_and_checked_at_the_start(cluster: FakeCluster) -> None:
    seen: list[bytes] = []
    c = consumer(cluster)
    c.on("T", sql="amount > 100")(lambda message: seen.append(message.body))
    cluster["a"].store("T", 0, b"x")
    async with c:
        await until(lambda: seen)
        pull = next(pull for pull in cluster["a"].pulls if pull.topic == "T")
        assert (pull.subscription, pull.expression_type) == ("amount > 100", "SQL92")
        beat = cluster["a"].heartbeats[-1].consumer_data_set[0]
        data = next(data for data in beat.subscription_data_set if data.topic == "T")
        assert (data.expression_type, data.sub_string, data.code_set) == (
            "SQL92",
            "amount > 100",
            [],
        )
    cluster["a"].check_answer = Response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no such thing")
    c = consumer(cluster)
    c.on("T", sql="amount >")(print)
    with pytest.raises(SubscriptionParseFailed, match="no such thing"):
        await c.start()
    # Another broker is asked while the first does not answer, and none is no reason to fail.
    cluster["b"].check_answer, cluster["a"].check_answer = cluster["a"].check_answer, Response()
    await cluster["a"].stop()
    with pytest.raises(SubscriptionParseFailed, match="no such thing"):
        await c.start()
    await cluster["b"].stop()
    await c.start()
    await c.shutdown()


async def test_a_lost_connection_is_told_and_made_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[ConsumerEvent] = []
    seen: list[bytes] = []

    def kinds() -> list[ConsumerEventKind]:
        return [event.kind for event in events]

    async with consumer(
        cluster, {"T": "*"}, handler=lambda m: seen.append(m.body), on_event=events.append
    ) as c:
        await until(lambda: len(c.assignment) == 4 and len(cluster["a"].held) >= 2)
        caplog.set_level(logging.WARNING)
        cluster["a"].drop_connections()
        await until(lambda: ConsumerEventKind.READING_FAILED in kinds())
        lost = next(e for e in events if e.kind is ConsumerEventKind.CONNECTION_LOST)
        assert lost.subject == cluster["a"].address
        cluster["a"].store("T", 0, b"after")
        await until(lambda: seen == [b"after"])
        assert ConsumerEventKind.READING_RECOVERED in kinds()
    assert f"connection to broker a at {cluster['a'].address} is lost" in caplog.text


async def test_a_group_that_the_broker_forgot_is_registered_again(cluster: FakeCluster) -> None:
    events: list[ConsumerEvent] = []
    async with consumer(cluster, {"T": "*"}, on_event=events.append) as c:
        await until(lambda: len(c.assignment) == 4)
        for name in "ab":
            cluster[name].clients.clear()
            cluster[name].notify("G")
        await until(lambda: ConsumerEventKind.GROUP_LOST in {event.kind for event in events})
        assert len(c.assignment) == 4
        await until(lambda: ConsumerEventKind.GROUP_FOUND in {event.kind for event in events})
        assert len(c.assignment) == 4


async def test_errors_of_the_listener_do_no_harm(cluster: FakeCluster) -> None:
    def listen(event: ConsumerEvent) -> None:
        raise RuntimeError("listener")

    bodies = fill(cluster)
    seen: set[bytes] = set()
    async with consumer(cluster, {"T": "*"}, handler=lambda m: seen.add(m.body), on_event=listen):
        await until(lambda: seen == bodies)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_queue_that_has_shrunk_is_read_to_its_end(
    cluster: FakeCluster, orderly: bool
) -> None:
    """What was read of it counts no more from there on, but all before is still to be done."""
    seen: list[bytes] = []
    gate = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        await gate.wait()

    for i in range(10):
        cluster["a"].store("T", 0, b"%d" % i)
    async with consumer(
        cluster, {"T": "*"}, handler=handle, orderly=orderly, concurrency=2, commit_interval=600.0
    ) as c:
        await until(lambda: len(seen) == 2 - orderly)
        del cluster["a"].records["T", 0][5:]
        cluster["a"].drop_connections()
        pulls = cluster["a"].pulls
        await until(lambda: [p for p in pulls if p.queue_id == 0][-1].queue_offset == 5)
        read = (await cluster["a"].running_info(c.client_id)).mq_table[A0]
        assert (read.commit_offset, read.cached_msg_count) == (0, 5)
        cluster["a"].store("T", 0, b"new")
        gate.set()
        await until(lambda: seen == [b"0", b"1", b"2", b"3", b"4", b"new"])
    assert cluster["a"].offsets["G", "T", 0] == 6


async def test_a_jump_of_the_offset_drops_what_was_read(cluster: FakeCluster) -> None:
    """A broker whose queue has shrunk: what was read from there on does not count any more."""
    for i in range(10):
        cluster["a"].store("T", 0, b"%d" % i)
    async with consumer(cluster, {"T": "*"}) as c:
        old = [await anext(c) for _ in range(7)]
        queue = cluster["a"].records["T", 0]
        del queue[5:]
        cluster["a"].pulls.clear()
        cluster["a"].drop_connections()
        await until(lambda: any(pull.queue_offset == 5 for pull in cluster["a"].pulls))
        for message in old:
            message.ack()
        cluster["a"].store("T", 0, b"new")
        message = await anext(c)
        assert (message.queue_offset, message.body) == (5, b"new")
        message.ack()
    assert cluster["a"].offsets["G", "T", 0] == 6
    assert cluster["a"].seen[RequestCode.CONSUMER_SEND_MSG_BACK] == 0


async def test_a_restarted_broker_is_read_on(cluster: FakeCluster) -> None:
    seen: list[bytes] = []
    events: list[ConsumerEventKind] = []
    async with consumer(
        cluster,
        {"T": "*"},
        handler=lambda m: seen.append(m.body),
        on_event=lambda event: events.append(event.kind),
        commit_interval=0.01,
    ) as c:
        await until(lambda: len(c.assignment) == 4)
        cluster["a"].store("T", 0, b"before")
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 1)
        await cluster["a"].stop()
        cluster["a"].clients.clear()
        await until(lambda: ConsumerEventKind.READING_FAILED in events)
        cluster["a"].store("T", 0, b"meanwhile")
        await cluster["a"].start()
        await until(lambda: seen == [b"before", b"meanwhile"])
        # And the broker knows it again.
        await until(lambda: c.client_id in cluster["a"].clients)
        await until(lambda: cluster["a"].offsets["G", "T", 0] == 2)


async def test_names_within_a_namespace(cluster: FakeCluster) -> None:
    cluster.put("ns%T")
    cluster.put("%RETRY%ns%G", "a", queues=1)
    cluster["a"].store("ns%T", 0, b"new")
    cluster["a"].store("%RETRY%ns%G", 0, b"again", "RETRY_TOPIC\x01ns%T\x02")
    seen: set[tuple[str, bytes]] = set()

    async def handle(message: ConsumedMessage) -> None:
        seen.add((message.topic, message.body))
        raise ReconsumeLater

    async with consumer(cluster, {"T": "*"}, handler=handle, namespace="ns") as c:
        await until(lambda: len(cluster["a"].sent_back) == 2)
        assert {queue.topic for queue in c.assignment} == {"T"}
    assert seen == {("T", b"new"), ("T", b"again")}
    for header in cluster["a"].sent_back:
        assert (header.group, header.origin_topic) == ("ns%G", "ns%T")
    assert cluster["a"].offsets["ns%G", "ns%T", 0] == 1
