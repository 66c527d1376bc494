"""Strategies that divide the queues of a topic among the consumers of a group.

    PushConsumer("billing", strategy=pocketmq.rebalance.circle)

All consumers of a group need the same strategy. A custom strategy is a function
`(queues, client_ids, own_client_id) -> queues`.
"""

from __future__ import annotations

from pocketmq.client.consumer.rebalance.strategies import (
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    NearbyMachineRoom,
    Strategy,
    average,
    circle,
)

__all__ = [
    "ByConfig",
    "ByMachineRoom",
    "ConsistentHash",
    "NearbyMachineRoom",
    "Strategy",
    "average",
    "circle",
]
