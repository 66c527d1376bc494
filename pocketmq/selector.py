"""How a producer chooses the queue of a message.

`by_hash` and `by_consistent_hash` give a key its queue (`queue_selector=` of a producer);
a `QueueFilter` limits the queues that messages without a key go to (`filters=`).
"""

from pocketmq.client.producer.queue_choice import Selector, ShardingKey, by_consistent_hash, by_hash
from pocketmq.client.selector.filters import QueueFilter
from pocketmq.client.selector.penalty import Selection

__all__ = [
    "QueueFilter",
    "Selection",
    "Selector",
    "ShardingKey",
    "by_consistent_hash",
    "by_hash",
]
