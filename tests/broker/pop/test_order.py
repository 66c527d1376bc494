"""Pops in order: a queue gives nothing while a message of the group is out."""

from __future__ import annotations

from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.remoting.headers import PopMessageResponseHeader
from tests.broker.conftest import Client, Connect, StartBroker, fill
from tests.broker.pop.consuming import PopClient, passes
from tests.broker.pop.test_pop import bodies, waits, written
from tests.fake_time import FakeTime

ORDER = {"order": True, "max_msg_nums": 2}


async def counts(pops: PopClient, **fields: object) -> str | None:
    answer = await pops.request(**{**ORDER, **fields})
    return PopMessageResponseHeader.from_ext(answer.ext_fields).order_count_info


async def test_a_queue_gives_nothing_until_all_is_acknowledged(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, *[""] * 3)
    await fill(client, topic, "", queue_id=1)
    first = await pops.pop(**ORDER, queue_id=0)
    assert bodies(first) == [b"m0", b"m1"]
    assert first[0].handle.in_order
    other_queue = await pops.pop(**ORDER)
    assert [message.handle.queue_id for message in other_queue] == [1]
    assert (await pops.ack(first[1])).code == 0
    offsets = broker.tables.offsets
    assert offsets.query("G", topic, 0) == 0
    assert await pops.pop(**ORDER) == []
    assert (await pops.ack(first[0])).code == 0
    assert offsets.query("G", topic, 0) == 2
    assert (await pops.ack(first[0])).code == 0  # again: it is behind the offset
    time.advance(1)
    (third,) = await pops.pop(**ORDER)
    assert third.body == b"m2"
    old = first[1]._replace(handle=first[1].handle._replace(queue_offset=2))
    assert (await pops.ack(old)).code == 0  # of an earlier pop: ignored
    assert offsets.query("G", topic, 0) == 2
    strange = third._replace(handle=third.handle._replace(queue_offset=3))
    assert (await pops.ack(strange)).code == 13
    assert written(broker) == 0


async def test_without_its_entry_only_the_next_message_can_be_acknowledged(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    """As after a kill, or at the next master: nobody knows what became of the messages before."""
    await fill(client, topic, *[""] * 2)
    first, second = await pops.pop(**ORDER, queue_id=0)
    broker.components.pop.orders.clear("G", topic, 0)
    offsets = broker.tables.offsets
    assert (await pops.ack(second)).code == 0
    assert offsets.query("G", topic, 0) == 0
    assert (await pops.ack(first)).code == 0
    assert offsets.query("G", topic, 0) == 1
    time.advance(1)
    (again,) = await pops.pop(**ORDER, queue_id=0)
    assert again.body == b"m1"


async def test_a_lost_answer_is_given_again(
    client: Client, pops: PopClient, topic: str, time: FakeTime
) -> None:
    await fill(client, topic, *[""] * 3)
    assert await counts(pops, queue_id=0, attempt_id="a") == "0 0 0"
    assert await counts(pops, queue_id=0, attempt_id="a") == "0 0 0"
    await passes(time, 60_000)
    answer = await counts(pops, queue_id=0, attempt_id="b")
    assert answer == "0 qo0%0 1;0 qo0%1 1;0 0 1"


async def test_a_waiting_pop_gets_the_queue_when_it_is_free(
    client: Client,
    pops: PopClient,
    others: PopClient,
    broker: Broker,
    time: FakeTime,
    topic: str,
) -> None:
    await fill(client, topic, *[""] * 2)
    first = await pops.pop(order=True, max_msg_nums=1)
    waiting = await waits(others, broker, order=True)
    await pops.ack(first[0])
    (second,) = await waiting
    assert second.body == b"m1"
    waiting = await waits(pops, broker, order=True)
    changed = await others.change(second, 1_000)
    assert changed.handle.invisible_time == time.now + 1_000 - second.handle.pop_time
    time.advance(999)
    assert len(broker.components.pops.polling) == 1
    time.advance(1)
    (again,) = await waiting
    assert again.body == b"m1"
    # The first delivery is over: its acknowledgement does nothing.
    await others.ack(second)
    assert broker.tables.offsets.query("G", topic, 0) == 1


async def test_the_table_is_kept(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str, tmp_path: Path
) -> None:
    options = {"clock": time.clock, "call_later": time.call_later}
    broker = await start_broker(options=options)
    pops = PopClient(await connect(broker), topic)
    await fill(pops.client, topic, *[""] * 3)
    first = await pops.pop(**ORDER, attempt_id="a")
    await pops.ack(first[0])
    await broker.stop()
    path = tmp_path / "store" / "config" / "consumerOrderInfo.json"
    text = path.read_text()
    entry = f'{{"a":"a","cm":1,"i":60000,"l":{time.now},"o":[0,1],"popTime":{time.now}}}'
    assert text == f'{{"table":{{"{topic}@G":{{0:{entry}}}}}}}'

    broker = await start_broker(options=options)
    again = PopClient(await connect(broker), topic)
    assert await again.pop(**ORDER) == []
    waiting = await waits(again, broker, **ORDER)
    others = PopClient(await connect(broker), topic)
    assert (await others.ack(first[1])).code == 0
    assert bodies(await waiting) == [b"m2"]
