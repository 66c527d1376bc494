"""Types that appear in signatures: options, results, events, and what `Admin` returns."""

from __future__ import annotations

from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
from pocketmq.client.consumer.consumer_options import ShareCallback
from pocketmq.client.consumer.dispatch.handlers import BatchHandler, Handler
from pocketmq.client.consumer.fetch.puller import PullResult, PullStatus
from pocketmq.client.offsets import Position
from pocketmq.client.options import ClientOptions
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.transaction import (
    Check,
    LocalTransaction,
    Transaction,
    TransactionResult,
)
from pocketmq.client.send_result import SendStatus
from pocketmq.remoting.bodies.cluster import ClusterInfo
from pocketmq.remoting.bodies.consumer import Connection, ConsumerConnection, ConsumeStats
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.bodies.table import BrokerStatsData
from pocketmq.remoting.bodies.topic import TopicStatsTable

__all__ = [
    "BatchHandler",
    "BrokerStatsData",
    "Check",
    "ClientOptions",
    "ClusterInfo",
    "Connection",
    "ConsumeStats",
    "ConsumerConnection",
    "ConsumerEvent",
    "ConsumerEventKind",
    "ConsumerRunningInfo",
    "Handler",
    "LocalTransaction",
    "Position",
    "ProducerOptions",
    "PullResult",
    "PullStatus",
    "SendStatus",
    "ShareCallback",
    "SubscriptionGroupConfig",
    "TopicConfig",
    "TopicRouteData",
    "TopicStatsTable",
    "Transaction",
    "TransactionResult",
]
