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
    from client import errors
    from client.admin import Admin
    from client.consumer.consume_hooks import ConsumeContext, ConsumeHook
    from client.consumer.consumed_message import ConsumedMessage, ReconsumeLater
    from client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
    from client.consumer.pull import PullConsumer
    from client.consumer.puller import PullResult, PullStatus
    from client.consumer.push import PushConsumer
    from client.consumer.rebalance_strategy import (
        ByConfig,
        ByMachineRoom,
        ConsistentHash,
        NearbyMachineRoom,
        average,
        circle,
    )
    from client.credentials import Credentials
    from client.errors import (
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
        SendError,
        ServiceNotAvailable,
        SubscriptionGroupNotExist,
        SubscriptionParseFailed,
        SystemBusy,
        TopicNotExist,
        TransactionNotPrepared,
        Try,
    )
    from client.options import ClientOptions
    from client.producer.hooks import SendContext, SendHook, SendKind
    from client.producer.producer import Producer
    from client.producer.result import SendResult, SendStatus
    from client.producer.transaction import (
        Transaction,
        TransactionProducer,
        TransactionResult,
        TransactionState,
    )
    from client.selector.filters import QueueFilter
    from client.telemetry import OpenTelemetryHook, consumer_span
    from message.message import Message, MessageExt, MessageQueue
    from store.datasource import RocketMQDataSource

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
    "Try",
    "__version__",
    "average",
    "circle",
    "consumer_span",
    "errors",
]

_MODULES = {
    "client.admin": ("Admin",),
    "client.consumer.consume_hooks": (
        "ConsumeContext",
        "ConsumeHook",
    ),
    "client.consumer.consumed_message": (
        "ConsumedMessage",
        "ReconsumeLater",
    ),
    "client.consumer.consumer_event": (
        "ConsumerEvent",
        "ConsumerEventKind",
    ),
    "client.consumer.pull": ("PullConsumer",),
    "client.consumer.puller": (
        "PullResult",
        "PullStatus",
    ),
    "client.consumer.push": ("PushConsumer",),
    "client.consumer.rebalance_strategy": (
        "ByConfig",
        "ByMachineRoom",
        "ConsistentHash",
        "NearbyMachineRoom",
        "average",
        "circle",
    ),
    "client.credentials": ("Credentials",),
    "client.options": ("ClientOptions",),
    "client.errors": (
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
        "Try",
    ),
    "client.producer.hooks": (
        "SendContext",
        "SendHook",
        "SendKind",
    ),
    "client.producer.producer": ("Producer",),
    "client.producer.result": (
        "SendResult",
        "SendStatus",
    ),
    "client.producer.transaction": (
        "Transaction",
        "TransactionProducer",
        "TransactionResult",
        "TransactionState",
    ),
    "client.selector.filters": ("QueueFilter",),
    "client.telemetry": (
        "OpenTelemetryHook",
        "consumer_span",
    ),
    "message.message": (
        "Message",
        "MessageExt",
        "MessageQueue",
    ),
    "store.datasource": ("RocketMQDataSource",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("client.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pocketmq' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
