"""Every reserved property through every door: what the official broker makes of it, and what ours.

A row is a property in a message that a client sends. Of each broker it is compared what the answer
is, whether a consumer can read the message, and which properties it then has. `wanted` has the
differences that are meant, with their reasons. (gRPC: test_grpc_reserved_properties.py.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import pytest

from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import Record
from pocketmq.message.reserved import NOT_IN_BATCHES, SET_BY, SetBy
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.interop.harness import wire
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import VERSION
from tests.interop.harness.reading import read_queue

SECRET: Final = "ReservedSecret"
LAST: Final = b"last"
LATER: Final = str((int(time.time()) + 3600) * 1000)

#: What is set; "1" otherwise. What waits does so for an hour at least.
VALUES: Final = {
    names.DELAY: "18",
    names.TIMER_DELAY_SEC: "3600",
    names.TIMER_DELAY_MS: "3600000",
    names.TIMER_DELIVER_MS: LATER,
    names.TIMER_OUT_MS: LATER,
    names.TIMER_DEL_UNIQKEY: f"{SECRET}+K",
    names.TRAN_MSG: "true",
    names.PGROUP: "P",
    names.WAIT: "false",
    names.REAL_TOPIC: SECRET,
    names.REAL_QID: "0",
    names.RETRY_TOPIC: SECRET,
    names.DLQ_ORIGIN_TOPIC: SECRET,
    names.POP_CK: "0 1 1 0 0 b0 0 0",
    names.INNER_MULTI_DISPATCH: f"%LMQ%{SECRET}",
}


#: By the broker, to each message, or to a batch as a whole.
ADDED: Final = {
    names.MSG_REGION: "DefaultRegion", names.TRACE_ON: "true", names.CLUSTER: "DefaultCluster",
}  # fmt: skip


class Row(NamedTuple):
    """What one broker made of a property."""

    code: int
    readable: bool
    stored: dict[str, str]


def ask(broker: str, code: int, topic: str, body: bytes, properties: str, **more: str) -> int:
    fields = {
        "producerGroup": "p", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": "0",
        "bornTimestamp": str(time.time_ns() // 1_000_000), "flag": "0", "properties": properties,
        "reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "16", "batch": "false",
    } | more  # fmt: skip
    if code == RequestCode.SEND_BATCH_MESSAGE:
        # SendMessageRequestHeaderV2 has these fields, in this order, as a to m.
        fields = dict(zip("abcdefghijklm", fields.values(), strict=True))
    return wire.call(broker, code, fields, body, timeout=10).code


def encoded(name: str) -> str:
    return names.encode({names.UNIQ_KEY: "U", name: VALUES.get(name, "1")})


#: What comes to a consumer at once, and can be sent back.
NEVER_WAITS: Final = set(SetBy) - {SetBy.SINGLE, SetBy.SAME_TOPIC, SetBy.INNER_BATCH}


# --- the doors: each sends the message and returns the code of the answer ---------------------

Door = Callable[[str, str, str], int]


def single(broker: str, topic: str, name: str) -> int:
    return ask(broker, RequestCode.SEND_MESSAGE, topic, name.encode(), encoded(name))


def in_a_batch(broker: str, topic: str, name: str) -> int:
    items = [(0, name.encode(), encoded(name).encode()), (0, b"other", b"UNIQ_KEY\x01O\x02")]
    return ask(broker, RequestCode.SEND_BATCH_MESSAGE, topic, encode_batch(items), "", batch="true")


def whole_batch(broker: str, topic: str, name: str) -> int:
    items = encode_batch([(0, name.encode(), b"UNIQ_KEY\x01O\x02")])
    properties = encoded(name)
    return ask(
        broker, RequestCode.SEND_BATCH_MESSAGE, topic, items, properties, batch="true"
    )  # fmt: skip


def reply(broker: str, topic: str, name: str) -> int:
    """Nobody is there to take it, but it is stored."""
    return ask(broker, RequestCode.SEND_REPLY_MESSAGE, topic, name.encode(), encoded(name))


def sent_back(broker: str, topic: str, name: str) -> int:
    """To the retry topic of a group of its own, after a second."""
    code = single(broker, topic, name)
    if code:
        return code
    wire.until(partial(has, broker, topic, name.encode()), "stored", 30)
    [record] = [each for each in read_all(broker, topic) if is_case(each, name)]
    fields = {
        "offset": str(record.physical_offset), "group": f"G{topic}", "delayLevel": "1",
        "originMsgId": "", "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
    return wire.call(broker, RequestCode.CONSUMER_SEND_MSG_BACK, fields).code


DOORS: Final = {
    "single": single,
    "in a batch": in_a_batch,
    "whole batch": whole_batch,
    "reply": reply,
    "sent back": sent_back,
}


def is_case(record: Record, name: str) -> bool:
    return bytes(record.body) == name.encode()


def read_all(broker: str, topic: str) -> list[Record]:
    return read_queue(broker, topic, 0)


def has(broker: str, topic: str, body: bytes) -> bool:
    return any(bytes(record.body) == body for record in read_all(broker, topic))


def rows(broker: str, door: str, prefix: str, of: list[str]) -> Iterator[tuple[str, Row]]:
    """What a broker makes of the properties, each in a topic of its own."""
    topics = {name: f"{prefix}_{number}" for number, name in enumerate(of)}
    codes = {name: DOORS[door](broker, topics[name], name) for name in of}
    where = topics
    if door == "sent back":
        where = {name: f"%RETRY%G{topic}" for name, topic in topics.items() if not codes[name]}
        for name in where:
            wire.until(partial(has, broker, where[name], name.encode()), f"{name} back", 30)
    else:
        # Once this one can be read, so can what was sent before it.
        for topic in topics.values():
            assert ask(broker, RequestCode.SEND_MESSAGE, topic, LAST, "") == 0
    for name in of:
        found: list[Record] = []
        if name in where:
            topic = where[name]
            if door != "sent back":
                wire.until(partial(has, broker, topic, LAST), f"the last of {topic}", 30)
            found = [each for each in read_all(broker, topic) if is_case(each, name)]
        assert len(found) <= 1
        stored = dict(found[0].properties) if found else {}
        # These are addresses and ids of either broker, or its time.
        for differs in (names.ORIGIN_MESSAGE_ID, names.PUSH_REPLY_TIME, names.ARRIVE_TIME):
            if differs in stored and differs != name:
                stored[differs] = "..."
        yield name, Row(codes[name], bool(found), stored)


def wanted(door: str, name: str, theirs: Row, ours: Row, topic: str) -> Row:
    """What ours is to make of a property: what the official broker does, but for the following."""
    by = SET_BY[name]
    stored = dict(theirs.stored)
    if "batch" in door and VERSION >= "5.4":
        # Up to 5.3.3, and here, each message gets the properties of the whole batch as well.
        if door == "whole batch":
            stored |= {names.UNIQ_KEY: "U", name: VALUES.get(name, "1")}
        stored |= ADDED
    delayed = door == "sent back" and name in (names.REAL_TOPIC, names.REAL_QID)
    kept = door == "in a batch" and name not in NOT_IN_BATCHES
    if by is SetBy.BROKER and not delayed and not kept:
        # The broker acts on it in its own topics. Where a message is moved there, what a client set
        # would be taken for the broker's. So it is not stored. (A batch is never moved; and what
        # was delayed has the two that the broker itself set.)
        stored.pop(name, None)
    if by in (SetBy.SINGLE, SetBy.INNER_BATCH) and "batch" in door:
        # There, the message would be readable at once, or the batch delivered as one message.
        return Row(ResponseCode.MESSAGE_ILLEGAL, False, {})
    if by is SetBy.SAME_TOPIC and ours.code != theirs.code and door != "reply":
        # It would cancel a timed message of another topic, on which the client may have no right.
        return Row(ResponseCode.MESSAGE_ILLEGAL, False, {})
    if by is SetBy.SAME_TOPIC and door == "reply":
        return Row(theirs.code, False, {})  # the same, but a reply is answered as if it were stored
    if name == names.LITE_TOPIC:
        # Brokers since 5.5 add the light queue of the lite topic. Ours serves neither.
        stored.pop(names.INNER_MULTI_DISPATCH, None)
    if name == names.TRAN_MSG and door == "reply":
        stored.pop(name, None)  # a reply is never a half message
    if by is SetBy.RETRY and door == "sent back":
        # Where the message was, whatever its producer said; its dead letter is sent there again.
        stored[names.RETRY_TOPIC] = topic
        if name == names.ORIGIN_MESSAGE_ID:
            assert len(ours.stored[name]) == 32
            stored[name] = ours.stored[name]
    return Row(theirs.code, theirs.readable, stored)


@pytest.mark.long("in a batch", "whole batch", "reply", "sent back")
@pytest.mark.parametrize("door", DOORS)
def test_reserved_properties(
    official_cluster: Cluster, our_cluster: Cluster, topic: str, door: str
) -> None:
    of = sorted(SET_BY)
    if door == "sent back":  # only what was read can be
        of = [name for name in of if name != names.TRAN_MSG and SET_BY[name] in NEVER_WAITS]
    theirs = dict(rows(official_cluster.broker.address, door, topic, of))
    ours = dict(rows(our_cluster.broker.address, door, topic, of))
    assert theirs[names.TAGS].readable
    assert theirs[names.TAGS].code == (ResponseCode.SYSTEM_ERROR if door == "reply" else 0)
    of_topic = {name: f"{topic}_{number}" for number, name in enumerate(of)}
    expected = {name: wanted(door, name, theirs[name], ours[name], of_topic[name]) for name in of}
    differences = {
        name: (expected[name], ours[name]) for name in of if ours[name] != expected[name]
    }
    assert differences == {}
