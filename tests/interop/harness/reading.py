"""Reads a queue to its end, as a consumer does."""

from __future__ import annotations

from pocketmq.message.record import Record, iter_records

from . import wire

PULL_MESSAGE = 11
GET_MAX_OFFSET = 30


def read_queue(broker: str, topic: str, queue_id: int) -> list[Record]:
    """Everything that a consumer can read from a queue of the broker with this address. Raises
    AssertionError when a pull finds nothing before the queue's end."""
    queue = {"topic": topic, "queueId": str(queue_id)}
    end = int(wire.call(broker, GET_MAX_OFFSET, queue).ext_fields["offset"])
    found: list[Record] = []
    at = 0
    while at < end:
        pull = {
            "consumerGroup": "reader", "queueOffset": str(at), "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        answer = wire.call(broker, PULL_MESSAGE, queue | pull)
        assert answer.code == 0, (
            f"queue {queue_id} of {topic} ends at {end}, but the pull at {at} is answered "
            f"{answer.code}: {answer.remark}"
        )
        found += iter_records(answer.body)
        following = int(answer.ext_fields["nextBeginOffset"])
        assert following > at
        at = following
    return found


def bodies_in(broker: str, topic: str) -> list[bytes]:
    """The bodies that queue 0 of a topic shows; none while the broker does not know the topic."""
    try:
        return [bytes(record.body) for record in read_queue(broker, topic, 0)]
    except AssertionError:
        return []
