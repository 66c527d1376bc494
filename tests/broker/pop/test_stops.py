"""What a stop leaves of pops: what was acknowledged in time does not come again, also when the
broker is late; and what was not does, also when the group was not on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import Connect, StartBroker, fill
from tests.broker.pop.consuming import PopClient, passes
from tests.fake_time import FakeTime

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


class Restarts:
    """A broker that a test stops and starts, and a consumer at it."""

    def __init__(
        self, start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
    ) -> None:
        self._start_broker = start_broker
        self._connect = connect
        self._topic = topic
        self.time = time
        self.broker: Broker

    async def start(self, **settings: object) -> PopClient:
        self.broker = await self._start_broker(
            options={"clock": self.time.clock, "call_later": self.time.call_later}, **settings
        )
        return PopClient(await self._connect(self.broker), self._topic)

    async def all_that_comes(self, pops: PopClient) -> list[bytes]:
        """Acknowledge what comes within two minutes, and return it."""
        came = []
        for _ in range(12):
            for message in await pops.pop():
                came.append(message.body)
                assert (await pops.ack(message)).code == 0
            await passes(self.time, 10_000)
        return sorted(came)


@pytest.fixture
def restarts(start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str) -> Restarts:
    return Restarts(start_broker, connect, time, topic)


async def test_a_message_that_came_back_before_an_older_one_does_not_come_twice(
    restarts: Restarts, topic: str
) -> None:
    pops = await restarts.start(revive_queue_num=1)
    await fill(pops.client, topic, *[""] * 2)
    (held,) = await pops.pop(max_msg_nums=1, invisible_time=20_000)
    await passes(restarts.time, 19_200)
    # The checkpoint of `held` is in the revive log. The one of `given_back` is behind it there,
    # and is settled before it.
    (given_back,) = await pops.pop(max_msg_nums=1)
    await pops.change(given_back, 300)
    await passes(restarts.time, 400)
    (again,) = await pops.pop()
    assert again.body == given_back.body
    assert (await pops.ack(again)).code == 0
    await restarts.broker.stop()

    pops = await restarts.start(revive_queue_num=1)
    assert await restarts.all_that_comes(pops) == [held.body]


async def test_many_acknowledgements_behind_their_checkpoints(
    restarts: Restarts, topic: str
) -> None:
    """After a stop the broker has more records to read than it reads in a turn."""
    pops = await restarts.start(enable_pop_buffer_merge=False, revive_queue_num=1)
    await fill(pops.client, topic, *[""] * 200)
    kept = []
    for _ in range(20):
        kept += await pops.pop(max_msg_nums=10, invisible_time=20_000)
    assert len(kept) == 200
    for message in reversed(kept):
        assert (await pops.ack(message)).code == 0
    store, time = restarts.broker.store, restarts.time
    # In the middle of the slot of the acknowledgements. The stop delivers the rest of it.
    while store.max_offset(REVIVE, 0) <= 20:
        time.step()
    await restarts.broker.stop()

    time.advance(60_000)
    pops = await restarts.start(enable_pop_buffer_merge=False, revive_queue_num=1)
    assert await restarts.all_that_comes(pops) == []


async def test_acknowledgements_of_a_checkpoint_that_is_written_late(
    restarts: Restarts, topic: str
) -> None:
    """The broker had no time to write it before, as it was suspended."""
    pops = await restarts.start()
    await fill(pops.client, topic, *[""] * 2)
    first, second = await pops.pop(invisible_time=9_900)
    assert (await pops.ack(first)).code == 0
    restarts.time.now += 9_200
    assert await restarts.all_that_comes(pops) == [second.body]


async def test_a_message_that_is_given_back_in_the_same_millisecond(
    restarts: Restarts, topic: str
) -> None:
    pops = await restarts.start()
    await fill(pops.client, topic, *[""] * 2)
    first, second = await pops.pop()
    for _ in range(3):
        first = await pops.change(first, 20_000)
    assert (await pops.ack(first)).code == 0
    assert await restarts.all_that_comes(pops) == [second.body]


async def test_a_group_that_was_not_on_the_disk_before_a_kill(
    restarts: Restarts, topic: str, tmp_path: Path
) -> None:
    pops = await restarts.start()
    await fill(pops.client, topic, "")
    (given_back,) = await pops.pop()
    await pops.change(given_back, 300)
    await restarts.broker.stop()
    for file in (tmp_path / "store/config").glob("subscriptionGroup.json*"):
        file.unlink()

    pops = await restarts.start()
    await passes(restarts.time, 20_000)  # before the group is known again
    assert await restarts.all_that_comes(pops) == [given_back.body]


@pytest.mark.parametrize("comes_again", [False, True])
async def test_what_a_deleted_group_has_popped_does_not_come_again(
    restarts: Restarts, topic: str, comes_again: bool
) -> None:
    pops = await restarts.start()
    await fill(pops.client, topic, "")
    (message,) = await pops.pop()
    await pops.change(message, 20_000)
    await passes(restarts.time, 1_000)
    header = {"groupName": "G", "cleanOffset": "false"}
    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    assert (await pops.client.request(delete, ext_fields=header)).code == 0
    await restarts.broker.stop()

    pops = await restarts.start()
    if comes_again:
        assert await pops.pop() == []  # makes the group
    await passes(restarts.time, 40_000)
    assert restarts.broker.store.max_offset(f"%RETRY%G_{topic}", 0) == 0
