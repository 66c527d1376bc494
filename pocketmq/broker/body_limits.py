"""How long the bodies of requests may be that are decoded as a whole, in one turn of the loop.

A frame may have 16 MiB, which messages need. A heartbeat or a list of queues of that size would
hold up all other clients while it is decoded, and most of it would be kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pocketmq.message.buffers import Buffer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response

KIB: Final = 1 << 10

#: Bytes by request code. The largest of official clients have a tenth of it.
MOST: Final[dict[int, int]] = {
    RequestCode.HEART_BEAT: 1024 * KIB,
    RequestCode.CHECK_CLIENT_CONFIG: 128 * KIB,
    RequestCode.LOCK_BATCH_MQ: 256 * KIB,
    RequestCode.UNLOCK_BATCH_MQ: 256 * KIB,
    RequestCode.BATCH_ACK_MESSAGE: 1024 * KIB,
    RequestCode.QUERY_ASSIGNMENT: 128 * KIB,
    RequestCode.SET_MESSAGE_REQUEST_MODE: 128 * KIB,
    RequestCode.UPDATE_BROKER_CONFIG: 1024 * KIB,
}


#: JSON objects, which cost more than their bytes say. A proxy names 20,000 groups in a heartbeat.
MOST_OBJECTS: Final = 25_000


def limit_bodies(dispatcher: Dispatcher) -> None:
    """Refuse longer bodies before anything decodes them, also before a guard does."""
    for code in MOST:
        if code in dispatcher.codes:
            dispatcher.wrap(code, _limited)


def excess(code: int, bodies: Iterable[Buffer]) -> str:
    """Tell what is too much in the bodies of requests that are executed in one go; empty if
    nothing is."""
    most = MOST.get(code)
    if most is None:
        return ""
    bodies = tuple(bodies)
    size = sum(map(len, bodies))
    if size > most:
        return f"the body of request {code} has {size} bytes, {most} are allowed"
    if size > MOST_OBJECTS:
        objects = sum(bytes(body).count(b"{") for body in bodies)
        if objects > MOST_OBJECTS:
            return f"the body of request {code} has {objects} objects, {MOST_OBJECTS} are allowed"
    return ""


def _limited(handler: Handler) -> Handler:
    def limited(request: Request[Any]) -> Answer:
        text = excess(request.code, (request.body,))
        return Response(ResponseCode.SYSTEM_ERROR, text) if text else handler(request)

    return limited
