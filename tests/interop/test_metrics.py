"""The metrics of both brokers after the same traffic: the same names, labels, types and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq import Message, Producer, PushConsumer, TransactionProducer
from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.producer.transaction import TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageExt
from tests.broker.conftest import Client
from tests.broker.pop.consuming import PopClient, Popped
from tests.client.waiting import until
from tests.interop.harness import official, ours
from tests.interop.harness.official import Server
from tests.interop.harness.ports import free_port
from tests.monitoring.pages import Series, scrape

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Measured", "Measuring"
POPPED, POP_GROUP = "Popped", "Popping"
SENT = 40

RETRIED = "rocketmq_pop_revive_retry_messages_total"

#: What this broker does not do.
LEFT_OUT = ("rocketmq_pop_buffer_scan_", "rocketmq_rocksdb_", "rocketmq_tiered_store_")
#: Samples of OpenTelemetry about itself.
OF_OPEN_TELEMETRY = {"target_info", "otel_scope_info"}


#: Name server, broker, and the port of its metrics.
Measured = tuple[Server, Server, int]


@pytest.fixture(scope="module")
def brokers(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Measured]]:
    """By make."""
    directory: Path = tmp_path_factory.mktemp("metrics")
    found = {}
    try:
        for name, make in (("official", official), ("ours", ours)):
            port = free_port()
            settings = {
                "metricsExporterType": "PROM",
                "metricsPromExporterPort": port,
                "metricsPromExporterHost": "127.0.0.1",
                "timerWheelEnable": True,
            }
            namesrv = make.start_name_server(directory / name)
            broker = make.start_broker(directory / name, namesrv.address, settings=settings)
            found[name] = namesrv, broker, port
        yield found
    finally:
        for namesrv, broker, _ in found.values():
            broker.process.kill()
            namesrv.process.kill()


async def traffic(namesrv: str) -> None:
    """Messages of all kinds, consumed but for those that wait."""
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TOPIC, queues=4)

    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    consumed: list[bytes] = []
    consumer = PushConsumer(GROUP, namesrv=namesrv, start="begin", commit_interval=0.1)

    @consumer.on(TOPIC)
    async def handle(message: ConsumedMessage) -> None:
        consumed.append(message.body)
        if message.body == b"bad":
            raise ReconsumeLater("never", delay_level=-1)

    async with Producer("shop", namesrv=namesrv) as producer:
        for number in range(SENT):
            await producer.send(Message(TOPIC, b"%03d" % number * 100))
        await producer.send(Message(TOPIC, b"bad"))
        await producer.send(Message(TOPIC, b"soon", delay_level=1))
        await producer.send(Message(TOPIC, b"later", delay=3600))
    bank = TransactionProducer("bank", check=check, namesrv=namesrv)
    async with bank, consumer:
        async with bank.transaction(Message(TOPIC, b"paid")):
            pass
        async with bank.transaction(Message(TOPIC, b"unpaid")) as transaction:
            transaction.rollback()
        await until(lambda: len(consumed) >= SENT + 3, 60)


async def pops(broker: Server, port: int) -> None:
    """Of two messages that are popped, one is acknowledged and the other one comes back."""
    client = Client()
    await client.open(broker.address)
    try:
        popping = PopClient(client, POPPED, POP_GROUP, broker.broker_name)
        for body in (b"done", b"forgotten"):
            assert (await client.send(POPPED, body)).code == 0
        found: dict[bytes, Popped] = {}
        async with asyncio.timeout(60):
            while len(found) < 2:
                for message in await popping.pop(poll_time=2_000, invisible_time=2_000):
                    found[message.body] = message
        assert (await popping.ack(found[b"done"])).code == 0
    finally:
        await client.close()
    async with asyncio.timeout(90):
        while not is_settled(await scrape(port)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


def is_settled(series: Series) -> bool:
    """What was written to the revive log was also read, as the retry comes last; what the group
    has consumed is committed, and was counted."""
    return (
        bool(series.of(RETRIED, consumer_group=POP_GROUP))
        and series.sum("rocketmq_consumer_lag_messages", consumer_group=GROUP) == 0
        and series.sum("rocketmq_send_to_dlq_messages_total", consumer_group=GROUP) > 0
    )


@pytest.fixture(scope="module")
def scraped(brokers: dict[str, Measured]) -> dict[str, Series]:
    async def both() -> dict[str, Series]:
        found = {}
        for name, (namesrv, broker, port) in brokers.items():
            await traffic(namesrv.address)
            await pops(broker, port)
            found[name] = await scrape(port)
        return found

    return asyncio.run(both())


def labels_of(series: Series) -> dict[str, set[str]]:
    """The labels of each sample's name."""
    found: dict[str, set[str]] = {}
    for sample in series.samples:
        if sample.name not in OF_OPEN_TELEMETRY and not sample.name.startswith(LEFT_OUT):
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_ours_has_every_series_of_the_official_one(scraped: dict[str, Series]) -> None:
    theirs, own = labels_of(scraped["official"]), labels_of(scraped["ours"])
    assert len(theirs) > 40
    assert theirs.keys() - own.keys() == set()
    # Members of a group have the same node_id: their address tells ours apart.
    ours = {name: own[name] - {"address"} for name in theirs}
    wrong = {name: theirs[name] ^ ours[name] for name in theirs if theirs[name] != ours[name]}
    assert wrong == {}


def test_what_is_ours_alone_says_so(scraped: dict[str, Series]) -> None:
    theirs, own = labels_of(scraped["official"]), labels_of(scraped["ours"])
    more = {name for name in own if not name.startswith("pocketmq_")} - theirs.keys()
    # The official one shows these once there is a value, too.
    assert more <= {"rocketmq_rollback_messages_total"}


def test_buckets_are_the_same(scraped: dict[str, Series]) -> None:
    def borders(series: Series) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for sample in series.samples:
            if "le" in sample.labels and not sample.name.startswith(LEFT_OUT):
                found.setdefault(sample.name, set()).add(sample.labels["le"])
        return found

    assert borders(scraped["ours"]) == borders(scraped["official"])


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("rocketmq_messages_in_total", {"topic": TOPIC, "message_type": "normal"}),
        ("rocketmq_messages_out_total", {"topic": TOPIC, "consumer_group": GROUP}),
        ("rocketmq_message_size_count", {"topic": TOPIC, "message_type": "normal"}),
        ("rocketmq_consumer_lag_messages", {"topic": TOPIC, "consumer_group": GROUP}),
        ("rocketmq_consumer_inflight_messages", {"topic": TOPIC, "consumer_group": GROUP}),
        # The official broker counts what a consumer sends itself for the retry topic.
        ("rocketmq_send_to_dlq_messages_total", {"consumer_group": GROUP}),
        ("rocketmq_commit_messages_total", {"topic": TOPIC}),
        ("rocketmq_finish_message_latency_milliseconds_count", {"topic": TOPIC}),
        ("rocketmq_timer_enqueue_total", {"topic": TOPIC}),
        (
            "rocketmq_pop_revive_in_message_total",
            {"topic": POPPED, "consumer_group": POP_GROUP, "revive_message_type": "CK"},
        ),
        (
            "rocketmq_pop_revive_out_message_total",
            {"topic": POPPED, "consumer_group": POP_GROUP, "revive_message_type": "CK"},
        ),
        (RETRIED, {"topic": POPPED, "consumer_group": POP_GROUP, "put_status": "PUT_OK"}),
        ("rocketmq_broker_permission", {}),
        (
            "rocketmq_rpc_latency_milliseconds_count",
            {"request_code": "send_message_v2", "response_code": "success"},
        ),
    ],
)
def test_both_count_the_same(scraped: dict[str, Series], name: str, labels: dict[str, str]) -> None:
    counts = {make: series.sum(name, **labels) for make, series in scraped.items()}
    assert counts["ours"] == counts["official"]
    assert scraped["ours"].of(name, **labels)
