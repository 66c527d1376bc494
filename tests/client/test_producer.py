from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from pocketmq.client.errors import (
    BatchSendError,
    InvalidMessage,
    NoNameServer,
    NoRouteInfo,
    NotRunning,
    RemotingClosed,
    SendError,
    SendTimeout,
    SystemBusy,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.client.selector.switches import CLIENT_CONFIG_NAMESPACE, Switches
from pocketmq.message.compression import decompress
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.dispatch import Handler
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


def producer(cluster: FakeCluster, **options: object) -> Producer:
    return Producer("PG", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


def unreachable(p: Producer) -> set[str]:
    return {broker.broker_name for broker in p.brokers if not broker.reachable}


async def test_a_message_is_stored_where_the_result_says(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        result = await p.send(Message("T", b"hello", tags="t", keys=["k"]))
    stored = cluster[result.queue.broker_name].records["T", result.queue.queue_id]
    assert b"hello" in stored[result.queue_offset]
    (header,) = cluster[result.queue.broker_name].sent
    assert (header.producer_group, header.default_topic) == ("PG", "TBW102")
    assert header.default_topic_queue_nums == 4
    assert f"UNIQ_KEY\x01{result.msg_id}\x02" in header.properties


async def test_sends_go_round_all_queues(cluster: FakeCluster) -> None:
    async with producer(cluster, selection="round-robin") as p:
        queues = [(await p.send(Message("T", b"x"))).queue for _ in range(8)]
    assert (
        set(queues[:4])
        == set(queues[4:])
        == {MessageQueue("T", broker, i) for broker in "ab" for i in range(2)}
    )


async def test_start_and_shutdown_may_be_repeated_and_nothing_works_outside(
    cluster: FakeCluster,
) -> None:
    p = producer(cluster)
    with pytest.raises(NotRunning):
        await p.send(Message("T", b"x"))
    await p.start()
    await p.start()
    await p.send(Message("T", b"x"))
    await p.shutdown()
    await p.shutdown()
    for call in (p.send, p.send_oneway):
        with pytest.raises(NotRunning):
            await call(Message("T", b"x"))
    with pytest.raises(NotRunning):
        await p.send_batch([Message("T", b"x")])
    with pytest.raises(NotRunning):
        await p.start()
    await asyncio.sleep(0)
    assert cluster.name_server.connections == 0


async def test_shutdown_before_start(cluster: FakeCluster) -> None:
    p = producer(cluster)
    await p.shutdown()
    with pytest.raises(NotRunning):
        await p.start()


async def test_an_unknown_topic_is_created_through_the_template(cluster: FakeCluster) -> None:
    cluster.put("TBW102", "b", queues=8)
    async with producer(cluster, template_queues=3, route_interval=0.01) as p:
        queues = [(await p.send(Message("new", b"x"))).queue for _ in range(6)]
        assert set(queues) == {MessageQueue("new", "b", i) for i in range(3)}
        assert cluster["b"].sent[0].default_topic_queue_nums == 3
        cluster.put("new", "a")
        async with asyncio.timeout(10):
            while (await p.send(Message("new", b"x"))).queue.broker_name != "a":
                pass


async def test_a_topic_without_route_or_template(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        with pytest.raises(NoRouteInfo, match="No route info of this topic: nowhere") as caught:
            await p.send(Message("nowhere", b"x"), timeout=0.1)
        assert caught.value.code == 10005
        assert (
            "lists no broker that creates topics (autoCreateTopicEnable, TBW102)"
            in caught.value.remark
        )
        cluster.put("nowhere", "a")
        assert (await p.send(Message("nowhere", b"x"))).queue.broker_name == "a"


async def test_a_topic_that_may_not_be_written(cluster: FakeCluster) -> None:
    cluster.put("readonly", perm=4)
    async with producer(cluster) as p:
        with pytest.raises(NoRouteInfo, match="topic readonly has no queue to send to"):
            await p.send(Message("readonly", b"x"), timeout=0.1)


async def test_no_name_server_answers(unused_port: str) -> None:
    async with Producer("PG", namesrv=unused_port) as p:
        with pytest.raises(NoNameServer, match=unused_port):
            await p.send(Message("T", b"x"), timeout=0.1)


async def test_another_name_server_is_asked(cluster: FakeCluster, unused_port: str) -> None:
    for _ in range(4):
        async with Producer("PG", namesrv=[unused_port, cluster.namesrv]) as p:
            await p.send(Message("T", b"x"))


async def test_retry_on_another_broker_when_one_refuses(cluster: FakeCluster) -> None:
    cluster["a"].mode = ResponseCode.SYSTEM_BUSY
    async with producer(cluster) as p:
        for _ in range(10):
            assert (await p.send(Message("T", b"x"))).queue.broker_name == "b"
        # Once it had answered busy it was left alone.
        assert cluster["a"].seen[RequestCode.SEND_MESSAGE_V2] == 1


async def test_the_unique_id_stays_over_retries(cluster: FakeCluster) -> None:
    cluster["a"].mode = ResponseCode.SYSTEM_BUSY
    async with producer(cluster, send_latency_enable=False) as p:
        results = [await p.send(Message("T", b"x")) for _ in range(4)]
    keys = [header.properties for header in cluster["b"].sent]
    assert [f"UNIQ_KEY\x01{r.msg_id}\x02" in key for r, key in zip(results, keys, strict=True)] == [
        True
    ] * 4


async def test_a_broker_that_hangs_costs_its_share_of_the_time(cluster: FakeCluster) -> None:
    cluster["a"].mode = "hang"
    async with producer(cluster, attempt_timeout=0.5, timeout=10) as p:
        results = [await p.send(Message("T", b"x")) for _ in range(4)]
        assert {r.queue.broker_name for r in results} == {"b"}
        assert unreachable(p) == {"a"}


async def test_the_detector_brings_a_broker_back(cluster: FakeCluster) -> None:
    cluster["a"].mode = "hang"
    async with producer(
        cluster, attempt_timeout=0.3, timeout=10, detect_interval_ms=50, detect_timeout_ms=100
    ) as p:
        while not unreachable(p):
            await p.send(Message("T", b"x"))
        probes = cluster["a"].seen[RequestCode.GET_MAX_OFFSET]
        await until(lambda: cluster["a"].seen[RequestCode.GET_MAX_OFFSET] >= probes + 2)
        assert unreachable(p) == {"a"}
        cluster["a"].mode = None
        await until(lambda: not unreachable(p))


async def test_the_detector_takes_any_answer(cluster: FakeCluster) -> None:
    def refused(handler: Handler) -> Handler:
        return lambda request: Response(ResponseCode.SYSTEM_ERROR, "as the test says")

    cluster["a"].dispatcher.wrap(RequestCode.GET_MAX_OFFSET, refused)
    cluster["a"].mode = "hang"
    async with producer(cluster, attempt_timeout=0.3, timeout=10, detect_interval_ms=50) as p:
        seen: set[str] = set()
        while not seen:
            await p.send(Message("T", b"x"))
            seen = unreachable(p)
        assert seen == {"a"}
        await until(lambda: not unreachable(p))


async def test_when_every_broker_fails_the_error_tells_all(cluster: FakeCluster) -> None:
    cluster["a"].mode = ResponseCode.SYSTEM_BUSY
    await cluster["b"].stop()
    async with producer(cluster) as p:
        with pytest.raises(SendError) as caught:
            await p.send(Message("T", b"x"))
    tried = caught.value.tries
    assert {attempt.queue.broker_name for attempt in tried} == {"a", "b"}
    assert len({attempt.queue for attempt in tried}) == 4
    for attempt in tried:
        if attempt.queue.broker_name == "a":
            assert isinstance(attempt.error, SystemBusy)
    assert caught.value.retriable


async def test_a_refused_message_is_not_sent_again(cluster: FakeCluster) -> None:
    cluster["a"].mode = cluster["b"].mode = ResponseCode.MESSAGE_ILLEGAL
    async with producer(cluster) as p:
        with pytest.raises(SendError) as caught:
            await p.send(Message("T", b"x"))
    assert (caught.value.code, caught.value.retriable) == (13, False)
    assert caught.value.remark == "as the test says"
    assert cluster["a"].seen[310] + cluster["b"].seen[310] == 1


async def test_a_chosen_queue_is_the_only_one_that_is_tried(cluster: FakeCluster) -> None:
    chosen = MessageQueue("T", "a", 1)
    async with producer(cluster) as p:
        for _ in range(3):
            assert (await p.send(Message("T", b"x"), queue=chosen)).queue == chosen
        cluster["a"].mode = ResponseCode.SYSTEM_BUSY
        with pytest.raises(SendError) as caught:
            await p.send(Message("T", b"x"), queue=chosen)
        assert [tried.queue for tried in caught.value.tries] == [chosen] * 3
        with pytest.raises(SendTimeout, match="no address of broker 'zzz'"):
            await p.send(Message("T", b"x"), queue=MessageQueue("T", "zzz", 0), timeout=0.1)


async def test_a_master_that_knows_fewer_queues_has_the_route_asked_for_again(
    cluster: FakeCluster,
) -> None:
    """A new master knows a topic of the last moment by the queues that have messages."""
    broker, asked = cluster["a"], cluster.name_server.seen
    cluster.put("T", "a", queues=8)
    async with producer(cluster) as p:
        assert len(await p.queues("T")) == 8
        before = asked[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        broker.queues = 1
        for _ in range(8):
            assert (await p.send(Message("T", b"x"))).queue.queue_id == 0
        await until(lambda: asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] > before)
        with pytest.raises(SendError, match="queueId"):
            await p.send(Message("T", b"x"), queue=MessageQueue("T", "a", 3))
        # The name server was asked at most once a second for all of them.
        assert asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] < before + 5


async def test_the_new_route_has_the_queues_of_the_new_master(cluster: FakeCluster) -> None:
    broker = cluster["a"]
    cluster.put("T", "a", queues=8)
    async with producer(cluster, start_detector_enable=False) as p:
        await p.queues("T")
        broker.queues = 1
        cluster.put("T", "a", queues=1)
        with pytest.raises(SendError, match="queueId"):
            await p.send(Message("T", b"x"), key=1)
        async with asyncio.timeout(10):
            while len(await p.queues("T")) > 1:  # noqa: ASYNC110 (the route has no event)
                await asyncio.sleep(0.001)
        for key in range(8):
            assert (await p.send(Message("T", b"x"), key=key)).queue.queue_id == 0


async def test_invalid_messages_never_leave(cluster: FakeCluster) -> None:
    async with producer(cluster, max_message_size=10) as p:
        for message in (Message("T", b""), Message("T", b"x" * 11)):
            for call in (p.send, p.send_oneway):
                with pytest.raises(InvalidMessage):
                    await call(message)
        with pytest.raises(InvalidMessage):
            await p.send_batch([Message("T", b"x"), Message("T", b"")])
    assert cluster["a"].seen[310] + cluster["a"].seen[320] == 0


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
async def test_large_bodies_travel_compressed(cluster: FakeCluster, kind: str) -> None:
    body = b"compress me " * 1000
    cluster.put("T", "a")
    async with producer(cluster, compression=kind) as p:
        await p.send(Message("T", body))
        await p.send(Message("T", b"small"))
    assert len(cluster["a"].bodies[0]) < len(body)
    assert decompress(cluster["a"].bodies[0], cluster["a"].sent[0].sys_flag) == body
    assert (cluster["a"].bodies[1], cluster["a"].sent[1].sys_flag) == (b"small", 0)


async def test_bodies_are_compressed_from_the_given_size_on(cluster: FakeCluster) -> None:
    async with producer(cluster, compress_over=1000) as p:
        queue = MessageQueue("T", "a", 0)
        for size in (999, 1000):
            await p.send(Message("T", bytes(size)), queue=queue)
            await p.send_oneway(Message("T", bytes(size)), queue=queue)
        await p.send(Message("T", b"last"), queue=queue)
    compressed = [header.sys_flag != 0 for header in cluster["a"].sent]
    assert compressed == [False, False, True, True, False]


async def test_compression_can_be_off(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    async with producer(cluster, compression=None) as p:
        await p.send(Message("T", bytes(9000)))
    assert (cluster["a"].bodies, cluster["a"].sent[0].sys_flag) == ([bytes(9000)], 0)


async def test_oneway(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    async with producer(cluster) as p:
        await p.send_oneway(Message("T", b"gone"))
        await cluster["a"].arrived.wait()
        assert cluster["a"].bodies == [b"gone"]


async def test_a_batch_goes_in_one_request_and_its_results_in_order(cluster: FakeCluster) -> None:
    messages = [Message("T", b"%d" % i, keys=[f"k{i}"]) for i in range(20)]
    async with producer(cluster) as p:
        results = await p.send_batch(messages)
    assert cluster["a"].seen[320] + cluster["b"].seen[320] == 1
    assert len({r.queue for r in results}) == 1
    assert [r.queue_offset for r in results] == list(range(20))
    assert len({r.msg_id for r in results}) == 20
    assert len({r.offset_msg_id for r in results}) == 20


async def test_batches_are_split_by_topic_and_size(cluster: FakeCluster) -> None:
    cluster.put("U", "b")
    messages = [Message("TU"[i % 2], b"x" * 1000) for i in range(20)]
    messages.append(Message("T", b"y" * 9000))
    async with producer(cluster, batch_bytes=5000) as p:
        results = await p.send_batch(messages)
    assert [r.queue.topic for r in results] == [m.topic for m in messages]
    for message, result in zip(messages, results, strict=True):
        stored = cluster[result.queue.broker_name].records[message.topic, result.queue.queue_id]
        assert result.msg_id.encode() in stored[result.queue_offset]
    sent = cluster["a"].bodies + cluster["b"].bodies
    assert max(len(body) for body in sent) <= 5000
    # The one too large for a batch went alone, and compressed.
    assert cluster["a"].seen[310] + cluster["b"].seen[310] == 1


async def test_an_empty_batch(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        assert await p.send_batch([]) == []


async def test_a_batch_into_a_chosen_queue_keeps_its_order(cluster: FakeCluster) -> None:
    chosen = MessageQueue("T", "b", 1)
    messages = [Message("T", b"%04d" % i * 100) for i in range(30)]
    async with producer(cluster, batch_bytes=3000) as p:
        results = await p.send_batch(messages, queue=chosen)
        for call in (p.send, p.send_oneway):
            with pytest.raises(InvalidMessage, match="queue must be a MessageQueue of topic U"):
                await call(Message("U", b"x"), queue=chosen)
        with pytest.raises(InvalidMessage, match="queue must be a MessageQueue of topic U"):
            await p.send_batch([Message("T", b"x"), Message("U", b"x")], queue=chosen)
    assert [r.queue_offset for r in results] == list(range(30))
    assert {r.queue for r in results} == {chosen}
    assert cluster["b"].seen[320] > 3


async def test_a_batch_that_is_stored_in_part(cluster: FakeCluster) -> None:
    cluster.put("U", "b")
    cluster.put("T", "a")
    cluster["b"].mode = ResponseCode.MESSAGE_ILLEGAL
    messages = [Message("TU"[i % 2], b"x") for i in range(6)]
    async with producer(cluster) as p:
        with pytest.raises(BatchSendError) as caught:
            await p.send_batch(messages)
    error = caught.value
    assert [result is not None for result in error.results] == [True, False] * 3
    assert error.failed == messages[1::2]
    assert error.code == 13
    assert isinstance(error.__cause__, SendError)
    assert "3 of 6" in str(error)


async def test_a_batch_to_a_topic_without_route(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        with pytest.raises(BatchSendError) as caught:
            await p.send_batch([Message("T", b"x"), Message("nowhere", b"x")], timeout=1.0)
    assert isinstance(caught.value.__cause__, NoRouteInfo)
    assert [result is not None for result in caught.value.results] == [True, False]


async def test_a_cancelled_send_leaves_nothing(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    cluster["a"].mode = "hang"
    async with producer(cluster) as p:
        task = asyncio.create_task(p.send(Message("T", b"x")))
        await cluster["a"].arrived.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert p.in_flight == 0
        assert [(b.broker_name, b.available, b.in_flight) for b in p.brokers] == [("a", True, 0)]
        cluster["a"].mode = None
        await p.send(Message("T", b"x"))


async def test_shutdown_waits_for_sends_under_way(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        sends = [asyncio.create_task(p.send(Message("T", b"x"))) for _ in range(100)]
        await asyncio.sleep(0)
    assert all(task.done() for task in sends)
    assert len([task.result() for task in sends]) == 100


async def test_shutdown_ends_sends_that_hang(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    cluster["a"].mode = "hang"
    p = producer(cluster, timeout=30.0)
    await p.start()
    task = asyncio.create_task(p.send(Message("T", b"x")))
    await cluster["a"].arrived.wait()
    p.timeout = 0.05
    await p.shutdown()
    with pytest.raises(SendError) as caught:
        await task
    assert isinstance(caught.value.__cause__, RemotingClosed)


async def test_no_more_than_the_limit_are_in_flight(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    cluster["a"].mode = "hang"
    async with producer(cluster, max_in_flight=3, timeout=5.0, retries=0) as p:
        hanging = [asyncio.create_task(p.send(Message("T", b"x"))) for _ in range(3)]
        await cluster["a"].arrived.wait()
        with pytest.raises(SendTimeout, match="3 operations"):
            await p.send(Message("T", b"x"), timeout=0.05)
        cluster["a"].mode = None
        fourth = asyncio.create_task(p.send(Message("T", b"four")))
        await asyncio.sleep(0)
        assert not fourth.done()
        hanging[0].cancel()
        await fourth
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        assert p.in_flight == 0


async def test_ten_thousand_pending_sends(cluster: FakeCluster) -> None:
    async with producer(cluster, timeout=60.0) as p:
        results = await asyncio.gather(*(p.send(Message("T", b"x")) for _ in range(10_000)))
    assert len({r.msg_id for r in results}) == 10_000
    assert sum(len(queue) for b in "ab" for queue in cluster[b].records.values()) == 10_000


async def test_a_restarted_broker_is_used_again(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    async with producer(cluster, timeout=0.2) as p:
        await p.send(Message("T", b"1"))
        await cluster["a"].stop()
        with pytest.raises(SendTimeout):
            await p.send(Message("T", b"2"))
        await cluster["a"].start()
        await p.send(Message("T", b"3"), timeout=10.0)
    assert cluster["a"].bodies == [b"1", b"3"]


async def test_a_lost_connection_goes_unnoticed(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        for _ in range(5):
            await p.send(Message("T", b"x"))
            cluster["a"].drop_connections()
            cluster["b"].drop_connections()
            cluster.name_server.drop_connections()
            await p.send(Message("T", b"x"))


async def test_heartbeats_name_the_group_and_shutdown_withdraws_it(cluster: FakeCluster) -> None:
    async with producer(cluster, heartbeat_interval=0.01) as p:
        await p.send(Message("T", b"x"))
        await until(lambda: all(cluster[name].heartbeats for name in "ab"))
        for name in "ab":
            beat = cluster[name].heartbeats[-1]
            assert beat.client_id == p.client_id
            assert [data.group_name for data in beat.producer_data_set] == ["PG"]
    for name in "ab":
        assert [u.producer_group for u in cluster[name].unregistered] == ["PG"]


async def test_a_new_connection_is_told_of_the_group(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    async with producer(cluster) as p:
        await p.send(Message("T", b"x"))
        await cluster["a"].beat.wait()
        cluster["a"].beat.clear()
        cluster["a"].drop_connections()
        await p.send(Message("T", b"x"))
        await cluster["a"].beat.wait()


async def test_the_switches_follow_the_name_server(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(cluster, detect_interval_ms=4000, route_interval=0.01) as p:
        local = p.switches
        assert local.detect_interval == 4000
        cluster.name_server.config[CLIENT_CONFIG_NAMESPACE] = {
            "sendLatencyEnable": "false",
            "detectInterval": "1000",
            "detectTimeout": "quick",
        }
        with caplog.at_level(logging.WARNING):
            await until(lambda: p.switches != local)
        assert "quick" in caplog.text
        assert p.switches == Switches(
            send_latency_enable=False, detect_interval=1000, detect_timeout=200
        )
        cluster["a"].mode = ResponseCode.SYSTEM_BUSY
        for _ in range(20):
            await p.send(Message("T", b"x"))
        # Nothing is learnt any more, so it gets its turns as before.
        assert cluster["a"].seen[310] > 4
        del cluster.name_server.config[CLIENT_CONFIG_NAMESPACE]
        await until(lambda: p.switches == local)


async def test_the_users_filters_choose(cluster: FakeCluster) -> None:
    async with producer(cluster, filters=[lambda queue: queue.broker_name == "b"]) as p:
        for _ in range(6):
            assert (await p.send(Message("T", b"x"))).queue.broker_name == "b"
        cluster["b"].mode = ResponseCode.SYSTEM_BUSY
        assert (await p.send(Message("T", b"x"))).queue.broker_name == "a"
