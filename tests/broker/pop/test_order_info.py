"""Pops in order: what blocks a queue, where the offset goes, how often messages were delivered."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.pop.order_info import OrderInfo, popped

# As an official broker 5.3.3 wrote it.
OFFICIAL = (
    '{"a":"id","cm":1,"i":60000,"l":1795371170370,"o":[3,1,4],"oc":{4:1},"ot":{4:1795371999999},'
    '"popTime":1795371170369}'
)


def test_of_the_official_broker() -> None:
    info = OrderInfo.decode(OFFICIAL.encode())
    assert info.offsets == [3, 4, 7]
    assert info.next_offset == 4
    assert info.blocked_until(1795371999998) == 1795371999999
    assert info.delivered == {4: 1}
    assert info.encode().decode() == OFFICIAL
    assert json.loads(OrderInfo().encode()) == {"cm": 0, "l": 0, "o": [], "popTime": 0}


offset_lists = st.lists(st.integers(0, 2**40), min_size=1, max_size=32, unique=True).map(sorted)


def pop(
    offsets: list[int], before: OrderInfo | None = None, *, attempt: str | None = None, at: int = 0
) -> OrderInfo:
    return popped(before, offsets, attempt_id=attempt, pop_time=at, invisible_time=1_000, now=at)


@given(offset_lists, st.data())
def test_the_offset_is_that_of_the_first_message_not_acknowledged(
    offsets: list[int], data: st.DataObject
) -> None:
    info = pop(offsets)
    acked = data.draw(st.permutations(offsets))
    for done, offset in enumerate(acked, 1):
        assert info.ack(offset)
        left = [one for one in offsets if one not in acked[:done]]
        assert info.next_offset == (left[0] if left else offsets[-1] + 1)
        assert (info.blocked_until(999) is None) == (not left)
    assert not info.ack(offsets[-1] + 1)
    again = OrderInfo.decode(info.encode())
    assert again == info


def test_a_queue_is_blocked_until_a_message_is_visible_again() -> None:
    info = pop([1, 2, 3], at=5_000)
    assert info.blocked_until(5_999) == 6_000
    assert info.blocked_until(6_000) is None
    info.postpone(2, 8_000)
    assert info.blocked_until(6_000) == 8_000
    info.ack(2)
    assert info.blocked_until(6_000) is None


def test_deliveries_are_counted() -> None:
    first = pop([1, 2])
    assert first.delivered is None
    second = pop([2, 3], first)
    assert second.delivered == {2: 1}
    third = pop([2, 3], second)
    assert third.delivered == {2: 2, 3: 1}


def test_the_same_attempt_is_not_a_delivery_of_its_own() -> None:
    first = pop([1, 2], attempt="x")
    second = pop([1, 2], first, attempt="y")
    assert pop([1, 2], second, attempt="y").delivered == second.delivered == {1: 1, 2: 1}
