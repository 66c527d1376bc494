"""A request of each code that a server serves, with something in every field."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import REQUEST_TIMEOUT, Connection
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.serving.dispatch import Dispatcher

_QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
_TOPIC = {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
BODIES: Final[dict[int, Any]] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}]}],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [_TOPIC]},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "G"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": "G"}]},
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: {"topicList": ["T"]},
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: {"groupNameList": ["G"]},
    RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"c": "G", "t": "T", "r": "0"}]},
    RequestCode.QUERY_ASSIGNMENT: {"consumerGroup": "G", "topic": "T"},
    RequestCode.SET_MESSAGE_REQUEST_MODE: {"consumerGroup": "G", "topic": "T"},
    RequestCode.AUTH_CREATE_USER: {"username": "U", "password": "password"},
}


def _fields_for(dispatcher: Dispatcher, code: int) -> dict[str, str]:
    """Something for each field of the request."""
    header = dispatcher.codes[code].header
    if header is None:
        return {}
    fields = {}
    for field in msgspec.structs.fields(header):
        kind = str(field.type)
        if "bool" in kind:
            fields[field.encode_name] = "false"
        elif "int" in kind:
            fields[field.encode_name] = "1"
        else:
            fields[field.encode_name] = "T" if "topic" in field.name else "G"
    return fields


async def ask(
    dispatcher: Dispatcher, connection: Connection, code: int, timeout: float = REQUEST_TIMEOUT
) -> Command:
    """Send the request of a code that `dispatcher` serves, and return the answer of whatever server
    `connection` leads to."""
    body = json.dumps(BODIES[code]).encode() if code in BODIES else b""
    fields = _fields_for(dispatcher, code)
    return await connection.request(code, None, body, timeout=timeout, ext_fields=fields)
