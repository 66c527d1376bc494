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
    from client.consumer.pull import PullConsumer
    from client.consumer.puller import PullResult, PullStatus
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
        SendError,
        ServiceNotAvailable,
        SubscriptionGroupNotExist,
        SubscriptionParseFailed,
        SystemBusy,
        TopicNotExist,
        Try,
    )
    from client.producer.producer import Producer
    from client.producer.result import SendResult, SendStatus
    from client.selector.filters import QueueFilter
    from message.message import Message, MessageExt, MessageQueue
    from store.datasource import RocketMQDataSource

__all__ = [
    "Admin",
    "BatchSendError",
    "BrokerNotFound",
    "ClientError",
    "ClientErrorCode",
    "ConsumerNotOnline",
    "FlowControl",
    "InvalidMessage",
    "InvalidName",
    "InvalidParameter",
    "Message",
    "MessageExt",
    "MessageIllegal",
    "MessageQueue",
    "NoNameServer",
    "NoPermission",
    "NoRouteInfo",
    "NotRunning",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "QueryNotFound",
    "QueueFilter",
    "RemoteSystemError",
    "RemotingClosed",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeout",
    "RequestCodeNotSupported",
    "RocketMQDataSource",
    "SendError",
    "SendResult",
    "SendStatus",
    "ServiceNotAvailable",
    "SubscriptionGroupNotExist",
    "SubscriptionParseFailed",
    "SystemBusy",
    "TopicNotExist",
    "Try",
    "__version__",
    "errors",
]

_MODULES = {
    "client.admin": ("Admin",),
    "client.consumer.pull": ("PullConsumer",),
    "client.consumer.puller": (
        "PullResult",
        "PullStatus",
    ),
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
        "SendError",
        "ServiceNotAvailable",
        "SubscriptionGroupNotExist",
        "SubscriptionParseFailed",
        "SystemBusy",
        "TopicNotExist",
        "Try",
    ),
    "client.producer.producer": ("Producer",),
    "client.producer.result": (
        "SendResult",
        "SendStatus",
    ),
    "client.selector.filters": ("QueueFilter",),
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
