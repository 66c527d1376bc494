"""Size limits for request bodies that are decoded in one turn of the event loop.

A frame may have 16 MiB, for messages. Decoding a heartbeat or a list of queues of that size would
delay all other clients, and most of it would stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from pocketmq.message import loose_json
from pocketmq.message.buffers import Buffer
from pocketmq.message.fastjson_text import has_reference
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response

KIB: Final = 1 << 10

#: Bytes by request code. The largest bodies of official clients have a tenth of it.
MOST: Final[dict[int, int]] = {
    RequestCode.HEART_BEAT: 1024 * KIB,
    RequestCode.CHECK_CLIENT_CONFIG: 128 * KIB,
    RequestCode.LOCK_BATCH_MQ: 256 * KIB,
    RequestCode.UNLOCK_BATCH_MQ: 256 * KIB,
    RequestCode.BATCH_ACK_MESSAGE: 1024 * KIB,
    RequestCode.QUERY_ASSIGNMENT: 128 * KIB,
    RequestCode.SET_MESSAGE_REQUEST_MODE: 128 * KIB,
    RequestCode.UPDATE_BROKER_CONFIG: 256 * KIB,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: 1024 * KIB,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: 256 * KIB,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: 1024 * KIB,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: 1024 * KIB,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: 1024 * KIB,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: 64 * KIB,
    RequestCode.AUTH_CREATE_USER: 64 * KIB,
    RequestCode.AUTH_UPDATE_USER: 64 * KIB,
    RequestCode.AUTH_CREATE_ACL: 1024 * KIB,
    RequestCode.AUTH_UPDATE_ACL: 1024 * KIB,
    RequestCode.QUERY_DATA_VERSION: 64 * KIB,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: 1024 * KIB,
}


#: Bytes that may be spelt as fastjson also reads them: that takes a hundred times as long. No
#: official client writes a request like that: fastjson's bare keys are in answers and in requests
#: of servers, which are not limited.
MOST_UNUSUAL: Final = loose_json.MAX_LENGTH

#: JSON objects, which take more memory than their text. A proxy's heartbeat has 20,000 groups.
MOST_OBJECTS: Final = 25_000

#: Commas and lists, which bound the values. The largest heartbeat that Java writes with usual
#: subscriptions has 55,000.
MOST_VALUES: Final = 60_000

#: The same for requests whose objects are much work each.
MOST_LABORIOUS: Final[dict[int, int]] = {
    RequestCode.BATCH_ACK_MESSAGE: 600,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: 6_000,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: 15_000,
}


#: The same for lists of names, each of which is much work.
MOST_NAMES: Final[dict[int, int]] = {
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: 1_000,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: 1_000,
}


def limit_bodies(dispatcher: Dispatcher) -> None:
    """Refuse longer bodies before anything decodes them, including authentication."""
    for code in MOST:
        if code in dispatcher.codes:
            dispatcher.wrap(code, _limited)


def excess(code: int, bodies: Iterable[Buffer]) -> str:
    """Return which limit the bodies of requests executed together exceed; empty if none."""
    most = MOST.get(code)
    if most is None:
        return ""
    bodies = tuple(bodies)
    size = sum(map(len, bodies))
    if size > most:
        return f"the body of request {code} has {size} bytes, {most} are allowed"
    if size > MOST_UNUSUAL and code != RequestCode.UPDATE_BROKER_CONFIG:
        unusual = f"the body of request {code} has {size} bytes and is not standard JSON: "
        for body in bodies:
            if has_reference(body):
                return unusual + "it has references"
            try:
                msgspec.json.decode(body, type=msgspec.Raw)
            except (msgspec.DecodeError, RecursionError) as error:
                return unusual + str(error)
    most = MOST_LABORIOUS.get(code, MOST_OBJECTS)
    if size > most:
        objects = sum(bytes(body).count(b"{") for body in bodies)
        if objects > most:
            return f"the body of request {code} has {objects} objects, {most} are allowed"
    most = MOST_NAMES.get(code, MOST_VALUES)
    if size > most:
        values = sum(each.count(b",") + each.count(b"[") for each in map(bytes, bodies))
        if values > most:
            return f"the body of request {code} has {values} values, {most} are allowed"
    return ""


def _limited(handler: Handler) -> Handler:
    def limited(request: Request[Any]) -> Answer:
        text = excess(request.code, (request.body,))
        return Response(ResponseCode.SYSTEM_ERROR, text) if text else handler(request)

    return limited
