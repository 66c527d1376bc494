"""Divisions of queues, as the official client 5.3.3 makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.consumer.rebalance.strategies import (
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    NearbyMachineRoom,
    Strategy,
    average,
    circle,
)
from pocketmq.message.message import MessageQueue

STRATEGIES: dict[str, Strategy] = {
    "AVG": average,
    "AVG_BY_CIRCLE": circle,
    "CONSISTENT_HASH": ConsistentHash(),
    "MACHINE_ROOM": ByMachineRoom({"room1"}),
    "MACHINE_ROOM_NEARBY-AVG": NearbyMachineRoom(
        average,
        broker_room=lambda queue: queue.broker_name.split("@")[0],
        client_room=lambda own: "room1" if own[-2:] in ("@0", "@2") else "room3",
    ),
}

# Brokers, queues on each, clients: the number of the client that the official strategies of these
# names give each queue to, "-" for none; printed by them.
OFFICIAL = """
2 4 3 AVG 00011122
2 4 3 AVG_BY_CIRCLE 01201201
2 4 3 CONSISTENT_HASH 11112110
2 4 3 MACHINE_ROOM 0120----
2 4 3 MACHINE_ROOM_NEARBY-AVG 00220012
1 8 3 AVG 00011122
1 8 3 AVG_BY_CIRCLE 01201201
1 8 3 CONSISTENT_HASH 11111111
1 8 3 MACHINE_ROOM 00112201
1 8 3 MACHINE_ROOM_NEARBY-AVG 00002222
3 5 4 AVG 000011112222333
3 5 4 AVG_BY_CIRCLE 012301230123012
3 5 4 CONSISTENT_HASH 113133322121130
3 5 4 MACHINE_ROOM 0011223301-----
3 5 4 MACHINE_ROOM_NEARBY-AVG 000002222200123
1 2 3 AVG 01
1 2 3 AVG_BY_CIRCLE 01
1 2 3 CONSISTENT_HASH 11
1 2 3 MACHINE_ROOM 01
1 2 3 MACHINE_ROOM_NEARBY-AVG 02
"""


@pytest.mark.parametrize("line", OFFICIAL.strip().splitlines())
def test_the_division_is_the_official_one(line: str) -> None:
    *shape, name, expected = line.split()
    brokers, count, clients = map(int, shape)
    queues = sorted(
        MessageQueue("orders", f"room{1 + broker % 2}@b{broker}", queue_id)
        for broker in range(brokers)
        for queue_id in range(count)
    )
    ids = [f"10.0.0.{client}@{client}" for client in range(clients)]
    shares = [STRATEGIES[name](queues, ids, own) for own in ids]
    owners = [[str(i) for i, share in enumerate(shares) if queue in share] for queue in queues]
    assert all(len(owner) <= 1 for owner in owners)
    assert "".join(owner[0] if owner else "-" for owner in owners) == expected


@given(
    st.sampled_from(["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]),
    st.integers(0, 30),
    st.sets(st.text("abc", min_size=1, max_size=3), min_size=1),
)
def test_every_queue_has_exactly_one_reader(name: str, count: int, ids: set[str]) -> None:
    queues = [MessageQueue("T", "b", i) for i in range(count)]
    shares = [STRATEGIES[name](queues, sorted(ids), own) for own in ids]
    assert sorted(queue for share in shares for queue in share) == queues


def test_by_config_takes_what_there_is() -> None:
    queues = [MessageQueue("T", "b", i) for i in range(3)]
    wanted = [MessageQueue("T", "b", 1), MessageQueue("T", "gone", 0), MessageQueue("U", "b", 0)]
    assert ByConfig(wanted)(queues, ["x", "y"], "y") == [MessageQueue("T", "b", 1)]


def test_a_client_needs_a_place_on_the_ring() -> None:
    with pytest.raises(ValueError, match="at least one place"):
        ConsistentHash(0)
