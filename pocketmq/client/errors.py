"""The errors of the clients: one tree under RemotingError, in three kinds.

| kind | class | what to do |
|---|---|---|
| the messaging system is unreachable or overloaded | Unavailable | try again later; answer 503 |
| the call itself is wrong; nothing was stored | UsageError | fix the program |
| a server refused the request, or no reply came | all others | check `code` and `remark` |

| error | kind | when |
|---|---|---|
| InvalidMessage, InvalidName | UsageError | an argument breaks a rule of the protocol |
| NotRunning | UsageError | before `start` or after `shutdown` |
| NoNameServer | Unavailable | no name server address was given, or none of them answered |
| NoRouteInfo | – | the name server has no route of the topic, and none can be created |
| RouteUnavailable | Unavailable | a NoRouteInfo: no name server answered, or no master is up |
| BrokerNotFound | Unavailable | no route has an address of that broker |
| SendFailed | – | base of SendError and BatchSendError |
| SendError | – | a send failed for good; `tries`: all attempts, `__cause__`: the last error |
| SendUnavailable | Unavailable | a SendError whose last attempt failed because of an outage |
| SendTimeout | Unavailable | a SendUnavailable whose `timeout` passed; also a TimeoutError |
| MessageRefused | UsageError | a SendError and InvalidMessage: a broker found the message illegal |
| RequesterGone | – | a SendError: no broker is connected to the client that awaits the reply |
| BatchSendError | – | parts of a batch failed; `results`: what was stored, `tries` as above |
| BatchSendUnavailable | Unavailable | a BatchSendError whose first error is Unavailable |
| RequestTimeout | – | a request was stored, and no reply came in time; also a TimeoutError |
| TransactionNotPrepared | – | a half message was stored, but not flushed or replicated in time |
| TopicNotExist, NoPermission, … | – | a server's error answer, one class per code |
| SystemBusy, GoAway, … | Unavailable | the same, if the server is overloaded or stopping |
| RemotingConnectError, RemotingClosed | Unavailable | no connection, or it was lost |
| RemotingTimeout | Unavailable | no answer in time; also a TimeoutError |

Every error has `code` (a response code, or a ClientErrorCode), `remark`, `broker` and `retriable`:
whether a retry may succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import Code, RequestCode, ResponseCode
from pocketmq.remoting.errors import (
    BodyError,
    ConsumeMsgTimeout,
    ConsumerNotOnline,
    EncodeError,
    FilterDataNotExist,
    FilterDataNotLatest,
    FlowControl,
    FlushDiskTimeout,
    FlushSlaveTimeout,
    GoAway,
    IllegalOperation,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    PullNotFound,
    PullOffsetMoved,
    PullRetryImmediately,
    QueryNotFound,
    RemoteSystemError,
    RemotingClosed,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    RequestCodeNotSupported,
    ServiceNotAvailable,
    SlaveNotAvailable,
    SubscriptionGroupNotExist,
    SubscriptionNotExist,
    SubscriptionNotLatest,
    SubscriptionParseFailed,
    SystemBusy,
    TopicNotExist,
    Unavailable,
)
from pocketmq.remoting.errors import error_for as error_of_code

if TYPE_CHECKING:
    from pocketmq.client.send_result import SendResult

__all__ = [
    "BatchSendError",
    "BatchSendUnavailable",
    "BodyError",
    "BrokerNotFound",
    "ClientError",
    "ClientErrorCode",
    "ConsumeMsgTimeout",
    "ConsumerNotOnline",
    "EncodeError",
    "FilterDataNotExist",
    "FilterDataNotLatest",
    "FlowControl",
    "FlushDiskTimeout",
    "FlushSlaveTimeout",
    "GoAway",
    "IllegalOperation",
    "InvalidMessage",
    "InvalidName",
    "InvalidParameter",
    "MessageIllegal",
    "MessageRefused",
    "NoNameServer",
    "NoPermission",
    "NoRouteInfo",
    "NotRunning",
    "PullNotFound",
    "PullOffsetMoved",
    "PullRetryImmediately",
    "QueryNotFound",
    "RemoteSystemError",
    "RemotingClosed",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeout",
    "RequestCodeNotSupported",
    "RequestTimeout",
    "RequesterGone",
    "RouteUnavailable",
    "SendAttempt",
    "SendError",
    "SendFailed",
    "SendTimeout",
    "SendUnavailable",
    "ServiceNotAvailable",
    "SlaveNotAvailable",
    "SubscriptionGroupNotExist",
    "SubscriptionNotExist",
    "SubscriptionNotLatest",
    "SubscriptionParseFailed",
    "SystemBusy",
    "TopicNotExist",
    "TransactionNotPrepared",
    "Unavailable",
    "UsageError",
    "error_for",
    "is_silence",
    "lacks_queue",
    "may_be_slave",
    "refused_at_door",
    "unanswered",
]


class ClientErrorCode(Code):
    """Codes of errors that do not come from a server; the reference's numbers."""

    CONNECT_BROKER = 10001
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST = 10003
    NO_NAME_SERVER = 10004
    NOT_FOUND_TOPIC = 10005
    REQUEST_TIMEOUT = 10006


class ClientError(RemotingError):
    """An error that the client detected itself."""

    def __str__(self) -> str:
        return self.remark


class UsageError(ClientError):
    """The call itself is wrong, and nothing was stored: a mistake in the program."""


class InvalidMessage(UsageError, ValueError):
    """The message breaks a rule of the protocol (topic, body, properties, batch)."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.MESSAGE_ILLEGAL, remark)


class InvalidName(UsageError, ValueError):
    """A topic, group or address is malformed."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.INVALID_PARAMETER, remark)


#: Reasons why a client is not running.
NOT_STARTED = "call start() first, or use it in `async with`"
SHUT_DOWN = "it was shut down and cannot be started again; make a new one"
OTHER_LOOP = "it runs in another event loop; use it there, or make one in this loop"
FORKED = "this process was forked after the start; make a new one in the child process"


class NotRunning(UsageError, RuntimeError):
    """The client was not started, or is shut down; `why` gives the reason and what to do."""

    def __init__(self, what: str, why: str = "") -> None:
        # A repr such as PushConsumer('billing') needs no article.
        named = what if "(" in what else f"the {what}"
        super().__init__(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"{named} is not running" + (f": {why}" if why else ""),
        )


class NoNameServer(ClientError, Unavailable):
    """No name server address is known, or no name server answered."""

    retriable = True

    def __init__(self, remark: str, *, retriable: bool = True) -> None:
        super().__init__(ClientErrorCode.NO_NAME_SERVER, remark)
        self.retriable = retriable


class NoRouteInfo(ClientError):
    """The topic has no route with queues that this call could use."""

    retriable = True

    def __init__(self, topic: str, why: str = "", *, exists: bool = False) -> None:
        what = (
            f"topic {topic} has no queue to send to"
            if exists
            else f"No route info of this topic: {topic}"
        )
        super().__init__(ClientErrorCode.NOT_FOUND_TOPIC, what + (f" ({why})" if why else ""))
        self.topic = topic


class RouteUnavailable(NoRouteInfo, Unavailable):
    """The topic has no route now: no name server answers, or none of its brokers has a master."""


class BrokerNotFound(ClientError, Unavailable):
    """No route has an address of the broker, or of any suitable broker if `broker_name` is
    empty."""

    retriable = True

    def __init__(self, broker_name: str = "", remark: str = "") -> None:
        super().__init__(
            ClientErrorCode.BROKER_NOT_EXIST,
            remark or f"no address of broker {broker_name!r} in the routes",
            broker_name,
        )


#: The remark of servers that need a signature, for a request without one.
NO_USER = "username cannot be null"

#: How many different failures the text of a SendError lists.
FAILURES_TOLD = 4


class SendAttempt(NamedTuple):
    """One attempt of a send: its queue, how long it took (seconds), and how it failed."""

    queue: MessageQueue
    elapsed: float
    error: RemotingError


class SendFailed(ClientError):
    """Messages were not stored, or it is unknown whether they were.

    `tries` has all attempts.
    """

    tries: tuple[SendAttempt, ...]


class SendError(SendFailed):
    """A send failed. `tries` has all attempts: none if the timeout passed before the first.

    `code`, `remark`, `broker` and `retriable` are those of the last attempt.

    If an attempt ended without an answer, the message may have been stored nevertheless.
    """

    def __init__(
        self, topic: str, elapsed: float, tries: Sequence[SendAttempt], last: RemotingError
    ):
        broker = tries[-1].queue.broker_name if tries else None
        RemotingError.__init__(self, last.code, last.remark, broker)
        self.topic = topic
        self.elapsed = elapsed
        self.tries = tuple(tries)
        self.retriable = last.retriable

    def __str__(self) -> str:
        # In an outage the same failure repeats: list each text once.
        failures: dict[str, list[SendAttempt]] = {}
        for tried in self.tries:
            text = f"{tried.queue.broker_name}: {tried.error}"
            failures[text] = [*failures.pop(text, ()), tried]
        told = "; ".join(
            f"{text} ({len(tries)} times)" if len(tries) > 1 else text
            for text, tries in list(failures.items())[-FAILURES_TOLD:]
        )
        if not self.tries:
            told = self.remark
        attempts = "1 attempt" if len(self.tries) == 1 else f"{len(self.tries)} attempts"
        return f"send to topic {self.topic} failed after {attempts} in {self.elapsed:.3f} s: {told}"


class SendUnavailable(SendError, Unavailable):
    """A send failed because brokers are unreachable, overloaded, or do not answer."""


class SendTimeout(SendUnavailable, TimeoutError):
    """No broker accepted the message within the `timeout` of the send.

    `tries` has all attempts, as in every SendError.
    """


class MessageRefused(SendError, InvalidMessage):
    """A broker refused the message as illegal, so it was not stored.

    It breaks a rule that only the broker knows: its delay is above `timerMaxDelaySec`, for example.
    """


class RequesterGone(SendError):
    """A reply could not be delivered: no broker is connected to the client that sent the request.

    That client was shut down, or its process ended. Sending the reply again does not help.
    """


class BatchSendError(SendFailed):
    """Some messages of a `send_batch` were not stored.

    `results` has an element for each message given: a SendResult, or None if that message's batch
    failed. `failed` lists those messages. `code`, `remark`, `broker`, `tries`, `retriable` and
    `__cause__` are those of the first error: a SendError, or an error without tries if no route was
    found.
    """

    def __init__(
        self,
        first: RemotingError,
        results: Sequence[SendResult | None],
        failed: Sequence[Message],
    ) -> None:
        super().__init__(first.code, first.remark, first.broker)
        self.retriable = first.retriable
        self.tries = first.tries if isinstance(first, SendFailed) else ()
        self._why = str(first)
        self.results = list(results)
        self.failed = list(failed)

    def __str__(self) -> str:
        return f"{len(self.failed)} of {len(self.results)} messages not stored; {self._why}"


class BatchSendUnavailable(BatchSendError, Unavailable):
    """Some messages of a `send_batch` were not stored because brokers are unavailable."""


class RequestTimeout(ClientError, TimeoutError):
    """No reply to a request came within its timeout; the request itself was stored."""

    retriable = True

    def __init__(self, topic: str, timeout: float) -> None:
        super().__init__(
            ClientErrorCode.REQUEST_TIMEOUT,
            f"the request to topic {topic} was stored, but no reply came within {timeout:.3f} s",
        )
        self.topic = topic


class TransactionNotPrepared(ClientError):
    """The half message was stored, but not flushed or replicated in time. It was rolled back, and
    the local transaction was not started. `result` has the status."""

    retriable = True

    def __init__(self, result: SendResult) -> None:
        super().__init__(
            result.status,
            f"the half message {result.msg_id} was rolled back: {result.status.name}",
            result.queue.broker_name,
        )
        self.result = result


def send_error(
    topic: str, elapsed: float, tries: Sequence[SendAttempt], last: RemotingError
) -> SendError:
    """Return the error of a send whose last attempt failed with `last`."""
    kind = SendError
    if isinstance(last, Unavailable):
        kind = SendUnavailable
    elif isinstance(last, MessageIllegal):
        kind = MessageRefused
    return kind(topic, elapsed, tries, last)


def batch_send_error(
    first: RemotingError, results: Sequence[SendResult | None], failed: Sequence[Message]
) -> BatchSendError:
    """Return the error of a batch whose first failure is `first`."""
    kind = BatchSendUnavailable if isinstance(first, Unavailable) else BatchSendError
    return kind(first, results, failed)


def error_for(code: int, remark: str | None = None, broker: str | None = None) -> RemotingError:
    """Return the error of an answer with `code`: its own class if it has one, else RemotingError.
    If the server's text does not say what to do, the error adds it."""
    if code == ResponseCode.NO_PERMISSION and remark and NO_USER in remark:
        remark = f"{remark} The client has no credentials: pass credentials=Credentials(...)"
    return error_of_code(code, remark, broker)


def once_more(error: RemotingError) -> RemotingError:
    """Copy an error for another caller: the traceback of a shared one would keep alive the frames
    of every caller that raised it."""
    own: RemotingError = type(error).__new__(type(error), *error.args)
    own.args = error.args  # subclasses of OSError lose them
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own


def unanswered(error: RemotingTimeout, server: str, code: RequestCode, timeout: float) -> Exception:
    """Return an error for a request without an answer that names the server and the request."""
    text = f"{server} did not answer {code.name} within {timeout:.3g} s"
    return RemotingTimeout(text, error.broker)


def is_silence(error: BaseException) -> bool:
    """Return whether the error means that no answer came, as opposed to an error answer."""
    return isinstance(error, RemotingConnectError | RemotingTimeout | RemotingClosed)


def refused_at_door(error: RemotingError) -> bool:
    """Return whether a broker rejected a request before processing it, as a slave does with sends.
    A master of the reference does so too while its page cache is busy."""
    return error.code == ResponseCode.SYSTEM_BUSY and error.remark.startswith("[REJECTREQUEST]")


def may_be_slave(error: RemotingError) -> bool:
    """Return whether a broker may have refused because it is no longer the master of its group:
    then the route is out of date. A slave that may act as master, and a broker whose role is
    changing, answer SERVICE_NOT_AVAILABLE."""
    return refused_at_door(error) or error.code in (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )


def lacks_queue(error: RemotingError) -> bool:
    """Return whether a broker refused a send because the topic does not have that queue: then the
    route is out of date. A master that was a slave a moment ago knows only those queues of a new
    topic that have messages. Brokers of 5.x answer INVALID_PARAMETER, those of 4.x SYSTEM_ERROR."""
    return error.remark.startswith("request queueId[")
