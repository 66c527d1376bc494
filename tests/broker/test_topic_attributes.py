"""Changes of topic attributes, as mqadmin writes them."""

from __future__ import annotations

import pytest

from pocketmq.broker.tables.attributes import (
    AttributeChangeError,
    apply_changes,
    parse_changes,
)


def test_text_of_changes() -> None:
    assert parse_changes("") == {}
    assert parse_changes("+message.type=FIFO,-reserve.time") == {
        "+message.type": "FIFO",
        "-reserve.time": "",
    }


@pytest.mark.parametrize("text", ["message.type=FIFO", "+message.type", "-a=1", "+a=1,+a=2", ","])
def test_malformed_text(text: str) -> None:
    with pytest.raises(AttributeChangeError):
        parse_changes(text)


def test_adding_changing_and_deleting() -> None:
    created = apply_changes(None, {"+message.type": "FIFO", "+cleanup.policy": "DELETE"})
    assert created == {"message.type": "FIFO", "cleanup.policy": "DELETE"}

    lite = {"+message.type": "LITE", "+lite.topic.expiration": "43200"}
    assert apply_changes(None, lite) == {"message.type": "LITE", "lite.topic.expiration": "43200"}
    assert apply_changes({}, {"+message.type": "PRIORITY"}) == {"message.type": "PRIORITY"}

    changed = apply_changes(created, {"+message.type": "NORMAL"})
    assert changed["message.type"] == "NORMAL"
    assert apply_changes(changed, {"-message.type": ""}) == {"cleanup.policy": "DELETE"}


@pytest.mark.parametrize(
    ("current", "changes", "reason"),
    [
        (None, {"-message.type": ""}, "only add"),
        ({}, {"-message.type": ""}, "nonexistent"),
        (None, {"+no.such": "1"}, "unsupported key"),
        (None, {"+message.type": "ODD"}, "not in set"),
        ({}, {"+lite.topic.expiration": "43201"}, "not in range"),
        ({}, {"+lite.topic.expiration": "-2"}, "not in range"),
        (None, {"+queue.type": "BatchCQ"}, "batch consume queues"),
        (None, {"+cleanup.policy": "COMPACTION"}, "compaction"),
        ({}, {"+cleanup.policy": "DELETE"}, "unchangeable"),
        (None, {"+reserve.time": "1"}, "not supported"),
        (None, {"message.type": "FIFO"}, "wrong format"),
        (None, {"+": "FIFO"}, "wrong format"),
        ({"message.type": "FIFO"}, {"+message.type": "MIXED", "-message.type": ""}, "duplication"),
    ],
)
def test_refused_changes(
    current: dict[str, str] | None, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(AttributeChangeError, match=reason):
        apply_changes(current, changes)
