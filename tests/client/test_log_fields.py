import logging

import pytest

from client.errors import RemotingTimeout, SendError
from client.log_fields import fields
from client.producer.producer import Producer
from message.message import Message, MessageQueue
from remoting.codes import ResponseCode
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


async def test_records_carry_them(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster["a"].mode = ResponseCode.MESSAGE_ILLEGAL
    formatter = logging.Formatter("%(mq_topic)s %(mq_queue_id)s %(mq_code)s %(mq_broker)s")
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        posted = await p.post(Message("T", b"x"), queue=MessageQueue("T", "a", 1))
        with pytest.raises(SendError):
            await posted
        await until(lambda: caplog.records)
    [record] = [record for record in caplog.records if "lingered" in record.message]
    assert formatter.format(record) == "T 1 13 a"
