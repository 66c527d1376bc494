"""Types that appear in signatures: options, results, events, and what `Admin` returns."""

from pocketmq.client.consumer.consumer_event import ConsumerEvent as ConsumerEvent
from pocketmq.client.consumer.consumer_event import ConsumerEventKind as ConsumerEventKind
from pocketmq.client.consumer.dispatch.handlers import BatchHandler as BatchHandler
from pocketmq.client.consumer.dispatch.handlers import Handler as Handler
from pocketmq.client.consumer.fetch.puller import PullResult as PullResult
from pocketmq.client.consumer.fetch.puller import PullStatus as PullStatus
from pocketmq.client.offsets import Position as Position
from pocketmq.client.options import ClientOptions as ClientOptions
from pocketmq.client.producer.producer_options import ProducerOptions as ProducerOptions
from pocketmq.client.producer.result import SendStatus as SendStatus
from pocketmq.client.producer.transaction import Check as Check
from pocketmq.client.producer.transaction import LocalTransaction as LocalTransaction
from pocketmq.client.producer.transaction import Transaction as Transaction
from pocketmq.client.producer.transaction import TransactionResult as TransactionResult
from pocketmq.remoting.bodies.cluster import ClusterInfo as ClusterInfo
from pocketmq.remoting.bodies.consumer import Connection as Connection
from pocketmq.remoting.bodies.consumer import ConsumerConnection as ConsumerConnection
from pocketmq.remoting.bodies.consumer import ConsumeStats as ConsumeStats
from pocketmq.remoting.bodies.registration import TopicConfig as TopicConfig
from pocketmq.remoting.bodies.route import TopicRouteData as TopicRouteData
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo as ConsumerRunningInfo
from pocketmq.remoting.bodies.subscription_group import (
    SubscriptionGroupConfig as SubscriptionGroupConfig,
)
from pocketmq.remoting.bodies.table import BrokerStatsData as BrokerStatsData
from pocketmq.remoting.bodies.topic import TopicStatsTable as TopicStatsTable
