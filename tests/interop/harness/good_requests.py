"""A good request for each served code that reads fields or a JSON body.

Names stand in it like `<topic>`; `World` (in `leniency`) fills them in. What a request takes away
is made for it before: `<fresh>` is a new name each time.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from pocketmq.message import fastjson
from pocketmq.remoting.codes import RequestCode

from .raw_requests import PATIENCE, Ask, Body, Effect, Fields, Good
from .wire import Answer


def create_topic(name: str) -> Ask:
    return Ask(
        "broker",
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
    )


def create_group(name: str) -> Ask:
    return Ask(
        "broker",
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body={"groupName": name, "retryMaxTimes": 7, "consumeBroadcastEnable": False},
    )


def register(broker: str, topic: str) -> Ask:
    return Ask(
        "namesrv",
        RequestCode.REGISTER_BROKER,
        {
            "brokerName": broker,
            "brokerAddr": "10.0.0.1:<port>",
            "clusterName": "leniency",
            "haServerAddr": "10.0.0.1:1",
            "brokerId": "0",
            "heartbeatTimeoutMillis": "600000",
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": "0",
            "__ZONE_NAME": "",
            "__ZONE_MODE": "",
        },
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1},
                # A name server refuses an unknown broker that has one topic only.
                "topicConfigTable": {
                    name: {
                        "topicName": name,
                        "readQueueNums": 3,
                        "writeQueueNums": 3,
                        "perm": 6,
                        "topicFilterType": "SINGLE_TAG",
                        "topicSysFlag": 0,
                        "order": False,
                    }
                    for name in (topic, f"{topic}_2")
                },
            },
        },
    )


_V1: Final = {
    "producerGroup": "<producers>",
    "topic": "<topic>",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "<now>",
    "flag": "0",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "maxReconsumeTimes": "3",
    "batch": "false",
    "bname": "<broker>",
}
_V2: Final = dict(zip("abcdefghijklmn", _V1.values(), strict=True))
SEND: Final = Ask("broker", RequestCode.SEND_MESSAGE, _V1, b"hello")
_PULL: Final = {
    "consumerGroup": "<group>",
    "topic": "<topic>",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
    "maxMsgBytes": "65536",
    "requestSource": "-1",
    "proxyFrowardClientId": "<client>",
}
_SUBSCRIPTION: Final = {
    "classFilterMode": False,
    "codeSet": [],
    "expressionType": "TAG",
    "subString": "*",
    "subVersion": 1,
    "tagsSet": [],
    "topic": "<topic>",
}
HEARTBEAT: Final = Ask(
    "broker",
    RequestCode.HEART_BEAT,
    body={
        "clientID": "<client>",
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_ACTIVELY",
                "groupName": "<group>",
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [_SUBSCRIPTION],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": "<producers>"}],
    },
)


def _batch_of_one() -> bytes:
    body, properties = b"hello", b"KEYS\x01k\x02"
    return struct.pack(
        f">iiiii{len(body)}sh{len(properties)}s",
        20 + len(body) + 2 + len(properties),
        0, zlib.crc32(body), 0, len(body), body, len(properties), properties,
    )  # fmt: skip


def _heartbeat(client: str, group: str) -> dict[str, Any]:
    body = json.loads(json.dumps(HEARTBEAT.body))
    body["clientID"] = client
    body["consumerDataSet"][0]["groupName"] = group
    body["producerDataSet"][0]["groupName"] = group
    return dict(body)


def _json(answer: Answer) -> Any:
    return fastjson.decode(answer.body) if answer.body else None


def _picked(*names: str) -> Callable[[Answer], object]:
    def pick(answer: Answer) -> object:
        value = _json(answer)
        return answer.code, {name: value.get(name) for name in names} if value else None

    return pick


def _online(answer: Answer) -> object:
    value = _json(answer)
    if not value:
        return answer.code
    names = ("consumeType", "messageModel", "consumeFromWhere")
    return (
        answer.code,
        {name: value.get(name) for name in names},
        sorted(str(one.get("clientId")) for one in value["connectionSet"]),
        sorted(
            (topic, data.get("subString"), data.get("expressionType"))
            for topic, data in value["subscriptionTable"].items()
        ),
    )


def _sorted_list(name: str) -> Callable[[Answer], object]:
    def pick(answer: Answer) -> object:
        return answer.code, sorted(map(str, (_json(answer) or {}).get(name) or []))

    return pick


def _route(answer: Answer) -> object:
    value = _json(answer) if answer.code == 0 else {}
    return answer.code, value.get("queueDatas")


_TOPIC_SHOWN: Final = _picked(
    "topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "order"
)
_SHOW_TOPIC: Final = Effect(
    Ask("broker", RequestCode.GET_TOPIC_CONFIG, {"topic": "<fresh>"}), _TOPIC_SHOWN
)
_SHOW_GROUP: Final = Effect(
    Ask("broker", RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "<fresh>"}),
    _picked("groupName", "retryMaxTimes", "consumeBroadcastEnable", "groupRetryPolicy"),
)
_SHOW_ROUTE: Final = Effect(
    Ask("namesrv", RequestCode.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "<fresh>", "acceptStandardJsonOnly": "true"}),
    _route,
)  # fmt: skip
_LOCK: Final[dict[str, Any]] = {
    "clientId": "<fresh>",
    "consumerGroup": "<fresh>",
    "mqSet": [{"topic": "<topic>", "brokerName": "<broker>", "queueId": 0}],
}


def _good(
    server: str,
    code: RequestCode,
    fields: Fields | None = None,
    body: Body = None,
    *before: Ask,
    effect: Effect | None = None,
    answer: Callable[[Answer], object] | None = None,
    patience: float = PATIENCE,
) -> Good:
    return Good(Ask(server, code, fields or {}, body), before, effect, answer, patience)


def _pops() -> Iterator[Good]:
    C = RequestCode
    popped = {"consumerGroup": "<group>", "topic": "<topic>", "queueId": "0"}
    handle = {"extraInfo": "0 1 60000 0 0 <broker> 0 0", "offset": "0"}
    # Each for a group of its own, so that there is something to pop.
    of_new_group = {**popped, "consumerGroup": "<fresh>"}
    yield _good(
        "broker",
        C.POP_MESSAGE,
        {
            **of_new_group,
            "maxMsgNums": "1",
            "invisibleTime": "60000",
            "pollTime": "0",
            "bornTime": "<now>",
            "initMode": "0",
            "expType": "TAG",
            "exp": "*",
            "order": "false",
            "attemptId": "a",
        },
        None,
        create_group("<fresh>"),
    )
    yield _good("broker", C.ACK_MESSAGE, {**popped, **handle})
    yield _good(
        "broker", C.CHANGE_MESSAGE_INVISIBLETIME, {**popped, **handle, "invisibleTime": "60000"}
    )
    yield _good("broker", C.PEEK_MESSAGE, {**of_new_group, "maxMsgNums": "1"})
    yield _good(
        "broker",
        C.NOTIFICATION,
        {**of_new_group, "pollTime": "0", "bornTime": "<now>", "order": "false", "attemptId": "a"},
    )
    yield _good("broker", C.POLLING_INFO, popped)
    yield _good(
        "broker",
        C.BATCH_ACK_MESSAGE,
        {},
        {
            "brokerName": "<broker>",
            "acks": [
                {
                    "c": "<group>",
                    "t": "<topic>",
                    "r": "0",
                    "so": 0,
                    "q": 0,
                    "rq": 0,
                    "pt": 1,
                    "it": 60000,
                    "b": "AQ==",
                }
            ],
        },
    )
    yield _good(
        "broker",
        C.QUERY_ASSIGNMENT,
        {},
        {
            "topic": "<topic>",
            "consumerGroup": "<group>",
            "clientId": "<client>",
            "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        },
    )
    yield _good(
        "broker",
        C.SET_MESSAGE_REQUEST_MODE,
        {},
        {"topic": "<topic>", "consumerGroup": "<group>", "mode": "POP", "popShareQueueNum": 0},
    )
    yield _good("broker", C.GET_ALL_MESSAGE_REQUEST_MODE)


def _goods() -> Iterator[Good]:
    C = RequestCode
    topic = {"topic": "<topic>"}
    queue = {"topic": "<topic>", "queueId": "0"}
    group = {"group": "<group>", "topic": "<topic>"}

    yield _good("broker", C.SEND_MESSAGE, _V1, b"hello")
    yield _good("broker", C.SEND_MESSAGE_V2, _V2, b"hello")
    yield _good("broker", C.SEND_BATCH_MESSAGE, {**_V2, "m": "true"}, _batch_of_one())
    yield _good("broker", C.SEND_REPLY_MESSAGE, _V1, b"hello")
    yield _good("broker", C.SEND_REPLY_MESSAGE_V2, _V2, b"hello")
    yield _good("broker", C.PULL_MESSAGE, _PULL)
    yield _good("broker", C.LITE_PULL_MESSAGE, _PULL)
    yield from _pops()
    yield _good(
        "broker",
        C.CONSUMER_SEND_MSG_BACK,
        {
            "offset": "<offset>",
            "group": "<group>",
            "delayLevel": "3",
            "originMsgId": "<msgid>",
            "originTopic": "<topic>",
            "unitMode": "false",
            "maxReconsumeTimes": "3",
        },
    )
    yield _good(
        "broker",
        C.END_TRANSACTION,
        {
            "producerGroup": "<producers>",
            "tranStateTableOffset": "0",
            "commitLogOffset": "<offset>",
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "<msgid>",
            "transactionId": "t",
            "bname": "<broker>",
            "topic": "<topic>",
        },
        patience=0.5,
    )
    yield _good(
        "broker",
        C.RECALL_MESSAGE,
        {"topic": "<topic>", "recallHandle": "abc", "producerGroup": "<producers>"},
    )
    yield _good(
        "broker",
        C.QUERY_MESSAGE,
        {
            "topic": "<topic>",
            "key": "k",
            "maxNum": "8",
            "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807",
            "_UNIQUE_KEY_QUERY": "false",
        },
    )
    yield _good("broker", C.VIEW_MESSAGE_BY_ID, {"offset": "<offset>", **topic})
    yield _good(
        "broker",
        C.QUERY_CONSUME_QUEUE,
        {**queue, "index": "0", "count": "2", "consumerGroup": "<group>"},
    )
    yield _good(
        "broker",
        C.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": "<group>", **queue, "setZeroIfNotFound": "true"},
    )
    yield _good(
        "broker",
        C.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "<group>", **queue, "commitOffset": "0"},
    )
    yield _good(
        "broker", C.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": "0", "boundaryType": "lower"}
    )
    yield _good("broker", C.GET_MAX_OFFSET, {**queue, "committed": "true"})
    yield _good("broker", C.GET_MIN_OFFSET, queue)
    yield _good("broker", C.GET_EARLIEST_MSG_STORETIME, queue)

    yield _good(
        "broker",
        C.HEART_BEAT,
        {},
        _heartbeat("<fresh>", "<fresh>"),
        create_group("<fresh>"),
        effect=Effect(
            Ask("broker", C.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "<fresh>"}), _online
        ),
    )
    yield _good(
        "broker",
        C.UNREGISTER_CLIENT,
        {"clientID": "<fresh>", "producerGroup": "<fresh>", "consumerGroup": "<fresh>"},
        None,
        Ask("broker", C.HEART_BEAT, {}, _heartbeat("<fresh>", "<fresh>")),
        effect=Effect(
            Ask("broker", C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "<fresh>"}),
            lambda a: a.code,
        ),
    )
    yield _good("broker", C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "<group>"})
    yield _good(
        "broker",
        C.LOCK_BATCH_MQ,
        {},
        _LOCK,
        answer=lambda a: len((_json(a) or {}).get("lockOKMQSet") or ()),
    )
    yield _good(
        "broker",
        C.UNLOCK_BATCH_MQ,
        {},
        _LOCK,
        Ask("broker", C.LOCK_BATCH_MQ, {}, _LOCK),
        effect=Effect(
            Ask("broker", C.LOCK_BATCH_MQ, {}, {**_LOCK, "clientId": "other"}),
            lambda a: len(_json(a).get("lockOKMQSet") or ()),
        ),
    )
    yield _good(
        "broker",
        C.CHECK_CLIENT_CONFIG,
        {},
        {
            "clientId": "<client>",
            "group": "<group>",
            "namespace": "",
            "subscriptionData": {**_SUBSCRIPTION, "expressionType": "SQL92", "subString": "a >"},
        },
    )

    yield _good(
        "broker",
        C.UPDATE_AND_CREATE_TOPIC,
        {**create_topic("<fresh>").fields, "attributes": "", "force": "false"},
        effect=_SHOW_TOPIC,
    )
    yield _good(
        "broker",
        C.UPDATE_AND_CREATE_TOPIC_LIST,
        {},
        {
            "topicConfigList": [
                {
                    "topicName": "<fresh>",
                    "readQueueNums": 3,
                    "writeQueueNums": 5,
                    "perm": 4,
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": 0,
                    "order": True,
                    "attributes": {},
                }
            ]
        },
        effect=_SHOW_TOPIC,
    )
    yield _good(
        "broker",
        C.DELETE_TOPIC_IN_BROKER,
        {"topic": "<fresh>"},
        None,
        create_topic("<fresh>"),
        effect=_SHOW_TOPIC,
    )
    yield _good("broker", C.GET_TOPIC_CONFIG, {**topic, "lo": "true"})
    yield _good("broker", C.GET_TOPIC_STATS_INFO, topic)
    yield _good(
        "broker",
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        {},
        {
            "groupName": "<fresh>",
            "retryMaxTimes": 7,
            "consumeBroadcastEnable": False,
            "groupRetryPolicy": {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 1000, "max": 60000, "multiplier": 3},
            },
        },
        effect=_SHOW_GROUP,
    )
    yield _good(
        "broker",
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        {},
        {
            "groupConfigList": [
                {"groupName": "<fresh>", "retryMaxTimes": 7, "consumeBroadcastEnable": False}
            ]
        },
        effect=_SHOW_GROUP,
    )
    yield _good(
        "broker",
        C.DELETE_SUBSCRIPTIONGROUP,
        {"groupName": "<fresh>", "cleanOffset": "true"},
        None,
        create_group("<fresh>"),
        effect=Effect(Ask("broker", C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), lambda a: a.code),
    )
    yield _good("broker", C.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "<group>"})
    yield _good(
        "broker",
        C.UPDATE_AND_GET_GROUP_FORBIDDEN,
        {"group": "<fresh>", "topic": "<fresh>", "readable": "false"},
        None,
        answer=_picked("readable"),
    )
    yield _good("broker", C.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "<group>"})
    yield _good("broker", C.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "<producers>"})
    yield _good("broker", C.QUERY_SUBSCRIPTION_BY_CONSUMER, group)
    yield _good(
        "broker", C.GET_CONSUME_STATS, {"consumerGroup": "<group>", **topic, "topicList": ""}
    )
    yield _good("broker", C.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    yield _good("broker", C.QUERY_TOPIC_CONSUME_BY_WHO, topic)
    yield _good("broker", C.QUERY_TOPICS_BY_CONSUMER, {"group": "<group>"})
    yield _good("broker", C.QUERY_CONSUME_TIME_SPAN, group)
    yield _good(
        "broker",
        C.QUERY_CORRECTION_OFFSET,
        {"topic": "<fresh>", "compareGroup": "<group>", "filterGroups": "x"},
    )
    yield _good(
        "broker",
        C.INVOKE_BROKER_TO_RESET_OFFSET,
        {**group, "timestamp": "0", "isForce": "true", "queueId": "0", "offset": "0"},
    )
    yield _good(
        "broker",
        C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {"group": "<fresh>", **topic, "clientAddr": ""},
    )
    yield _good(
        "broker",
        C.CLONE_GROUP_OFFSET,
        {"srcGroup": "<group>", "destGroup": "<fresh>", **topic, "offline": "true"},
    )
    yield _good(
        "broker",
        C.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "<fresh>", "clientId": "nobody", "jstackEnable": "false"},
    )
    yield _good(
        "broker",
        C.CONSUME_MESSAGE_DIRECTLY,
        {
            "consumerGroup": "<fresh>",
            "clientId": "nobody",
            "msgId": "<msgid>",
            "brokerName": "<broker>",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
            **topic,
        },
    )
    yield _good(
        "broker", C.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "<topic>"}
    )
    yield _good("broker", C.RESUME_CHECK_HALF_MESSAGE, {"msgId": "<msgid>", **topic})

    yield _good(
        "namesrv",
        C.PUT_KV_CONFIG,
        {"namespace": "<fresh>", "key": "k", "value": "v"},
        None,
        effect=Effect(
            Ask("namesrv", C.GET_KV_CONFIG, {"namespace": "<fresh>", "key": "k"}),
            lambda a: (a.code, a.ext_fields.get("value")),
        ),
    )
    yield _good("namesrv", C.GET_KV_CONFIG, {"namespace": "leniency", "key": "k"})
    yield _good(
        "namesrv",
        C.DELETE_KV_CONFIG,
        {"namespace": "<fresh>", "key": "k"},
        None,
        Ask("namesrv", C.PUT_KV_CONFIG, {"namespace": "<fresh>", "key": "k", "value": "v"}),
        effect=Effect(
            Ask("namesrv", C.GET_KV_CONFIG, {"namespace": "<fresh>", "key": "k"}), lambda a: a.code
        ),
    )
    yield _good("namesrv", C.GET_KVLIST_BY_NAMESPACE, {"namespace": "leniency"})
    registration = register("<fresh>", "<fresh>")
    yield Good(registration, (), _SHOW_ROUTE)
    yield _good(
        "namesrv",
        C.UNREGISTER_BROKER,
        {
            "brokerName": "<fresh>",
            "brokerAddr": "10.0.0.1:<port>",
            "clusterName": "leniency",
            "brokerId": "0",
        },
        None,
        registration,
    )
    yield _good(
        "namesrv",
        C.QUERY_DATA_VERSION,
        {
            "brokerName": "<fake>",
            "brokerAddr": "10.0.0.1:9",
            "clusterName": "leniency",
            "brokerId": "0",
        },
        {"counter": 1, "stateVersion": 0, "timestamp": 1},
        answer=lambda a: a.ext_fields.get("changed"),
    )
    yield _good(
        "namesrv", C.GET_BROKER_MEMBER_GROUP, {"clusterName": "leniency", "brokerName": "<fake>"}
    )
    yield _good(
        "namesrv",
        C.BROKER_HEARTBEAT,
        {
            "clusterName": "leniency",
            "brokerAddr": "10.0.0.1:9",
            "brokerName": "<fake>",
            "brokerId": "0",
            "epoch": "0",
            "maxOffset": "0",
            "confirmOffset": "0",
            "heartbeatTimeoutMills": "600000",
            "electionPriority": "0",
        },
    )
    yield _good(
        "namesrv",
        C.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "leniency_topic", "acceptStandardJsonOnly": "true"},
    )
    yield _good(
        "namesrv",
        C.WIPE_WRITE_PERM_OF_BROKER,
        {"brokerName": "<fresh>"},
        None,
        registration,
        effect=_SHOW_ROUTE,
    )
    yield _good(
        "namesrv",
        C.ADD_WRITE_PERM_OF_BROKER,
        {"brokerName": "<fresh>"},
        None,
        registration,
        effect=_SHOW_ROUTE,
    )
    yield _good(
        "namesrv",
        C.DELETE_TOPIC_IN_NAMESRV,
        {"topic": "<fresh>", "clusterName": "leniency"},
        None,
        registration,
        effect=_SHOW_ROUTE,
    )
    yield _good(
        "namesrv",
        C.REGISTER_TOPIC_IN_NAMESRV,
        {"topic": "<fresh>"},
        {
            "queueDatas": [
                {
                    "brokerName": "<fake>",
                    "readQueueNums": 2,
                    "writeQueueNums": 3,
                    "perm": 6,
                    "topicSysFlag": 0,
                }
            ]
        },
        effect=_SHOW_ROUTE,
    )
    yield _good("namesrv", C.GET_TOPICS_BY_CLUSTER, {"cluster": "leniency"})


GOOD: Final = tuple(_goods())
