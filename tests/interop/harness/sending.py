"""Sends of one message over the smallest caller, to a broker that the test chooses."""

from __future__ import annotations

import time

from pocketmq.message import sysflag

from . import wire

SEND_MESSAGE = 10
END_TRANSACTION = 37
COMMIT = 8


def send(
    broker: str, topic: str, body: bytes, *, sys_flag: int = 0, **properties: str
) -> wire.Answer:
    """Send to queue 0 of the broker with this address. The topic gets one queue if it is new."""
    return wire.call(
        broker, SEND_MESSAGE,
        {
            "producerGroup": "p", "topic": topic, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": str(sys_flag),
            "bornTimestamp": str(time.time_ns() // 1_000_000), "flag": "0",
            "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
            "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        },
        body, timeout=10,
    )  # fmt: skip


def send_half(broker: str, topic: str, body: bytes) -> wire.Answer:
    """Send a message that is seen once its transaction is committed."""
    return send(
        broker, topic, body, sys_flag=sysflag.TRANSACTION_PREPARED,
        TRAN_MSG="true", PGROUP="p", UNIQ_KEY="u",
    )  # fmt: skip


def commit(broker: str, half: wire.Answer) -> wire.Answer:
    """Commit the transaction of a half message, at whichever broker is the master now."""
    return wire.call(
        broker, END_TRANSACTION,
        {
            "producerGroup": "p", "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": str(int(half.ext_fields["msgId"][-16:], 16)),
            "commitOrRollback": str(COMMIT), "fromTransactionCheck": "false",
            "msgId": "u", "transactionId": "u",
        },
    )  # fmt: skip
