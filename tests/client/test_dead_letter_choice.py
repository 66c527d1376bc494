"""Why a dead letter died, and which ones a choice has."""

from __future__ import annotations

from typing import Any

import pytest

from pocketmq.client.admin.dead_letters import Choice, Death, death_of
from pocketmq.message import properties as names
from pocketmq.message.message import MessageExt

WHY = {
    "DLQ_REASON": "the Bank is away",
    "DLQ_EXCEPTION": "shop.errors.BankClosed",
    "DLQ_CONSUMER": "192.0.2.7@12",
    "DLQ_ATTEMPTS": "3",
    "UNIQ_KEY": "id",
    "TAGS": "paid",
    "KEYS": "a b",
}


def dead(reconsume_times: int = 3, **changes: str) -> MessageExt:
    text = names.encode(WHY | changes).encode()
    return MessageExt(
        "%DLQ%G", b"", text, 0, 0, 0, 0, 0, 0, b"", 5000, b"", reconsume_times, 0, 0, 0, "a"
    )


def test_a_death_is_told_as_a_traceback_ends() -> None:
    death = death_of(dead())
    assert death == Death("the Bank is away", "shop.errors.BankClosed", "192.0.2.7@12")
    assert str(death) == "BankClosed: the Bank is away"
    assert str(Death(None, "ValueError", "c")) == "ValueError"
    assert str(Death("asked for it", None, "c")) == "asked for it"
    assert str(Death()) == ""


def test_what_a_client_kept_of_an_earlier_death_does_not_count() -> None:
    assert death_of(dead(reconsume_times=4)) == Death()
    assert not Choice(reason="bank").has(dead(reconsume_times=4))


@pytest.mark.parametrize(
    ("choice", "has"),
    [
        ({}, True),
        ({"msg_id": "id"}, True),
        ({"msg_id": "other"}, False),
        ({"tag": "paid"}, True),
        ({"tag": "pai"}, False),
        ({"key": "b"}, True),
        ({"key": "a b"}, False),
        ({"reason": "BANK is"}, True),
        ({"reason": "customer"}, False),
        ({"exception": "BankClosed"}, True),
        ({"exception": "shop.errors.BankClosed"}, True),
        ({"exception": "errors.BankClosed"}, False),
        ({"begin": 5000}, True),
        ({"begin": 5001}, False),
        ({"end": 5001}, True),
        ({"end": 5000}, False),
        ({"tag": "paid", "key": "none"}, False),
    ],
)
def test_a_choice_wants_all_that_it_names(choice: dict[str, Any], has: bool) -> None:
    assert Choice(**choice).has(dead()) is has
