from __future__ import annotations

import time

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.producer.prepared_message import PreparedMessage
from pocketmq.client.producer.send_header import MAX_QUEUES, SendHeaders
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2

QUEUE = MessageQueue("T", "b0", 3)

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**31), 2**31 - 1)


def outgoing(
    topic: str = "T", properties: str = "", flag: int = 0, sys_flag: int = 0, batch: bool = False
) -> PreparedMessage:
    return PreparedMessage(
        RequestCode.SEND_MESSAGE_V2, topic, b"body", properties, ("ID",), flag, sys_flag, batch
    )


@given(
    group=texts, topic=texts, template=texts, broker=texts, properties=texts, queues=numbers,
    queue_id=numbers, flag=numbers, sys_flag=numbers, batch=st.booleans(),
)  # fmt: skip
def test_a_broker_reads_what_the_message_says(
    group: str, topic: str, template: str, broker: str, properties: str, queues: int, queue_id: int,
    flag: int, sys_flag: int, batch: bool,
) -> None:  # fmt: skip
    headers = SendHeaders(group, template, queues)
    queue = MessageQueue(topic, broker, queue_id)
    headers.header(outgoing("T", "of another message", batch=not batch), queue)
    header = headers.header(outgoing(topic, properties, flag, sys_flag, batch), queue)
    expected = SendMessageRequestHeaderV2(
        producer_group=group, topic=topic, default_topic=template,
        default_topic_queue_nums=queues, queue_id=queue_id, sys_flag=sys_flag,
        born_timestamp=header.born_timestamp, flag=flag, properties=properties, batch=batch,
        bname=broker,
    )  # fmt: skip
    ext = msgspec.json.decode(header.ext_json(), type=dict[str, str])
    assert SendMessageRequestHeaderV2.from_ext(ext) == expected
    # What is signed, and what a binary header says.
    assert header.to_ext() == ext == expected.to_ext()


def test_a_message_is_born_when_its_header_is_made() -> None:
    headers = SendHeaders("g", "TBW102", 4)
    before = time.time_ns() // 1_000_000
    born = headers.header(outgoing(), QUEUE).born_timestamp
    assert before <= born <= time.time_ns() // 1_000_000


def test_more_queues_than_are_kept() -> None:
    headers = SendHeaders("g", "TBW102", 4)
    for queue_id in (*range(MAX_QUEUES + 2), 0):
        header = headers.header(outgoing(), MessageQueue("T", "b0", queue_id))
        assert header.to_ext()["e"] == str(queue_id)
