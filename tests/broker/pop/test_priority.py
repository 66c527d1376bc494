"""The order of pops from a topic of priority messages."""

from __future__ import annotations

from collections import Counter

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import properties as names
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import CreateTopicRequestHeader
from tests.broker.conftest import Client, Connect, StartBroker
from tests.broker.pop.consuming import PopClient, passes
from tests.fake_time import FakeTime

QUEUES = 8
ASCENDING = [*range(QUEUES)]
DESCENDING = ASCENDING[::-1]
RETRIES_FIRST = {"pop_from_retry_probability_for_priority": 100}


class Bench:
    """A broker with a topic of priority messages."""

    def __init__(self, broker: Broker, client: Client, time: FakeTime, topic: str) -> None:
        self.broker = broker
        self.client = client
        self.time = time
        self.topic = topic
        self.pops = PopClient(client, topic)

    async def create(self, kind: str) -> None:
        header = CreateTopicRequestHeader(
            topic=self.topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES,
            perm=6, default_topic="TBW102", topic_filter_type="SINGLE_TAG",
            attributes=f"+message.type={kind}",
        )  # fmt: skip
        assert (await self.client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0

    async def set_factor(self, factor: int) -> None:
        body = SubscriptionGroupConfig(
            group_name="G", attributes={"+priority.factor": str(factor)}
        ).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await self.client.request(code, None, body)).code == 0

    async def send(self, *priorities: int) -> None:
        for priority in priorities:
            properties = {names.PRIORITY: str(priority)}
            answer = await self.client.send(self.topic, b"%d" % priority, properties=properties)
            assert answer.code == 0, answer.remark

    async def popped(self, count: int) -> list[int]:
        """The priorities of so many messages, each popped alone."""
        found = []
        for _ in range(count):
            [message] = await self.pops.pop(max_msg_nums=1)
            found.append(int(message.body))
        return found


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def settings() -> dict[str, object]:
    return {}


@pytest.fixture
async def bench(
    start_broker: StartBroker,
    connect: Connect,
    time: FakeTime,
    topic: str,
    settings: dict[str, object],
) -> Bench:
    options = {"clock": time.clock, "call_later": time.call_later}
    broker = await start_broker(options=options, **settings)
    bench = Bench(broker, await connect(broker), time, topic)
    await bench.create("PRIORITY")
    return bench


async def test_urgent_messages_are_popped_first(bench: Bench) -> None:
    await bench.send(*ASCENDING, *ASCENDING)
    assert await bench.popped(16) == sorted(ASCENDING * 2, reverse=True)


async def test_one_pop_takes_the_urgent_messages_first(bench: Bench) -> None:
    await bench.send(*ASCENDING)
    assert [int(message.body) for message in await bench.pops.pop()] == DESCENDING


async def test_an_urgent_message_overtakes_those_that_wait(bench: Bench) -> None:
    await bench.send(0, 0, 0)
    assert await bench.popped(1) == [0]
    await bench.send(5)
    assert await bench.popped(3) == [5, 0, 0]


@pytest.mark.parametrize("settings", [{"priority_order_asc": False}])
async def test_the_first_queue_may_be_the_most_urgent(bench: Bench) -> None:
    await bench.send(*DESCENDING)
    assert await bench.popped(QUEUES) == ASCENDING


async def test_the_queue_that_a_pop_names(bench: Bench) -> None:
    await bench.send(*ASCENDING)
    [message] = await bench.pops.pop(queue_id=2)
    assert message.body == b"2"


async def test_a_group_without_priority_pops_all_queues_alike(bench: Bench) -> None:
    """One that begins at a random queue gets no more than half of its messages from the last."""
    await bench.set_factor(0)
    await bench.send(*ASCENDING * 50)
    found = Counter(await bench.popped(200))
    assert len(found) == QUEUES
    assert found[7] < 100


async def test_a_share_of_the_pops_by_priority(bench: Bench) -> None:
    await bench.set_factor(50)
    await bench.send(*ASCENDING * 200)
    found = Counter(await bench.popped(200))
    # About 112, of which half of the pops account for 100.
    assert 70 < found[7] < 160
    assert len(found) == QUEUES


async def test_no_level_starves_with_a_factor_below_a_hundred(bench: Bench) -> None:
    """Each begins an eighth of the pops that are not by priority."""
    await bench.set_factor(99)
    await bench.send(*ASCENDING)
    for number in range(20_000):
        if number % 100 == 0:
            await bench.send(*[7] * 100)
        [message] = await bench.pops.pop(max_msg_nums=1)
        if message.body == b"0":
            return
    raise AssertionError("the lowest level was never popped")


@pytest.mark.parametrize("kind", ["NORMAL", "LITE"])
async def test_other_topics_are_read_as_before(bench: Bench, kind: str) -> None:
    await bench.create(kind)
    await bench.send(*ASCENDING * 50)
    found = Counter(await bench.popped(200))
    assert len(found) == QUEUES
    assert found[7] < 100


async def test_the_most_urgent_queue_first_is_for_pops_without_order(bench: Bench) -> None:
    await bench.send(*ASCENDING * 5)
    first = set()
    for _ in range(60):
        [message] = await bench.pops.pop(max_msg_nums=1, order=True)
        first.add(message.body)
        assert (await bench.pops.ack(message)).code == 0
        await bench.send(int(message.body))
    assert len(first) > 2


async def with_a_retry(bench: Bench) -> None:
    """A message of priority 7 in the retry topic, and each of the others in its queue."""
    await bench.send(7)
    [message] = await bench.pops.pop(max_msg_nums=1, invisible_time=1_000)
    assert message.body == b"7"
    await passes(bench.time, 10_000)
    await bench.send(*ASCENDING[:-1])


async def test_retries_are_popped_last(bench: Bench) -> None:
    await with_a_retry(bench)
    assert await bench.popped(QUEUES) == [*DESCENDING[1:], 7]


@pytest.mark.parametrize("settings", [RETRIES_FIRST])
async def test_retries_may_be_popped_first(bench: Bench) -> None:
    await with_a_retry(bench)
    assert await bench.popped(QUEUES) == DESCENDING
