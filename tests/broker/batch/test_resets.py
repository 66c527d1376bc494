"""An offset that an admin set is told to a pull whose answer reaches its client, or kept."""

from __future__ import annotations

import asyncio

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.answers.batch import decode_answers
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.headers import BatchRequestHeader
from tests.broker.batch.batches import batch, body_of, held, parent, pull, send
from tests.broker.conftest import COMMIT, SUBSCRIPTION, Client, Connect

MOVED = ResponseCode.PULL_OFFSET_MOVED
WAIT = 15_000  # ms


async def until_held(broker: Broker, count: int) -> None:
    async with asyncio.timeout(10):
        while held(broker) != count:  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)


async def waiting_on(
    broker: Broker, client: Client, omit: bool | None
) -> asyncio.Task[dict[int, int]]:
    """A parent of two held pulls, of A and of B: the codes of its answers, by topic's place."""
    await batch(client, [send("A"), send("B")])

    async def codes() -> dict[int, int]:
        children = [pull("A", 1, hold=WAIT), pull("B", 1, hold=WAIT)]
        answer = await parent(client, children, omit=omit)
        return {opaque - 100: c.code for opaque, c in decode_answers(answer.body).items()}

    task = asyncio.create_task(codes())
    await until_held(broker, 2)
    return task


def reset(broker: Broker, topic: str) -> None:
    """What INVOKE_BROKER_TO_RESET_OFFSET does."""
    broker.tables.offsets.reset("G", topic, {0: 0})
    broker.components.pulls.holds.wake_topic(topic)


async def told(client: Client, topic: str, offset: int = 1) -> bool:
    answer = await client.pull(topic, offset)
    return (answer.code, answer.remark) == (MOVED, "OFFSET_RESET")


async def test_a_reset_while_its_pull_belongs_to_nobody(broker: Broker, client: Client) -> None:
    task = await waiting_on(broker, client, omit=True)
    await client.send("A")
    assert await task == {0: 0}
    await until_held(broker, 1)
    found = broker.tables.statistics.get_found
    reset(broker, "B")
    await until_held(broker, 0)
    assert await told(client, "B")
    assert broker.tables.statistics.get_found == found


async def test_the_next_parent_is_told(broker: Broker, client: Client) -> None:
    task = await waiting_on(broker, client, omit=True)
    await client.send("A")
    await task
    await until_held(broker, 1)
    reset(broker, "B")
    answer = await parent(client, [pull("A", 2, hold=WAIT), pull("B", 1, hold=WAIT)], omit=True)
    assert {opaque: c.code for opaque, c in decode_answers(answer.body).items()} == {101: MOVED}


async def test_messages_of_a_pull_that_belongs_to_nobody_are_not_read(
    broker: Broker, client: Client
) -> None:
    task = await waiting_on(broker, client, omit=True)
    await client.send("A")
    await task
    await until_held(broker, 1)
    found = broker.tables.statistics.get_found
    await client.send("B")
    await until_held(broker, 0)
    await asyncio.sleep(0)
    assert broker.tables.statistics.get_found == found


@pytest.mark.parametrize("omit", [True, None])
@pytest.mark.parametrize("turns", range(6))
async def test_a_reset_while_the_parent_is_answered_is_told_once(
    broker: Broker, client: Client, omit: bool | None, turns: int
) -> None:
    """In whichever turn of the loop it comes: with the parent's answer or with the next one."""
    task = await waiting_on(broker, client, omit=omit)
    sent = asyncio.create_task(client.send("A"))
    while held(broker) == 2:  # noqa: ASYNC110 (each turn of the loop counts)
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    reset(broker, "B")
    await sent
    codes = await task
    assert codes[0] == 0
    assert codes.get(1) in (None, ResponseCode.PULL_NOT_FOUND, MOVED)
    assert await told(client, "B") == (codes.get(1) != MOVED)


async def test_a_oneway_pull_takes_no_reset(broker: Broker, client: Client) -> None:
    await batch(client, [send("A"), send("B")])
    assert (await client.pull("A", 1)).code == ResponseCode.PULL_NOT_FOUND
    broker.tables.offsets.reset("G", "A", {0: 0})
    broker.tables.offsets.reset("G", "B", {0: 0})
    flag = SUBSCRIPTION | COMMIT
    children = [pull(topic, 1, sys_flag=flag, commit_offset=1) for topic in "AB"]
    await client.connection.send_oneway(11, children[0].header)
    header = BatchRequestHeader(dispatch_code=11)
    await client.connection.send_oneway(666, header, body_of(children))
    await parent(client, [pull("C")])  # answered when the parent before it is executed
    assert await told(client, "A")
    assert await told(client, "B")
    for topic in "AB":
        assert broker.tables.offsets.query("G", topic, 0) == 0


async def test_a_lost_connection_takes_no_reset(
    broker: Broker, client: Client, connect: Connect
) -> None:
    other = await connect(broker)
    task = await waiting_on(broker, other, omit=True)
    await other.close()
    await until_held(broker, 0)
    reset(broker, "B")
    assert await told(client, "B")
    await asyncio.gather(task, return_exceptions=True)


async def test_held_single_pulls_are_told_at_once(broker: Broker, client: Client) -> None:
    await batch(client, [send("A")])
    task = asyncio.create_task(client.request(11, pull("A", 1, hold=WAIT).header, timeout=20))
    await until_held(broker, 1)
    reset(broker, "A")
    assert (await task).remark == "OFFSET_RESET"
