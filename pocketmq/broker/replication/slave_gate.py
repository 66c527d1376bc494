"""The requests that a slave refuses, with the codes and remarks of the official slave.

Changes of topics and groups are allowed on purpose: the next copy of the master's tables reverts
them. Reference: SendMessageProcessor.rejectRequest, PullMessageProcessor.rejectRequest,
EndTransactionProcessor, RecallMessageProcessor, AdminBrokerProcessor.resetOffset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response

_REJECTED: Final = (
    ResponseCode.SYSTEM_BUSY,
    "[REJECTREQUEST]system busy, start flow control for a while",
)
_MASTER_ONLY: Final = (ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: ask the master")
_NO_RESET: Final = (ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")

REFUSALS: Final = {
    RequestCode.SEND_MESSAGE: _REJECTED,
    RequestCode.SEND_MESSAGE_V2: _REJECTED,
    RequestCode.SEND_BATCH_MESSAGE: _REJECTED,
    RequestCode.CONSUMER_SEND_MSG_BACK: _REJECTED,
    RequestCode.END_TRANSACTION: _MASTER_ONLY,
    RequestCode.RECALL_MESSAGE: _MASTER_ONLY,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _NO_RESET,
    # The official slave does not refuse these, but fails to store their checkpoints and
    # acknowledgements.
    RequestCode.POP_MESSAGE: _REJECTED,
    RequestCode.ACK_MESSAGE: _REJECTED,
    RequestCode.BATCH_ACK_MESSAGE: _REJECTED,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _REJECTED,
    RequestCode.NOTIFICATION: _REJECTED,
}
READS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


def guard(
    dispatcher: Dispatcher, config: BrokerConfig, shows_unconfirmed: Callable[[], bool]
) -> None:
    """Make this dispatcher refuse these requests while the broker is a slave, and pulls while it
    `shows_unconfirmed` messages. Call this after all codes are registered; it is not needed for a
    broker that is never a slave."""

    def is_slave() -> bool:
        return config.is_slave

    def is_closed() -> bool:
        return config.is_slave and (not config.slave_read_enable or shows_unconfirmed())

    for code, refusal in REFUSALS.items():
        if code in dispatcher.codes:
            dispatcher.wrap(code, _wrapper(refusal, is_slave))
    for code in READS:
        if code in dispatcher.codes:
            dispatcher.wrap(code, _wrapper(_REJECTED, is_closed))


def _wrapper(refusal: tuple[int, str], refuses: Callable[[], bool]) -> Callable[[Handler], Handler]:
    def wrap(handler: Handler) -> Handler:
        def guarded(request: Request[Any]) -> Answer:
            return Response(*refusal) if refuses() else handler(request)

        return guarded

    return wrap
