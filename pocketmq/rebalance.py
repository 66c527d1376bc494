"""Strategies that divide the queues of a topic among the consumers of a group.

    PullConsumer("audit", strategy=pocketmq.rebalance.circle)

All consumers of a group need the same one. A strategy of your own is a function
`(queues, client_ids, own_client_id) -> queues`.
"""

from pocketmq.client.consumer.rebalance.strategies import ByConfig as ByConfig
from pocketmq.client.consumer.rebalance.strategies import ByMachineRoom as ByMachineRoom
from pocketmq.client.consumer.rebalance.strategies import ConsistentHash as ConsistentHash
from pocketmq.client.consumer.rebalance.strategies import NearbyMachineRoom as NearbyMachineRoom
from pocketmq.client.consumer.rebalance.strategies import Strategy as Strategy
from pocketmq.client.consumer.rebalance.strategies import average as average
from pocketmq.client.consumer.rebalance.strategies import circle as circle
