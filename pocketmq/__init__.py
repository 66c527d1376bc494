"""pocketmq: RocketMQ in Python.

    from pocketmq import Message, Producer, PullConsumer

    async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
        await producer.send(Message("orders", b"..."))

Names are loaded when they are first used, so that a process pays for what it uses: a broker loads
no client, and only `RocketMQDataSource` loads PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pocketmq._version import __version__

if TYPE_CHECKING:
    from pocketmq.client import errors
    from pocketmq.client.admin import Admin
    from pocketmq.client.consumer.consume_hooks import ConsumeContext, ConsumeHook
    from pocketmq.client.consumer.consumed_message import ConsumedMessage, ReconsumeLater
    from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
    from pocketmq.client.consumer.fetch.puller import PullResult, PullStatus
    from pocketmq.client.consumer.pull import PullConsumer
    from pocketmq.client.consumer.push import PushConsumer
    from pocketmq.client.consumer.rebalance.strategies import (
        ByConfig,
        ByMachineRoom,
        ConsistentHash,
        NearbyMachineRoom,
        average,
        circle,
    )
    from pocketmq.client.credentials import Credentials
    from pocketmq.client.errors import (
        BatchSendError,
        BrokerNotFound,
        ClientError,
        ClientErrorCode,
        ConsumerNotOnline,
        FlowControl,
        InvalidMessage,
        InvalidName,
        InvalidParameter,
        MessageIllegal,
        NoNameServer,
        NoPermission,
        NoRouteInfo,
        NotRunning,
        QueryNotFound,
        RemoteSystemError,
        RemotingClosed,
        RemotingConnectError,
        RemotingError,
        RemotingTimeout,
        RequestCodeNotSupported,
        RequestTimeout,
        SendAttempt,
        SendError,
        ServiceNotAvailable,
        SubscriptionGroupNotExist,
        SubscriptionParseFailed,
        SystemBusy,
        TopicNotExist,
        TransactionNotPrepared,
    )
    from pocketmq.client.options import ClientOptions
    from pocketmq.client.producer.hooks import SendContext, SendHook, SendKind
    from pocketmq.client.producer.producer import Producer
    from pocketmq.client.producer.result import SendResult, SendStatus
    from pocketmq.client.producer.transaction import (
        Transaction,
        TransactionProducer,
        TransactionResult,
        TransactionState,
    )
    from pocketmq.client.selector.filters import QueueFilter
    from pocketmq.client.telemetry import OpenTelemetryHook, consumer_span
    from pocketmq.message.message import Message, MessageExt, MessageQueue
    from pocketmq.store.datasource import RocketMQDataSource

__all__ = [
    "Admin",
    "BatchSendError",
    "BrokerNotFound",
    "ByConfig",
    "ByMachineRoom",
    "ClientError",
    "ClientErrorCode",
    "ClientOptions",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumedMessage",
    "ConsumerEvent",
    "ConsumerEventKind",
    "ConsumerNotOnline",
    "Credentials",
    "FlowControl",
    "InvalidMessage",
    "InvalidName",
    "InvalidParameter",
    "Message",
    "MessageExt",
    "MessageIllegal",
    "MessageQueue",
    "NearbyMachineRoom",
    "NoNameServer",
    "NoPermission",
    "NoRouteInfo",
    "NotRunning",
    "OpenTelemetryHook",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueryNotFound",
    "QueueFilter",
    "ReconsumeLater",
    "RemoteSystemError",
    "RemotingClosed",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeout",
    "RequestCodeNotSupported",
    "RequestTimeout",
    "RocketMQDataSource",
    "SendAttempt",
    "SendContext",
    "SendError",
    "SendHook",
    "SendKind",
    "SendResult",
    "SendStatus",
    "ServiceNotAvailable",
    "SubscriptionGroupNotExist",
    "SubscriptionParseFailed",
    "SystemBusy",
    "TopicNotExist",
    "Transaction",
    "TransactionNotPrepared",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "__version__",
    "average",
    "circle",
    "consumer_span",
    "errors",
]

_MODULES = {
    "pocketmq.client.admin": ("Admin",),
    "pocketmq.client.consumer.consume_hooks": (
        "ConsumeContext",
        "ConsumeHook",
    ),
    "pocketmq.client.consumer.consumed_message": (
        "ConsumedMessage",
        "ReconsumeLater",
    ),
    "pocketmq.client.consumer.consumer_event": (
        "ConsumerEvent",
        "ConsumerEventKind",
    ),
    "pocketmq.client.consumer.pull": ("PullConsumer",),
    "pocketmq.client.consumer.fetch.puller": (
        "PullResult",
        "PullStatus",
    ),
    "pocketmq.client.consumer.push": ("PushConsumer",),
    "pocketmq.client.consumer.rebalance.strategies": (
        "ByConfig",
        "ByMachineRoom",
        "ConsistentHash",
        "NearbyMachineRoom",
        "average",
        "circle",
    ),
    "pocketmq.client.credentials": ("Credentials",),
    "pocketmq.client.options": ("ClientOptions",),
    "pocketmq.client.errors": (
        "BatchSendError",
        "BrokerNotFound",
        "ClientError",
        "ClientErrorCode",
        "ConsumerNotOnline",
        "FlowControl",
        "InvalidMessage",
        "InvalidName",
        "InvalidParameter",
        "MessageIllegal",
        "NoNameServer",
        "NoPermission",
        "NoRouteInfo",
        "NotRunning",
        "QueryNotFound",
        "RemoteSystemError",
        "RemotingClosed",
        "RemotingConnectError",
        "RemotingError",
        "RemotingTimeout",
        "RequestCodeNotSupported",
        "RequestTimeout",
        "SendError",
        "ServiceNotAvailable",
        "SubscriptionGroupNotExist",
        "SubscriptionParseFailed",
        "SystemBusy",
        "TopicNotExist",
        "TransactionNotPrepared",
        "SendAttempt",
    ),
    "pocketmq.client.producer.hooks": (
        "SendContext",
        "SendHook",
        "SendKind",
    ),
    "pocketmq.client.producer.producer": ("Producer",),
    "pocketmq.client.producer.result": (
        "SendResult",
        "SendStatus",
    ),
    "pocketmq.client.producer.transaction": (
        "Transaction",
        "TransactionProducer",
        "TransactionResult",
        "TransactionState",
    ),
    "pocketmq.client.selector.filters": ("QueueFilter",),
    "pocketmq.client.telemetry": (
        "OpenTelemetryHook",
        "consumer_span",
    ),
    "pocketmq.message.message": (
        "Message",
        "MessageExt",
        "MessageQueue",
    ),
    "pocketmq.store.datasource": ("RocketMQDataSource",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("pocketmq.client.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pocketmq' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
