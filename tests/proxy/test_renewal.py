"""Renewal of the handles of push consumers, with a clock and a broker of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

from pocketmq.message.receipt_handle import ReceiptHandle
from pocketmq.message.retry_topic import TopicKind
from pocketmq.proxy.service.clients import Client
from pocketmq.proxy.service.renewal import AT_ONCE, MAX_AGE, SOON, Renewal
from pocketmq.remoting.errors import RemotingTimeout
from tests.client.waiting import until


class ClientOf:
    def __init__(self, user: str) -> None:
        self.counted_for = user


CLIENT = cast(Client, ClientOf("a"))
ANOTHER = cast(Client, ClientOf("b"))


class Broker:
    """Changes invisible times, or fails."""

    def __init__(self) -> None:
        self.now = 0
        self.fails = False
        self.changes: list[int] = []
        self.pop_times: list[int] = []
        self.groups: list[str] = []
        self.after: dict[int, int] = {}  # the time after so many changes
        self.answers = asyncio.Event()
        self.answers.set()
        self.forbidden: set[str] = set()
        self.renewal = Renewal(self.change, lambda: self.now, self.may)

    def may(self, client: Client, group: str, topic: str) -> bool:
        return topic not in self.forbidden

    async def change(
        self, client: Any, group: str, topic: str, handle: ReceiptHandle, invisible: int
    ) -> ReceiptHandle:
        self.changes.append(invisible)
        self.pop_times.append(handle.pop_time)
        self.groups.append(group)
        self.now = self.after.get(len(self.changes), self.now)
        await self.answers.wait()
        if self.fails:
            raise RemotingTimeout("no answer")
        return handle._replace(
            start_offset=handle.queue_offset, pop_time=self.now, invisible_time=invisible
        )

    async def at(self, seconds: int) -> None:
        self.now = seconds * 1000
        await self.renewal.round()


def handle(offset: int = 7) -> ReceiptHandle:
    return ReceiptHandle(5, 0, 60_000, 0, TopicKind.NORMAL, "b", 0, offset, 100)


async def test_a_handle_is_renewed_before_it_ends_for_longer_and_longer() -> None:
    broker = Broker()
    broker.renewal.add(CLIENT, "g", "t", handle())
    await broker.at(45)
    assert broker.changes == []
    await broker.at(50)
    await broker.at(100)
    await broker.at(275)
    assert broker.changes == [60_000, 180_000, 300_000]


async def test_messages_of_a_user_who_lost_the_right_come_back_soon() -> None:
    broker = Broker()
    broker.renewal.add(CLIENT, "g", "t", handle())
    broker.renewal.add(CLIENT, "g", "another", handle())
    broker.forbidden.add("t")
    await broker.at(5)
    assert broker.changes == [SOON]
    assert len(broker.renewal) == 1
    await broker.at(50)
    assert broker.changes == [SOON, 60_000]


async def test_two_topics_have_messages_in_the_same_places() -> None:
    broker = Broker()
    broker.renewal.add(CLIENT, "g", "t", handle())
    broker.renewal.add(CLIENT, "g", "another", handle())
    await broker.at(55)
    assert broker.changes == [60_000, 60_000]
    taken = await broker.renewal.take(CLIENT, "g", "t", handle())
    assert taken.pop_time == 55_000
    assert len(broker.renewal) == 1


async def test_what_the_client_says_counts_for_the_renewed_handle() -> None:
    broker = Broker()
    broker.renewal.add(CLIENT, "g", "t", handle())
    await broker.at(55)
    taken = await broker.renewal.take(CLIENT, "g", "t", handle())
    assert (taken.pop_time, taken.start_offset) == (55_000, 7)
    await broker.at(110)
    assert len(broker.changes) == 1
    assert len(broker.renewal) == 0


@contextlib.asynccontextmanager
async def renewing(broker: Broker) -> AsyncIterator[None]:
    """While the broker renews a handle of 0 at 55 s; it answers at the end."""
    broker.renewal.add(CLIENT, "g", "t", handle())
    broker.answers.clear()
    round = asyncio.ensure_future(broker.at(55))
    await until(lambda: broker.changes == [60_000])
    yield
    broker.answers.set()
    await round


async def test_what_the_client_says_waits_for_the_renewal_that_is_under_way() -> None:
    broker = Broker()
    async with renewing(broker):
        taking = asyncio.ensure_future(broker.renewal.take(CLIENT, "g", "t", handle()))
        await asyncio.sleep(0)
        assert not taking.done()
    assert (await taking).pop_time == 55_000
    assert len(broker.renewal) == 0


async def test_a_client_leaves_while_its_messages_are_renewed() -> None:
    broker = Broker()
    async with renewing(broker):
        releasing = asyncio.ensure_future(broker.renewal.release(CLIENT))
        await asyncio.sleep(0)
    await releasing
    assert broker.changes == [60_000, SOON]
    assert broker.pop_times == [0, 55_000]


async def test_what_is_taken_while_others_are_renewed_is_renewed_no_more() -> None:
    broker = Broker()
    for offset in range(AT_ONCE + 1):
        broker.renewal.add(CLIENT, "g", "t", handle(offset))
    broker.answers.clear()
    round = asyncio.ensure_future(broker.at(55))
    await until(lambda: len(broker.changes) == AT_ONCE)
    assert (await broker.renewal.take(CLIENT, "g", "t", handle(AT_ONCE))).pop_time == 0
    broker.answers.set()
    await round
    assert len(broker.changes) == AT_ONCE


async def test_a_handle_of_an_earlier_delivery_is_left_as_it_is() -> None:
    broker = Broker()
    later = handle()._replace(pop_time=9)
    broker.renewal.add(CLIENT, "g", "t", later)
    assert await broker.renewal.take(CLIENT, "g", "t", handle()) == handle()
    assert len(broker.renewal) == 1


async def test_after_three_failures_it_is_given_up() -> None:
    broker = Broker()
    broker.fails = True
    broker.renewal.add(CLIENT, "g", "t", handle())
    for seconds in (50, 52, 54, 56, 58):
        await broker.at(seconds)
    assert len(broker.changes) == 3
    assert len(broker.renewal) == 0


async def test_after_three_hours_it_ends() -> None:
    broker = Broker()
    broker.renewal.add(CLIENT, "g", "t", handle())
    for seconds in range(0, MAX_AGE // 1000 + 60, 5):
        await broker.at(seconds)
    assert len(broker.renewal) == 0


async def test_the_messages_of_a_client_that_is_gone_are_visible_soon() -> None:
    broker = Broker()
    for offset in (1, 2, 3):
        broker.renewal.add(CLIENT, "g", "t", handle(offset))
    await broker.renewal.release(CLIENT)
    assert broker.changes == [SOON] * 3
    assert len(broker.renewal) == 0


async def test_the_handles_of_users_alternate() -> None:
    broker = Broker()
    for offset in range(3 * AT_ONCE):
        broker.renewal.add(CLIENT, "many", "t", handle(offset))
    for offset in range(2):
        broker.renewal.add(ANOTHER, "few", "t", handle(offset))
    await broker.at(55)
    assert broker.groups == ["many", "few", "many", "few", *["many"] * (3 * AT_ONCE - 2)]


async def test_a_handle_that_becomes_due_while_others_are_renewed_does_not_wait_for_them() -> None:
    broker = Broker()
    for offset in range(3 * AT_ONCE):
        broker.renewal.add(CLIENT, "many", "t", handle(offset))
    broker.renewal.add(ANOTHER, "few", "t", handle()._replace(pop_time=5_000))
    broker.after[AT_ONCE] = 60_000
    await broker.at(52)
    assert broker.groups.index("few") < 2 * AT_ONCE
    assert len(broker.groups) == 3 * AT_ONCE + 1


async def test_a_round_that_fails_is_continued() -> None:
    broker = Broker()
    for offset in range(2 * AT_ONCE):
        broker.renewal.add(CLIENT, "g", "t", handle(offset))
    broker.answers.clear()
    round = asyncio.ensure_future(broker.at(55))
    await until(lambda: len(broker.changes) == AT_ONCE)
    round.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await round
    broker.answers.set()
    await broker.at(56)
    assert len(broker.changes) == 3 * AT_ONCE
