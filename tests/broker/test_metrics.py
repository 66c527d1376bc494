"""What a broker shows to Prometheus, by what its clients did before."""

from __future__ import annotations

import asyncio
from time import time_ns

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.statistics.message_types import MessageTypes, message_type
from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.recall_handle import RecallHandle
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    RecallMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.conftest import (
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Connect,
    StartBroker,
    fill,
    subscription,
)
from tests.broker.pop.consuming import PopClient, passes
from tests.broker.transacting import COMMIT as COMMIT_TRANSACTION
from tests.broker.transacting import ROLLBACK, Clock, Producer
from tests.client.waiting import until
from tests.fake_time import FakeTime
from tests.monitoring.pages import Series, get, scrape

pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")

ON = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(**ON)


async def shown(broker: Broker) -> Series:
    return await scrape(broker.monitoring.metrics_port)


async def test_messages_are_counted_by_topic_and_type(broker: Broker, client: Client) -> None:
    await fill(client, "T", "a", "b", "")
    await client.send("T", properties={names.SHARDING_KEY: "k"})
    await client.send("T", properties={names.DELAY: "18"})
    await client.send("T", properties={names.TIMER_DELAY_SEC: "3600"})
    await client.send("Other")
    series = await shown(broker)
    incoming = {
        (labels["topic"], labels["message_type"], labels["is_system"]): value
        for labels, value in series.of("rocketmq_messages_in_total")
    }
    assert incoming == {
        ("T", "normal", "false"): 3,
        ("T", "fifo", "false"): 1,
        ("Other", "normal", "false"): 1,
        ("SCHEDULE_TOPIC_XXXX", "delay", "true"): 1,
        ("rmq_sys_wheel_timer", "delay", "true"): 1,
    }
    stored = broker.store.commit_log.end
    assert series.sum("rocketmq_throughput_in_total") == stored
    assert series.sum("rocketmq_message_size_sum") == stored
    assert series.sum("rocketmq_timer_enqueue_total", topic="T") == 1
    assert series.sum("rocketmq_timing_messages", topic="T") == 1
    assert series.sum("rocketmq_timer_message_snapshot", timer_bound_s="3600") == 1
    assert series.sum("rocketmq_delay_message_latency_seconds_bucket", le="3600.0") == 1


async def test_a_recall_whose_message_is_not_there_counts_as_none(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(**ON, recall_message_enable=True)
    client = await connect(broker)
    assert (await client.send("T", properties={names.TIMER_DELAY_SEC: "60"})).code == 0
    later = time_ns() // 1_000_000 + 3_000_000
    handle = RecallHandle("T", broker.config.broker_name, str(later), "U").encode()
    header = RecallMessageRequestHeader(topic="T", recall_handle=handle, producer_group="P")
    assert (await client.request(RequestCode.RECALL_MESSAGE, header)).code == 0
    series = await shown(broker)
    assert series.sum("rocketmq_timer_enqueue_total", topic="T") == 1
    counts = [value for _, value in series.of("rocketmq_timer_message_snapshot")]
    assert sorted(counts)[-2:] == [0, 1]
    assert min(counts) == 0


async def test_sizes_are_in_the_official_buckets(broker: Broker, client: Client) -> None:
    for size in (10, 2_000, 5_000, 600_000):
        assert (await client.send("T", b"x" * size)).code == 0
    pair = encode_batch([(0, b"x" * 10, b""), (0, b"x" * 5_000, b"")])
    answer = await client.send("T", pair, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert answer.code == 0, answer.remark
    series = await shown(broker)
    counts = [
        series.sum("rocketmq_message_size_bucket", topic="T", le=f"{bound}.0")
        for bound in (1024, 4096, 524288, 1048576, 2097152, 4194304)
    ]
    assert counts == [2, 3, 5, 6, 6, 6]
    assert series.sum("rocketmq_messages_in_total", topic="T") == 6


async def test_many_sends_of_one_read_are_counted_like_single_ones(
    broker: Broker, client: Client
) -> None:
    await client.send("T")
    sends = [
        client.send("T", b"x" * size, properties={"UNIQ_KEY": f"{number}", **more})
        for number, (size, more) in enumerate(
            [(10, {}), (2_000, {}), (10, {names.SHARDING_KEY: "k"}), (5_000, {}), (10, {})]
        )
    ]
    assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
    series = await shown(broker)
    assert series.sum("rocketmq_messages_in_total", message_type="normal") == 5
    assert series.sum("rocketmq_messages_in_total", message_type="fifo") == 1
    assert series.sum("rocketmq_message_size_bucket", message_type="normal", le="1024.0") == 3
    assert (
        series.sum("rocketmq_rpc_latency_milliseconds_count", request_code="send_message_v2") == 6
    )


async def test_lag_is_what_is_not_committed(start_broker: StartBroker, connect: Connect) -> None:
    clock = Clock()
    broker = await start_broker(options={"clock": clock}, **ON)
    client = await connect(broker)
    await fill(client, "T", "", "", "")
    clock.forward(2_000)
    await fill(client, "T", "", "")
    clock.forward(1_000)
    await client.pull("T", max_msg_nums=4)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic="T", queue_id=0, commit_offset=1
    )
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0
    series = await shown(broker)
    of = {"topic": "T", "consumer_group": "G", "is_retry": "false", "is_system": "false"}
    figures = {
        name: series.sum(f"rocketmq_consumer_{name}", **of)
        for name in (
            "lag_messages",
            "inflight_messages",
            "ready_messages",
            "lag_latency_milliseconds",
            "queueing_latency_milliseconds",
        )
    }
    assert figures == {
        "lag_messages": 4,
        "inflight_messages": 3,
        "ready_messages": 1,
        "lag_latency_milliseconds": 3_000,
        "queueing_latency_milliseconds": 1_000,
    }
    assert series.sum("rocketmq_messages_out_total", topic="T", consumer_group="G") == 4
    # Another commit: all is consumed, and the latencies are gone.
    header.commit_offset = 5
    await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    series = await shown(broker)
    assert series.sum("rocketmq_consumer_lag_messages", **of) == 0
    assert series.sum("rocketmq_consumer_lag_latency_milliseconds", **of) == 0


async def test_of_too_many_groups_those_with_the_largest_lags_are_shown(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(metrics_otel_cardinality_limit=2, **ON)
    client = await connect(broker)
    await fill(client, "T", *[""] * 5)
    for number in (2, 4, 0, 3, 1):
        name = f"G{number}"
        broker.tables.groups.update([SubscriptionGroupConfig(group_name=name)])
        broker.tables.offsets.commit(name, "T", 0, number)
    series = await shown(broker)
    lags = {
        f"G{number}": series.sum("rocketmq_consumer_lag_messages", consumer_group=f"G{number}")
        for number in range(5)
    }
    assert lags == {"G0": 5, "G1": 4, "G2": 0, "G3": 0, "G4": 0}
    metric = "rocketmq_consumer_lag_messages"
    assert series.sum("pocketmq_metrics_dropped_series", metric=metric) == 3


async def test_topics_that_a_group_dropped_have_no_lag(broker: Broker, client: Client) -> None:
    await fill(client, "T", "")
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic="T", queue_id=0, commit_offset=0
    )
    await client.heartbeat("c1", subscription("T"))
    await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert (await shown(broker)).of("rocketmq_consumer_lag_messages", topic="T")
    await client.heartbeat("c1", subscription("Other", version=2))
    assert not (await shown(broker)).of("rocketmq_consumer_lag_messages", topic="T")


async def test_clients_are_shown_by_kind(broker: Broker, client: Client, connect: Connect) -> None:
    await client.heartbeat("c1", subscription("T"), producer="PG")
    other = await connect(broker)
    await other.heartbeat("c2", subscription("T"))
    series = await shown(broker)
    ((labels, count),) = series.of("rocketmq_consumer_connections", consumer_group="G")
    assert count == 2
    assert labels["consume_mode"] == "push"
    assert (labels["protocol_type"], labels["is_system"]) == ("remoting", "false")
    assert labels["version"] == "v5_5_0"
    assert series.sum("rocketmq_producer_connections") == 1
    assert series.sum("pocketmq_connections") == 2


async def test_dead_letters_are_counted_for_topic_and_group(broker: Broker, client: Client) -> None:
    await fill(client, "T", "")
    await client.heartbeat("c1", subscription("T"))
    header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=-1, origin_topic="T")
    assert (await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
    series = await shown(broker)
    assert series.sum("rocketmq_send_to_dlq_messages_total", topic="T", consumer_group="G") == 1


async def test_transactions_are_counted_by_their_end(broker: Broker) -> None:
    producer = Producer()
    await producer.open(broker.address)
    try:
        for end in (COMMIT_TRANSACTION, ROLLBACK, None):
            half = await producer.begin("T", Clock())
            if end is not None:
                await producer.end(half, end)
                await producer.end(half, end)  # once more: it is refused
        series = await shown(broker)
    finally:
        await producer.close()
    assert series.sum("rocketmq_commit_messages_total", topic="T") == 1
    assert series.sum("rocketmq_rollback_messages_total", topic="T") == 1
    assert series.sum("rocketmq_half_messages", topic="T") == 1
    assert series.sum("rocketmq_finish_message_latency_milliseconds_count", topic="T") == 1
    assert series.sum("rocketmq_messages_in_total", topic="T", message_type="transaction") == 1


async def test_requests_are_timed_to_their_answers(broker: Broker, client: Client) -> None:
    await fill(client, "T", "")
    held = asyncio.ensure_future(client.pull("T", 1, sys_flag=SUSPEND | SUBSCRIPTION))
    await until(lambda: len(broker.components.pulls.holds))
    assert (await shown(broker)).sum("pocketmq_held_pulls") == 1
    await fill(client, "T", "")
    assert (await held).code == 0
    await client.request(4711)
    series = await shown(broker)
    name = "rocketmq_rpc_latency_milliseconds_count"
    assert series.sum(name, request_code="pull_message", is_long_polling="true") == 1
    assert series.sum(name, request_code="unknown", response_code="request_code_not_supported") == 1


async def test_creations_by_an_admin_are_timed(broker: Broker, client: Client) -> None:
    header = CreateTopicRequestHeader(
        topic="Made", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    assert (await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    series = await shown(broker)
    name = "rocketmq_topic_create_execution_time_milliseconds_count"
    assert series.sum(name, invocation_status="success", is_system="false") == 1


async def test_without_metrics_nothing_is_measured(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(health_port=0)
    client = await connect(broker)
    await fill(client, "T", "")
    assert broker.monitoring.metrics_port is None
    route = broker.dispatcher.codes[RequestCode.PULL_MESSAGE]
    assert route.handler == route.registered
    assert not broker.tables.statistics.detailed


async def test_a_broker_without_name_server_is_not_ready(start_broker: StartBroker) -> None:
    nowhere = await start_broker(
        health_port=0, namesrv_addr="127.0.0.1:9", register_broker_timeout_mills=1
    )
    page = await get(nowhere.monitoring.health_port, "/ready")
    assert (page.status, page.text) == (503, "broker: registered at none of 127.0.0.1:9\n")


async def test_a_refusing_store_is_not_ready(broker: Broker) -> None:
    port = broker.monitoring.metrics_port
    assert (await get(port, "/ready")).status == 200
    broker.store.refuse("no room")
    page = await get(port, "/ready")
    assert (page.status, page.text) == (503, "broker: no room\n")
    series = await shown(broker)
    # Not for the disk.
    assert (series.sum("pocketmq_storage_refusing"), series.sum("pocketmq_accepts_sends")) == (0, 0)


def test_types_add_up_to_all_messages() -> None:
    types = MessageTypes()
    types.add("fifo", 100)
    types.add("fifo", 5_000)
    types.add("normal", 2_000)
    split = {each.kind: each for each in types.split(10, 20_000)}
    assert (split["fifo"].messages, split["fifo"].size) == (2, 5_100)
    assert split["fifo"].buckets == (1, 0, 1, 0, 0, 0, 0)
    assert (split["normal"].messages, split["normal"].size) == (8, 14_900)
    assert split["normal"].buckets == (7, 1, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "normal"),
        ({names.SHARDING_KEY: "k"}, "fifo"),
        ({names.TIMER_DELIVER_MS: "1"}, "delay"),
        ({names.TRAN_MSG: "true", names.SHARDING_KEY: "k"}, "transaction"),
        ({names.TRAN_MSG: "false"}, "normal"),
    ],
)
def test_properties_say_the_type(properties: dict[str, str], kind: str) -> None:
    assert message_type(properties) == kind


async def test_what_is_popped_and_taken_back(start_broker: StartBroker, connect: Connect) -> None:
    time = FakeTime()
    broker = await start_broker(options={"clock": time.clock, "call_later": time.call_later}, **ON)
    client = await connect(broker)
    await fill(client, "T", "", "", "")
    pops = PopClient(client, "T")
    first, second, _ = await pops.pop()
    assert (await pops.ack(first)).code == 0
    series = await shown(broker)
    assert series.sum("rocketmq_pop_checkpoint_buffer_size") == 1
    assert series.sum("rocketmq_pop_offset_buffer_size") == 1
    assert series.of("rocketmq_pop_revive_in_message_total") == []

    await passes(time, 20_000)  # by now the checkpoint is written, with what is acknowledged of it
    assert (await pops.ack(second)).code == 0
    series = await shown(broker)
    assert series.sum("rocketmq_pop_checkpoint_buffer_size") == 0
    of_group = {"topic": "T", "consumer_group": "G", "put_status": "PUT_OK"}
    written = "rocketmq_pop_revive_in_message_total"
    assert series.sum(written, revive_message_type="CK", **of_group) == 1
    assert series.sum(written, revive_message_type="ACK", **of_group) == 2

    await passes(time, 60_000)
    series = await shown(broker)
    assert series.sum("rocketmq_pop_revive_retry_messages_total", **of_group) == 1
    read = series.of("rocketmq_pop_revive_out_message_total", topic="T", consumer_group="G")
    assert sorted((labels["revive_message_type"], value) for labels, value in read) == [
        ("ACK", 2),
        ("CK", 1),
    ]
    queues = series.of("rocketmq_pop_revive_lag_milliseconds")
    assert len(queues) == broker.components.pop.revive.queues
    assert series.sum("rocketmq_pop_revive_lag_milliseconds") == 0

    broker.tables.statistics.forget_group("G")
    assert (await shown(broker)).of(written) == []
