"""The decision rules of access lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.auth.errors import AuthError
from pocketmq.auth.guard import Guard
from pocketmq.auth.policies import (
    Acl,
    Action,
    Decision,
    Entry,
    Kind,
    Pattern,
    PolicyType,
    Resource,
)
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User

ALLOW, DENY = Decision.ALLOW, Decision.DENY


def entry(
    resource: str, decision: Decision = ALLOW, *actions: Action, ips: tuple[str, ...] = ()
) -> Entry:
    chosen = frozenset(actions or (Action.ALL,))
    return Entry(Resource.parse(resource), chosen, decision, ips)


def decide(
    acl: Acl, name: str = "orders", action: Action = Action.PUB, ip: str = "10.0.0.1"
) -> Decision | None:
    return acl.at(ip).decide(Kind.TOPIC, name, action)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("*", "Topic:*"),
        ("Topic:*", "Topic:o*"),
        ("Topic:o*", "Topic:ord*"),
        ("Topic:ord*", "Topic:orders"),
        ("*", "Topic:orders"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_most_specific_resource_counts(wide: str, narrow: str, turned: bool) -> None:
    for first, second in ((ALLOW, DENY), (DENY, ALLOW)):
        entries = [entry(wide, first), entry(narrow, second)]
        acl = Acl(tuple(reversed(entries) if turned else entries))
        assert decide(acl) is second


def test_deny_wins_among_equals() -> None:
    custom = (entry("Topic:orders", ALLOW, Action.PUB), entry("Topic:orders", DENY, Action.ALL))
    assert decide(Acl(custom)) is DENY
    assert decide(Acl(custom[::-1])) is DENY


def test_no_entry_is_no_answer() -> None:
    assert decide(Acl()) is None
    acl = Acl((entry("Topic:orders", ALLOW, Action.SUB), entry("Group:orders"), entry("Topic:o")))
    assert decide(acl) is None


def test_the_default_policy_counts_only_without_a_custom_entry() -> None:
    acl = Acl((entry("Topic:*", DENY, Action.SUB),), (entry("Topic:orders"),))
    assert decide(acl, action=Action.SUB) is DENY
    assert decide(acl, action=Action.PUB) is ALLOW


@pytest.mark.parametrize(
    ("ips", "ip", "decision"),
    [
        (("10.0.0.1",), "10.0.0.1", ALLOW),
        (("10.0.0.1",), "10.0.0.2", None),
        (("192.168.0.0/16", "10.0.0.0/24"), "10.0.0.77", ALLOW),
        (("::1",), "::1", ALLOW),
        (("fd00::/8",), "fd12::9", ALLOW),
        (("fd00::/8",), "10.0.0.1", None),
        (("0.0.0.0/0",), "no address", None),
    ],
)
def test_source_addresses(ips: tuple[str, ...], ip: str, decision: Decision | None) -> None:
    assert decide(Acl((entry("Topic:orders", ips=ips),)), ip=ip) is decision


@pytest.mark.parametrize(
    "text", ["", "orders", "Topic:", "Topic", "Queue:a", "Topic:a*b", "Any:x", "Topic:" + "x" * 600]
)
def test_a_resource_that_cannot_be(text: str) -> None:
    with pytest.raises(AuthError):
        Resource.parse(text)


def test_an_entry_needs_actions_and_real_addresses() -> None:
    with pytest.raises(AuthError):
        Entry(Resource.parse("*"), frozenset(), ALLOW)
    with pytest.raises(AuthError):
        entry("*", ALLOW, ips=("10.0.0.0/33",))
    with pytest.raises(AuthError, match="neither an address"):
        entry("*", ALLOW, ips=("fe80::1%" + 1000 * "x",))  # an address, with a name of an interface


def test_an_entry_replaces_that_of_its_resource() -> None:
    acl = Acl((entry("Topic:a"), entry("Topic:b")))
    merged = acl.merged(PolicyType.CUSTOM, [entry("Topic:a", DENY), entry("Topic:c")])
    assert [(str(e.resource), e.decision) for e in merged.custom] == [
        ("Topic:a", DENY),
        ("Topic:b", ALLOW),
        ("Topic:c", ALLOW),
    ]
    assert merged.without(PolicyType.CUSTOM, Resource.parse("Topic:a")).custom == merged.custom[1:]


names = st.text("ab", min_size=1, max_size=4)
resources = st.one_of(
    st.just("*"),
    st.just("Topic:*"),
    names.map("Topic:{}".format),
    names.map("Topic:{}*".format),
    names.map("Group:{}".format),
)
entries = st.builds(
    entry, resources, st.sampled_from(Decision), st.sampled_from([Action.PUB, Action.SUB])
)
acls = st.lists(entries, max_size=6).map(tuple)


@given(names.map("Topic:{}*".format) | resources)
def test_a_resource_reads_what_it_writes(text: str) -> None:
    assert str(Resource.parse(text)) == text


@given(acls, acls, names, st.sampled_from([Action.PUB, Action.SUB]))
def test_the_order_of_entries_means_nothing(
    custom: tuple[Entry, ...], default: tuple[Entry, ...], name: str, action: Action
) -> None:
    forth, back = Acl(custom, default), Acl(custom[::-1], default[::-1])
    assert decide(forth, name, action) is decide(back, name, action)


@given(acls, names, st.sampled_from([Action.PUB, Action.SUB]))
def test_a_literal_deny_always_holds(custom: tuple[Entry, ...], name: str, action: Action) -> None:
    acl = Acl((*custom, entry(f"Topic:{name}", DENY)))
    assert decide(acl, name, action) is DENY


@given(acls, names, st.sampled_from([Action.PUB, Action.SUB]))
def test_nothing_is_allowed_that_no_entry_allows(
    custom: tuple[Entry, ...], name: str, action: Action
) -> None:
    acl = Acl(tuple(e for e in custom if e.decision is DENY))
    assert decide(acl, name, action) is not ALLOW


@given(acls, names, st.sampled_from([Action.PUB, Action.SUB]))
def test_an_entry_about_something_else_changes_nothing(
    custom: tuple[Entry, ...], name: str, action: Action
) -> None:
    more = (*custom, entry(f"Topic:{name}c", DENY), entry(f"Group:{name}", DENY))
    assert decide(Acl(more), name, action) is decide(Acl(custom), name, action)


class Compared(str):
    """A name that counts how often names are compared with it."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_not_every_name_is_compared_with_every_entry() -> None:
    """A list of 10,000 names took a minute with an access list of 10,000 entries."""
    user, tables, pub = User("u", "password-1"), AuthTables(Path()), frozenset({Action.PUB})
    tables.put_user(user)
    names = [Compared(f"orders-{number}") for number in range(300)]
    granted = [Entry(Resource(Kind.TOPIC, Pattern.LITERAL, n), pub, ALLOW) for n in names]
    tables.put_acl(user.username, Acl(tuple(granted)))
    guard = Guard(tables)
    Compared.times = 0
    assert all(guard.may_send(user, f"orders-{number}", "10.0.0.1") for number in range(300))
    assert not any(guard.may_send(user, f"others-{number}", "10.0.0.1") for number in range(300))
    assert Compared.times < 300 * 10
