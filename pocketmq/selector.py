"""How a producer chooses the queue of a message.

`by_hash` and `by_consistent_hash` give a key its queue (`queue_selector=` of a producer);
a `QueueFilter` limits the queues that messages without a key go to (`filters=`). `BrokerState` and
`Switches` are what `producer.brokers` and `producer.switches` show.
"""

from __future__ import annotations

from pocketmq.client.producer.queue_choice import Selector, ShardingKey, by_consistent_hash, by_hash
from pocketmq.client.selector.filters import QueueFilter
from pocketmq.client.selector.latency import BrokerState
from pocketmq.client.selector.penalty import Selection
from pocketmq.client.selector.switches import Switches

__all__ = [
    "BrokerState",
    "QueueFilter",
    "Selection",
    "Selector",
    "ShardingKey",
    "Switches",
    "by_consistent_hash",
    "by_hash",
]
