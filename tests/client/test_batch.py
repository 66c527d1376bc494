from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.errors import InvalidMessage, InvalidName
from pocketmq.client.producer.batch import MAX_BATCH_MESSAGES, BatchPart, split
from pocketmq.client.producer.prepared_message import prepare
from pocketmq.message import properties as names
from pocketmq.message.batch_body import iter_batch
from pocketmq.message.message import Message

MAX = 4 * 1024 * 1024


def parts_of(messages: list[Message], max_bytes: int = MAX) -> list[BatchPart]:
    ids = count()
    return split(messages, lambda: f"ID{next(ids)}", max_bytes=max_bytes, max_message_size=MAX)


messages = st.lists(
    st.builds(
        Message,
        topic=st.sampled_from(["A", "B"]),
        body=st.binary(min_size=1, max_size=300),
        tags=st.none() | st.sampled_from(["x", "y"]),
        keys=st.lists(st.sampled_from(["k1", "k2"]), max_size=2),
        properties=st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["1", "ü"])),
        flag=st.integers(-(2**31), 2**31 - 1),
        wait_stored=st.booleans(),
    ),
    max_size=40,
)


@given(messages, st.integers(1, 2000))
def test_every_message_is_in_one_batch_of_its_kind_in_order(
    given_messages: list[Message], max_bytes: int
) -> None:
    seen: list[int] = []
    parts = parts_of(given_messages, max_bytes)
    for part in parts:
        assert part.indexes == sorted(part.indexes)
        assert len(part.indexes) == len(part.msg_ids) > 0
        outgoing = part.outgoing()
        # Only a message that is too large for any batch may break the bound.
        assert len(outgoing.body) == part.body.size
        assert part.body.size <= max_bytes or len(part.msg_ids) == 1
        assert outgoing.topic == part.topic
        items = list(iter_batch(outgoing.body))
        for index, item, msg_id in zip(part.indexes, items, part.msg_ids, strict=True):
            message = given_messages[index]
            assert (message.topic, message.wait_stored) == (part.topic, part.wait_stored)
            assert (item.flag, bytes(item.body)) == (message.flag, message.body)
            # The broker appends the header's properties to those of each message.
            told = names.decode(item.properties.decode() + outgoing.properties)
            assert told == names.decode(prepare(message, msg_id).properties)
        seen += part.indexes
    assert sorted(seen) == list(range(len(given_messages)))
    by_kind: dict[tuple[str, bool], int] = {}
    for part in parts:
        kind = (part.topic, part.wait_stored)
        assert part.indexes[0] > by_kind.get(kind, -1)
        by_kind[kind] = part.indexes[-1]


def test_batches_are_as_full_as_they_can_be() -> None:
    one = parts_of([Message("T", b"x" * 100)])[0].body.size
    parts = parts_of([Message("T", b"x" * 100) for _ in range(10)], one * 4)
    assert [len(part.indexes) for part in parts] == [4, 4, 2]


def test_a_body_that_changes_later_changes_nothing() -> None:
    body = bytearray(b"first")
    (part,) = parts_of([Message("T", body), Message("T", memoryview(body))])  # type: ignore[arg-type]
    body[:5] = b"other"
    assert [bytes(item.body) for item in iter_batch(part.outgoing().body)] == [b"first"] * 2


def test_each_message_has_an_id_of_its_own() -> None:
    (part,) = parts_of([Message("T", b"x") for _ in range(3)])
    assert len(set(part.msg_ids)) == 3


def test_nothing_gives_nothing() -> None:
    assert parts_of([]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        Message("T", b"x", delay_level=1),
        Message("%RETRY%group", b"x"),
        Message("T", b""),
        Message("T", b"x", properties={"KEYS": "k"}),
        Message("T", b"x", properties={"p": "x" * 33_000}),
        Message("T", bytes(MAX + 1)),
        Message("SCHEDULE_TOPIC_XXXX", b"x"),
    ],
)
def test_one_wrong_message_refuses_the_list(wrong: Message) -> None:
    with pytest.raises(InvalidMessage):
        parts_of([Message("T", b"x"), wrong])


def test_a_bad_topic_refuses_the_list() -> None:
    with pytest.raises(InvalidName):
        parts_of([Message("T", b"x"), Message("no topic", b"x")])


def test_the_messages_of_a_batch_are_bounded_in_number() -> None:
    parts = parts_of([Message("A", b"x")] * (MAX_BATCH_MESSAGES + 1))
    assert [len(part.msg_ids) for part in parts] == [MAX_BATCH_MESSAGES, 1]
