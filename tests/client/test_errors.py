"""What errors tell besides their class."""

import pytest

from pocketmq.client.errors import (
    BatchSendError,
    BrokerNotFound,
    NoRouteInfo,
    NotRunning,
    RemotingError,
    SendAttempt,
    SendError,
    once_more,
)
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.errors import SystemBusy

QUEUE = MessageQueue("T", "broker-a", 3)


def test_a_batch_error_tells_what_its_cause_tells() -> None:
    busy = SystemBusy("too many", "broker-a")
    cause = SendError("T", 0.5, [SendAttempt(QUEUE, 0.5, busy)], busy)
    message = Message("T", b"x")
    error = BatchSendError(cause, [None], [message])
    assert (error.code, error.remark, error.broker) == (cause.code, "too many", "broker-a")
    assert error.tries == cause.tries
    assert error.retriable
    assert str(error) == f"1 of 1 messages not stored; {cause}"


def test_a_batch_error_without_a_route_has_no_tries() -> None:
    error = BatchSendError(NoRouteInfo("T"), [None], [Message("T", b"x")])
    assert error.tries == ()
    assert "No route info of this topic: T" in str(error)


BUSY = SystemBusy("too many", "broker-a")


@pytest.mark.parametrize(
    "error",
    [
        BUSY,
        SendError("T", 0.5, [SendAttempt(QUEUE, 0.5, BUSY)], BUSY),
        NoRouteInfo("T"),
        BrokerNotFound("broker-a"),
        NotRunning("producer"),
        RemotingError(1, "as it is", "broker-a"),
    ],
)
def test_an_error_for_somebody_else_tells_the_same(error: RemotingError) -> None:
    with pytest.raises(type(error)) as raised:
        raise error from BUSY
    other = once_more(raised.value)
    assert type(other) is type(error)
    assert (str(other), repr(other), vars(other)) == (str(error), repr(error), vars(error))
    assert other.__cause__ is BUSY
    assert other.__traceback__ is None
