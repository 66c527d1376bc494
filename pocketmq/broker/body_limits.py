"""How long the bodies of requests may be that are decoded as a whole, in one turn of the loop.

A frame may have 16 MiB, which messages need. A heartbeat or a list of queues of that size would
hold up all other clients while it is decoded, and most of it would be kept.
"""

from __future__ import annotations

from typing import Any, Final

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response

KIB: Final = 1 << 10

#: Bytes by request code. The largest of official clients have a tenth of it.
MOST: Final = {
    RequestCode.HEART_BEAT: 2048 * KIB,
    RequestCode.CHECK_CLIENT_CONFIG: 128 * KIB,
    RequestCode.LOCK_BATCH_MQ: 256 * KIB,
    RequestCode.UNLOCK_BATCH_MQ: 256 * KIB,
    RequestCode.BATCH_ACK_MESSAGE: 1024 * KIB,
    RequestCode.QUERY_ASSIGNMENT: 128 * KIB,
    RequestCode.SET_MESSAGE_REQUEST_MODE: 128 * KIB,
    RequestCode.UPDATE_BROKER_CONFIG: 1024 * KIB,
}


def limit_bodies(dispatcher: Dispatcher) -> None:
    """Refuse longer bodies before anything decodes them, also before a guard does."""
    for code, most in MOST.items():
        if code in dispatcher.codes:
            dispatcher.wrap(code, _Limit(most))


class _Limit:
    def __init__(self, most: int) -> None:
        self._most = most

    def __call__(self, handler: Handler) -> Handler:
        most = self._most

        def limited(request: Request[Any]) -> Answer:
            size = len(request.body)
            if size > most:
                text = f"the body of request {request.code} has {size} bytes, {most} are allowed"
                return Response(ResponseCode.SYSTEM_ERROR, text)
            return handler(request)

        return limited
