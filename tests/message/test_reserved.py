"""Every reserved property has one rule that says who may set it."""

from __future__ import annotations

from pocketmq.message import properties as names
from pocketmq.message.reserved import (
    BROKERS_OWN,
    NOT_IN_BATCHES,
    SET_BY,
    SetBy,
    drop_brokers_own,
    may_name,
)


def test_every_reserved_name_has_a_rule() -> None:
    assert set(SET_BY) == names.RESERVED


def test_what_only_the_broker_sets_is_dropped() -> None:
    properties = dict.fromkeys(names.RESERVED, "v")
    drop_brokers_own(properties)
    assert set(properties) == {name for name, by in SET_BY.items() if by is not SetBy.BROKER}
    assert names.RESERVED - set(properties) == BROKERS_OWN


def test_the_quick_search_finds_all_that_does_not_belong_into_a_batch() -> None:
    for name in NOT_IN_BATCHES:
        assert may_name(names.encode({"k": "v", name: "v"}).encode())
