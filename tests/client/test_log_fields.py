from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingTimeout, SendError
from pocketmq.client.log_fields import fields
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


def test_what_an_error_knows() -> None:
    error = RemotingTimeout("too late", "b:1")
    assert fields(error, topic="T", queue_id=None, group="g") == {
        "mq_topic": "T",
        "mq_group": "g",
        "mq_code": ResponseCode.RPC_TIME_OUT,
        "mq_retriable": True,
        "mq_broker": "b:1",
    }
    assert fields(ValueError(), broker="a") == {"mq_broker": "a"}
    assert fields(error, queue=MessageQueue("T", "a", 0), topic="U") == {
        "mq_topic": "U",
        "mq_broker": "a",
        "mq_queue_id": 0,
        "mq_code": ResponseCode.RPC_TIME_OUT,
        "mq_retriable": True,
    }


async def test_records_carry_them(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster["a"].mode = ResponseCode.MESSAGE_ILLEGAL
    formatter = logging.Formatter("%(mq_topic)s %(mq_queue_id)s %(mq_code)s %(mq_broker)s")
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        posted = await p.post(Message("T", b"x"), queue=MessageQueue("T", "a", 1))
        await p.flush()
        with pytest.raises(SendError):
            await posted
    [record, _] = [record for record in caplog.records if "posted message" in record.message]
    assert formatter.format(record) == "T 1 13 a"


def told(record: logging.LogRecord) -> dict[str, object]:
    return {name[3:]: value for name, value in vars(record).items() if name.startswith("mq_")}


async def test_records_of_consumers_carry_them(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client")
    cluster["a"].store("T", 1, b"x", "UNIQ_KEY\x01ID\x02")
    cluster["a"].back_answer = Response(ResponseCode.SYSTEM_ERROR, "not back")
    cluster["b"].commit_answer = cluster["a"].commit_answer = Response(
        ResponseCode.NO_PERMISSION, "not stored"
    )
    c = PushConsumer("G", namesrv=cluster.namesrv, start="begin", commit_interval=0.01)

    @c.on("T")
    def handle(message: ConsumedMessage) -> None:
        raise RuntimeError("no")

    def records(text: str) -> list[logging.LogRecord]:
        return [record for record in caplog.records if text in record.getMessage()]

    async with c:
        await until(lambda: records("sent back") and records("committing"))
        await cluster["a"].stop()
        await until(lambda: records("is lost"))
        # Where it failed, and in what.
        [failed] = records("redelivering")
        queue = {"topic": "T", "broker": "a", "queue_id": 1}
        assert told(failed) == {"group": "G", "msg_id": "ID", **queue}
        [refused] = records("sent back")
        error = {"code": ResponseCode.SYSTEM_ERROR, "retriable": refused.__dict__["mq_retriable"]}
        assert told(refused) == {
            "group": "G", "msg_id": "ID", "topic": "T", "broker": "a", **error,
        }  # fmt: skip
        committing = told(records("committing")[0])
        assert (committing["topic"], committing["code"]) == ("T", ResponseCode.NO_PERMISSION)
        assert committing["broker"] in ("a", "b")
        assert told(records("is lost")[0]) == {"group": "G", "broker": "a"}
        shared = told(records("gained")[0])
        assert shared.keys() == {"group", "topic"}


def test_all_warnings_of_the_client_carry_fields() -> None:
    """Each call that logs a failure of something that has a name says so in fields."""
    without = {
        "pocketmq/client/consumer/offsets/local_offset_store.py",  # about a file
        "pocketmq/client/consumer/dispatch/workers.py",  # about this program
        "pocketmq/client/producer/request_reply.py",
        "pocketmq/client/producer/transaction.py",  # requests that are nonsense
        "pocketmq/client/selector/detector.py",
        "pocketmq/client/selector/switches.py",
    }
    client = Path(__file__).parents[2] / "pocketmq" / "client"
    found = set()
    for path in client.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("log.warning", "log.exception", "log.error")
                and not any(keyword.arg == "extra" for keyword in node.keywords)
            ):
                found.add(str(path.relative_to(client.parents[1])))
    assert found <= without
