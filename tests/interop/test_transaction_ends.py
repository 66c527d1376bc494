"""Each end that a transaction of the client of release 4 can have, at our broker.

Those of release 5 are in test_transactions.py, where the two makes of brokers take turns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.harness import ours, wire
from tests.interop.harness.official import CLIENT_4, JavaPeer, Server

GET_MAX_OFFSET = 30
SETTINGS = {
    "transactionCheckInterval": 2000,
    # The first check comes when the broker has had a heartbeat of the producer; one that finds
    # nobody to ask counts, too.
    "transactionTimeOut": 3000,
    "transactionCheckMax": 2,
    "transactionOpBatchInterval": 100,
}
MESSAGES = [
    {"body": "committed", "local": "COMMIT_MESSAGE"},
    {"body": "rolled back", "local": "ROLLBACK_MESSAGE"},
    {"body": "to be committed", "local": "UNKNOW", "check": "COMMIT_MESSAGE"},
    {"body": "to be rolled back", "local": "UNKNOW", "check": "ROLLBACK_MESSAGE"},
    {"body": "never known", "local": "UNKNOW", "check": "UNKNOW"},
]


@pytest.mark.parametrize("java", [CLIENT_4], indirect=True)
def test_commit_rollback_unknown_and_check(
    java: JavaPeer, own_namesrv: Server, tmp_path: Path, topic: str
) -> None:
    namesrv, group = own_namesrv.address, f"PG_{topic}"
    broker = ours.start_broker(tmp_path, namesrv, settings=SETTINGS)
    java("transaction-start", namesrv=namesrv, group=group)
    try:
        results = java(
            "transaction-send", group=group, topic=topic,
            messages=[{"tags": "a", "keys": "k", **message} for message in MESSAGES],
        )  # fmt: skip
        assert [result["state"] for result in results] == [m["local"] for m in MESSAGES]
        checks = java("transaction-checks", group=group, count=4, timeoutMillis=30_000)
        assert sorted(check["body"] for check in checks) == [
            "never known", "never known", "to be committed", "to be rolled back",
        ]  # fmt: skip
        wire.until(lambda: given_up(broker) == 1, "what stays unknown is given up")
        assert java("transaction-checks", group=group, count=1, timeoutMillis=0) == []
        answer = java("pull", namesrv=namesrv, group="reader", topics=[topic])
        bodies = sorted(message["body"] for message in answer["messages"])
        assert bodies == ["committed", "to be committed"]
    finally:
        java("transaction-stop", group=group)
        broker.process.kill()


def given_up(broker: Server) -> int:
    where = {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "queueId": "0"}
    return int(wire.call(broker.address, GET_MAX_OFFSET, where).ext_fields["offset"])
