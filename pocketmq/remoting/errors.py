"""The errors of remoting: one tree under RemotingError.

Three kinds: a peer's error answer (one class per response code that a caller may want to tell
apart), no answer at all (connect, timeout, closed), and bytes that do not follow the protocol
(FrameError, HeaderError, BodyError, EncodeError). `RemotingTimeout` is a TimeoutError;
`RemotingConnectError` and `RemotingClosed` are ConnectionErrors. Those for an unreachable or
overloaded system are `Unavailable` as well.

A handler raises the first kind to answer with that code and remark; `error_for` makes it
from an answer. `retriable` says whether a producer may send the same message again, to another
broker if there is one.
"""

from __future__ import annotations

from typing import ClassVar

from pocketmq.remoting.codes import ResponseCode

RETRIABLE_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})
"""Response codes after which a producer tries another broker."""


class RemotingError(Exception):
    """Root of the tree.

    Attributes:
        code: the response code that names this error.
        remark: what went wrong, in words.
        broker: name or address of the peer, if known.
        retriable: whether a retry may succeed.
    """

    retriable: bool = False

    def __init__(self, code: int, remark: str | None = None, broker: str | None = None) -> None:
        # Not OSError's `__init__`, which TimeoutError and ConnectionError inherit: it takes three
        # arguments for errno, text and a file name.
        Exception.__init__(self, code, remark, broker)
        self.code = code
        self.remark = remark or ""
        self.broker = broker

    def __str__(self) -> str:
        # The official servers add the URL of a help page, on a line of its own.
        remark = " ".join(self.remark.partition("\nSee http")[0].split("\n"))
        text = f"{_name_of(self.code)}: {remark}" if remark else _name_of(self.code)
        return f"{text} [{self.broker}]" if self.broker else text


def _name_of(code: int) -> str:
    try:
        return f"{ResponseCode(code).name}({int(code)})"
    except ValueError:
        return f"code {code}"


class Unavailable(RemotingError):
    """The messaging system is unreachable, overloaded, or does not answer in time.

    Nothing is wrong with the call: the same call may succeed later. The HTTP status for it is 503.
    """


class CodedError(RemotingError):
    """An error whose class gives the code. A subclass without a code of its own inherits one."""

    default_code: ClassVar[int] = ResponseCode.SYSTEM_ERROR

    def __init__(self, remark: str | None = None, broker: str | None = None) -> None:
        super().__init__(self.default_code, remark, broker)
        self.args = (remark, broker)

    def __init_subclass__(cls, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.default_code = code
            if "retriable" not in cls.__dict__:
                cls.retriable = code in RETRIABLE_CODES


# No answer


class RemotingConnectError(
    CodedError, Unavailable, ConnectionError, code=ResponseCode.RPC_SEND_TO_CHANNEL_FAILED
):
    """No connection could be made, so the request was not sent."""

    retriable = True


class RemotingTimeout(CodedError, Unavailable, TimeoutError, code=ResponseCode.RPC_TIME_OUT):
    """No answer in time. The peer may have executed the request."""

    retriable = True


class RemotingClosed(
    CodedError, Unavailable, ConnectionError, code=ResponseCode.RPC_SEND_TO_CHANNEL_FAILED
):
    """The connection closed before the answer. The peer may have executed the request."""

    retriable = True


# Bytes that do not follow the protocol


class FrameError(CodedError):
    """The stream cannot be cut into frames; the connection must close. The text says why."""


class HeaderError(CodedError):
    """A whole frame whose header cannot be read, or lacks a mandatory field.

    Attributes:
        opaque: the request's opaque if it can be read; then the request is to be answered with
            SYSTEM_ERROR, else the connection closes.
        flag: the frame's flag if it can be read, else 0. Oneway requests and responses are
            never answered.
        serialize_type: 0 JSON or 1 ROCKETMQ: how the frame's header was written.
    """

    def __init__(
        self, remark: str, *, opaque: int | None = None, flag: int = 0, serialize_type: int = 0
    ) -> None:
        super().__init__(remark)
        self.opaque = opaque
        self.flag = flag
        self.serialize_type = serialize_type


class BodyError(CodedError):
    """A body is not what its request code calls for."""


class EncodeError(CodedError):
    """A command does not fit its serialization, e.g. a code above 32 767 in a binary header."""


# Error answers


class RemoteSystemError(CodedError, code=ResponseCode.SYSTEM_ERROR):
    """The peer failed to execute the request; its remark tells more."""


class SystemBusy(CodedError, Unavailable, code=ResponseCode.SYSTEM_BUSY):
    """Flow control: the peer refused the request to protect itself."""


class RequestCodeNotSupported(CodedError, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
    """The peer does not serve this request code."""


class FlushDiskTimeout(CodedError, Unavailable, code=ResponseCode.FLUSH_DISK_TIMEOUT):
    """Stored, but not known to be on disk."""


class SlaveNotAvailable(CodedError, Unavailable, code=ResponseCode.SLAVE_NOT_AVAILABLE):
    """Stored, but no slave could take it."""


class FlushSlaveTimeout(CodedError, Unavailable, code=ResponseCode.FLUSH_SLAVE_TIMEOUT):
    """Stored, but no slave confirmed it in time."""


class MessageIllegal(CodedError, code=ResponseCode.MESSAGE_ILLEGAL):
    """Topic, body, properties or delay are over a limit."""


class ServiceNotAvailable(CodedError, Unavailable, code=ResponseCode.SERVICE_NOT_AVAILABLE):
    """The store cannot be written: disk full, shutting down, or a slave."""


class NoPermission(CodedError, code=ResponseCode.NO_PERMISSION):
    """Broker, topic or group do not permit it."""


class TopicNotExist(CodedError, code=ResponseCode.TOPIC_NOT_EXIST):
    """The topic is unknown to the peer."""


class PullNotFound(CodedError, code=ResponseCode.PULL_NOT_FOUND):
    """Nothing at or after the offset."""


class PullRetryImmediately(CodedError, code=ResponseCode.PULL_RETRY_IMMEDIATELY):
    """There are messages, but none matched."""


class PullOffsetMoved(CodedError, code=ResponseCode.PULL_OFFSET_MOVED):
    """The offset is outside of the queue, or was reset."""


class QueryNotFound(CodedError, code=ResponseCode.QUERY_NOT_FOUND):
    """No such key-value entry, consumer offset or message."""


class SubscriptionParseFailed(CodedError, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED):
    """The subscription expression cannot be understood."""


class SubscriptionNotExist(CodedError, code=ResponseCode.SUBSCRIPTION_NOT_EXIST):
    """The group, or the topic in it, was not registered by a heartbeat."""


class SubscriptionNotLatest(CodedError, code=ResponseCode.SUBSCRIPTION_NOT_LATEST):
    """The broker has an older subscription than the request's; the next heartbeat corrects it."""


class SubscriptionGroupNotExist(CodedError, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
    """The consumer group is unknown and not created automatically."""


class FilterDataNotExist(CodedError, code=ResponseCode.FILTER_DATA_NOT_EXIST):
    """The group's compiled SQL92 filter is not registered."""


class FilterDataNotLatest(CodedError, code=ResponseCode.FILTER_DATA_NOT_LATEST):
    """The group's compiled SQL92 filter is older than the request's subscription."""


class InvalidParameter(CodedError, code=ResponseCode.INVALID_PARAMETER):
    """A field of the request is out of range or missing."""


class ConsumerNotOnline(CodedError, code=ResponseCode.CONSUMER_NOT_ONLINE):
    """No client of the group is connected."""


class ConsumeMsgTimeout(CodedError, code=ResponseCode.CONSUME_MSG_TIMEOUT):
    """A client did not answer a forwarded request in time."""


class FlowControl(CodedError, Unavailable, code=ResponseCode.FLOW_CONTROL):
    """A proxy's flow control."""


class IllegalOperation(CodedError, code=ResponseCode.ILLEGAL_OPERATION):
    """The request is not possible now: a transaction was ended too late, for example."""


class GoAway(CodedError, Unavailable, code=ResponseCode.GO_AWAY):
    """The peer is shutting down."""


_CLASSES: dict[int, type[CodedError]] = {
    cls.default_code: cls
    for cls in (
        RemoteSystemError,
        SystemBusy,
        RequestCodeNotSupported,
        FlushDiskTimeout,
        SlaveNotAvailable,
        FlushSlaveTimeout,
        MessageIllegal,
        ServiceNotAvailable,
        NoPermission,
        TopicNotExist,
        PullNotFound,
        PullRetryImmediately,
        PullOffsetMoved,
        QueryNotFound,
        SubscriptionParseFailed,
        SubscriptionNotExist,
        SubscriptionNotLatest,
        SubscriptionGroupNotExist,
        FilterDataNotExist,
        FilterDataNotLatest,
        InvalidParameter,
        ConsumerNotOnline,
        ConsumeMsgTimeout,
        FlowControl,
        IllegalOperation,
        GoAway,
    )
}


def error_for(code: int, remark: str | None = None, broker: str | None = None) -> RemotingError:
    """Return the error of an answer with `code`: of its own class if it has one, else a
    RemotingError.
    """
    cls = _CLASSES.get(code)
    if cls is not None:
        return cls(remark, broker)
    error = RemotingError(code, remark, broker)
    error.retriable = code in RETRIABLE_CODES
    return error
