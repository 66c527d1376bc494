"""How a producer chooses the queue of a message.

`by_hash` and `by_consistent_hash` give a key its queue (`queue_selector=` of a producer);
a `QueueFilter` limits the queues that messages without a key go to (`filters=`).
"""

from pocketmq.client.producer.queue_choice import Selector as Selector
from pocketmq.client.producer.queue_choice import ShardingKey as ShardingKey
from pocketmq.client.producer.queue_choice import by_consistent_hash as by_consistent_hash
from pocketmq.client.producer.queue_choice import by_hash as by_hash
from pocketmq.client.selector.filters import QueueFilter as QueueFilter
from pocketmq.client.selector.penalty import Selection as Selection
