"""What docs/batch-protocol.md says about corners that no client should have to guess."""

from __future__ import annotations

import asyncio
import struct

import msgspec
import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.answers.batch import NOT_FOUND_REMARK, decode_answers
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import MAX_FRAME, encode_request
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    GetMaxOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.batch.batches import Child, batch, body_of, held, parent, pull, send
from tests.broker.conftest import COMMIT, SUBSCRIPTION, Client, Connect, StartBroker

BATCH = int(RequestCode.COMMON_BATCH_REQUEST)
MAX_OFFSET = Child(30, GetMaxOffsetRequestHeader(topic="T", queue_id=0))


def frame(header: object, body: bytes = b"") -> bytes:
    """A frame with a JSON header like no library writes it."""
    head = msgspec.json.encode(header)
    return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body


async def refusal(client: Client, body: bytes, **ext_fields: str) -> str:
    answer = await client.request(BATCH, None, body, ext_fields=ext_fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not answer.body
    return answer.remark or ""


async def test_a_dispatch_code_that_is_no_code(client: Client) -> None:
    body = body_of([MAX_OFFSET])
    assert "dispatchCode None cannot be batched" in await refusal(client, body)
    assert "dispatchCode 3 cannot be batched" in await refusal(client, body, dispatchCode="3.0")
    for text in "", "abc", "99999999999", "3.5":
        remark = await refusal(client, body, dispatchCode=text)
        assert remark.startswith("BatchRequestHeader: ")


async def test_a_child_without_an_opaque_has_0(client: Client) -> None:
    child = frame({"code": 30, "extFields": {"topic": "T", "queueId": "0"}})
    answer = await client.request(BATCH, BatchRequestHeader(dispatch_code=30), child)
    assert {opaque: a.code for opaque, a in decode_answers(answer.body).items()} == {0: 0}
    assert "duplicated key 0" in await refusal(client, child * 2, dispatchCode="30")


async def test_children_are_counted_from_1(broker: Broker, client: Client) -> None:
    good = body_of([MAX_OFFSET])
    bad = frame({"code": 30, "opaque": "x"})
    assert "child 1: " in await refusal(client, bad, dispatchCode="30")
    assert "child 2: " in await refusal(client, good + bad, dispatchCode="30")
    # Also those that wait already.
    await batch(client, [send("A"), send("B")])
    children = [pull("A", 1, hold=15_000), pull("B", 1, hold=15_000)]
    waiting = asyncio.create_task(parent(client, children, omit=True))
    await until_held(broker, 2)
    await client.send("A")
    await waiting
    await until_held(broker, 1)
    body = children[1].frame(101) + bad
    remark = await refusal(client, body, dispatchCode="11", omitNotFound="true")
    assert "child 2: " in remark


async def test_the_length_of_a_child_is_a_signed_number_without_its_own_bytes(
    client: Client,
) -> None:
    good = body_of([MAX_OFFSET])
    cut = len(good) - 5
    assert f"child frame of {len(good) - 4} bytes at byte 0 of a body of {cut}" in await refusal(
        client, good[:cut], dispatchCode="30"
    )
    remark = await refusal(client, good + b"\xff\xff\xff\xff" + good, dispatchCode="30")
    assert f"child frame of -1 bytes at byte {len(good)} of a body of {2 * len(good) + 4}" in remark
    assert "3 bytes behind the last child" in await refusal(
        client, good + b"xyz", dispatchCode="30"
    )


@pytest.mark.parametrize("codes", [(10, 310, 320), (11, 361), (324, 325)])
async def test_codes_that_mix(client: Client, codes: tuple[int, ...]) -> None:
    for code in codes:
        answers = await batch(client, [Child(other) for other in codes], code=code)
        assert not [a for a in answers if "in a batch of" in (a.remark or "")]


async def test_no_other_codes_mix(broker: Broker, client: Client) -> None:
    mixing = [{10, 310, 320}, {11, 361}, {324, 325}]
    served = {route.registered: set[int]() for route in broker.dispatcher.codes.values()}
    for code, route in broker.dispatcher.codes.items():
        served[route.registered].add(code)
    assert sorted(map(sorted, (codes for codes in served.values() if len(codes) > 1))) == sorted(
        map(sorted, mixing)
    )
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "0"}
    for code, other in [(14, 15), (15, 38), (30, 31), (11, 30)]:
        answers = await batch(client, [Child(other, ext_fields=fields)], code=code)
        assert answers[0].code == ResponseCode.SYSTEM_ERROR
        assert answers[0].remark == f"request code {other} in a batch of {code}"


@pytest.mark.parametrize("omit", [True, None])
async def test_a_child_whose_time_is_over_has_an_answer(client: Client, omit: bool | None) -> None:
    await batch(client, [send("A"), send("B")])
    answer = await parent(
        client, [pull("A", 1, hold=1), pull("B", 1, hold=15_000)], omit=omit, timeout=10
    )
    found = decode_answers(answer.body)
    assert found[100].code == ResponseCode.PULL_NOT_FOUND
    assert found[100].ext_fields["nextBeginOffset"] == "1"
    if omit:
        assert 101 not in found
    else:
        assert found[101].code == ResponseCode.PULL_NOT_FOUND
        assert (found[101].remark, found[101].ext_fields) == (NOT_FOUND_REMARK, {})


async def test_a_renewed_child_waits_as_long_as_a_new_one(broker: Broker, client: Client) -> None:
    await batch(client, [send("A"), send("B")])
    quiet = pull("B", 1, hold=800)
    waiting = asyncio.create_task(
        parent(client, [pull("A", 1, hold=15_000), quiet], omit=True, timeout=10)
    )
    await until_held(broker, 2)
    await batch(client, [pull("B", 1, hold=500)])
    await client.send("A")
    await waiting
    renewed = asyncio.create_task(
        parent(client, [pull("A", 2, hold=15_000), quiet], omit=True, timeout=10)
    )
    await until_held(broker, 2)
    # One that is new, and waits for a little less, ends before it.
    new = asyncio.create_task(batch(client, [pull("B", 1, hold=600)]))
    done, _ = await asyncio.wait({renewed, new}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {new}
    await renewed


async def test_children_with_an_offset_keep_to_the_threshold(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(batch_pull_enough_bytes=3_000)
    client = await connect(broker)
    topics = [f"T{n}" for n in range(20)]
    await batch(client, [send(topic, bytes(1_000)) for topic in topics])
    flag = SUBSCRIPTION | COMMIT
    answers = await batch(client, [pull(t, sys_flag=flag, commit_offset=1) for t in topics])

    unread = [answer for answer in answers if answer.code == ResponseCode.PULL_NOT_FOUND]
    assert [answer.code for answer in answers].count(0) == 3
    assert len(unread) == 17
    assert {(answer.remark, len(answer.ext_fields)) for answer in unread} == {(NOT_FOUND_REMARK, 0)}
    assert [broker.tables.offsets.query("G", topic, 0) for topic in topics] == [1] * 20


async def test_a_child_with_an_offset_is_checked_beyond_the_threshold(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(batch_pull_enough_messages=1)
    client = await connect(broker)
    await batch(client, [send("A")])
    flag = SUBSCRIPTION | COMMIT
    for _ in range(20):  # whichever comes first
        answers = await batch(
            client,
            [pull("A"), pull("Missing", sys_flag=flag), pull("A", queue_id=9, sys_flag=flag)],
        )
        assert [answer.code for answer in answers[1:]] == [17, 29]


async def test_a_parent_over_the_frame_limit_closes_the_connection(
    broker: Broker,
) -> None:
    header = BatchRequestHeader(dispatch_code=310)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    # Its length is enough; our own client does not send such a frame.
    writer.write(encode_request(BATCH, 1, header, body_of([send("A", bytes(MAX_FRAME))]))[:64])
    assert await reader.read() == b""
    writer.close()
    assert broker.store.counters.messages_put == 0


async def test_a_request_is_not_executed_before_a_parent_that_was_sent_before_it(
    client: Client,
) -> None:
    await batch(client, [send("A")])
    await client.pull("A")  # makes the group known
    query = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="A", queue_id=0)
    for offset in range(10):
        commit = UpdateConsumerOffsetRequestHeader(
            consumer_group="G", topic="A", queue_id=0, commit_offset=offset
        )
        _, answer = await asyncio.gather(
            batch(client, [Child(15, commit)] * 2),
            client.request(RequestCode.QUERY_CONSUMER_OFFSET, query),
        )
        assert answer.ext_fields["offset"] == str(offset)


async def until_held(broker: Broker, count: int) -> None:
    async with asyncio.timeout(60):
        while held(broker) != count:  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)
