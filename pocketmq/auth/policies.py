"""Access lists: which resources a user may use, how, and from where.

The decision on one wanted action: of all entries that match resource, action and source address,
the one with the most specific resource counts. A literal name comes before a prefix, a longer
prefix before a shorter one, then `Type:*`, then `*`. If Allow and Deny are equally specific, Deny
wins. Entries of the Default policy count only if none of the Custom policy matches. If no entry
matches at all, the answer is no. (The reference sorts short prefixes first, and Allow before
Deny.)
Reference: auth Resource, PolicyEntry, AclAuthorizationHandler.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from pocketmq.auth.errors import AuthError
from pocketmq.auth.users import by_name

MAX_RESOURCE: Final = 512  # characters
MAX_ENTRIES: Final = 10_000  # of one access list
MAX_SOURCE_IPS: Final = 1_000  # of one entry
MAX_SOURCE_IP: Final = 64  # characters; the longest address has 45, and its prefix 4


class Kind(StrEnum):
    """The type of a resource."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"

    # That of Enum is in Python, and takes longer than the rest of a decision.
    __hash__ = str.__hash__


class Action(StrEnum):
    """An action on a resource; ALL stands for every other one."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"

    __hash__ = str.__hash__


class Decision(StrEnum):
    """The decision of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """The Default policy counts only if no entry of the Custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Pattern(StrEnum):
    """How the name of a resource is compared."""

    ANY = "ANY"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Resource(msgspec.Struct, frozen=True):
    """The resource of an entry: `*`, `Topic:name`, `Topic:prefix*`, `Topic:*`, and so on."""

    kind: Kind
    pattern: Pattern
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Read the form that `str` gives. Raises AuthError."""
        if text == "*":
            return cls(Kind.ANY, Pattern.ANY)
        kind_name, colon, name = text.partition(":")
        if not colon or not name or len(text) > MAX_RESOURCE:
            raise AuthError(
                f"the resource {text[:80]!r} is not *, TYPE:NAME, TYPE:PREFIX* or TYPE:*, with "
                f"at most {MAX_RESOURCE} characters"
            )
        kind = by_name(Kind, kind_name)
        if kind is Kind.ANY:
            raise AuthError(f"the resource {text[:80]!r}: write * for every resource")
        if "*" in name[:-1]:
            raise AuthError(f"the resource {text[:80]!r} has a * that is not at its end")
        if name == "*":
            return cls(kind, Pattern.ANY)
        if name.endswith("*"):
            return cls(kind, Pattern.PREFIXED, name[:-1])
        return cls(kind, Pattern.LITERAL, name)

    def __str__(self) -> str:
        if self.kind is Kind.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.kind.value}:{self.name}{star}"


class Entry(msgspec.Struct, frozen=True):
    """One line of a policy; without source addresses it applies to all of them."""

    resource: Resource
    actions: frozenset[Action]
    decision: Decision
    source_ips: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.actions:
            raise AuthError("The actions is empty.")
        if len(self.source_ips) > MAX_SOURCE_IPS:
            raise AuthError(f"an entry has more than {MAX_SOURCE_IPS} source addresses")
        for text in self.source_ips:
            if len(text) > MAX_SOURCE_IP or _network(text) is None:
                raise AuthError(f"the source ip {text[:80]!r} is neither an address nor a CIDR")

    def applies(self, action: Action, source_ip: str) -> bool:
        """Whether it applies to this action on its resource, by a client at this address."""
        return (action in self.actions or Action.ALL in self.actions) and (
            not self.source_ips or _within(source_ip, self.source_ips)
        )


class Acl(msgspec.Struct, frozen=True, dict=True):
    """The access list of one user."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def of(self, policy: PolicyType) -> tuple[Entry, ...]:
        """Return the entries of one of the two policies."""
        return self.custom if policy is PolicyType.CUSTOM else self.default

    def replaced(self, policy: PolicyType, entries: tuple[Entry, ...]) -> Acl:
        """Return the list with other entries of this policy. Raises AuthError for too many."""
        if len(entries) > MAX_ENTRIES:
            raise AuthError(f"an access list has at most {MAX_ENTRIES} entries")
        if policy is PolicyType.CUSTOM:
            return Acl(entries, self.default)
        return Acl(self.custom, entries)

    def merged(self, policy: PolicyType, entries: Sequence[Entry]) -> Acl:
        """Return the list with these entries; each replaces the one with the same resource."""
        table = {entry.resource: entry for entry in self.of(policy)}
        table.update((entry.resource, entry) for entry in entries)
        return self.replaced(policy, tuple(table.values()))

    def without(self, policy: PolicyType, resource: Resource) -> Acl:
        """Return the list without the entry of this resource."""
        kept = tuple(entry for entry in self.of(policy) if entry.resource != resource)
        return self.replaced(policy, kept)

    def at(self, source_ip: str) -> Decisions:
        """Return the list's decisions on what a client at this address wants to do."""
        return Decisions(self._policies, source_ip)

    @cached_property
    def _policies(self) -> tuple[_Policy, ...]:
        return tuple(_Policy(entries) for entries in (self.custom, self.default) if entries)


class Decisions:
    """The decisions of an access list on many wanted actions, from one address."""

    def __init__(self, policies: Iterable[_Policy], source_ip: str) -> None:
        self._policies = policies
        self._source_ip = source_ip
        # Those of the entries of a resource, such as a prefix that many names have.
        self._known: dict[tuple[int, Action], Decision | None] = {}

    def decide(self, kind: Kind, name: str, action: Action) -> Decision | None:
        """Return the decision on an action on a single resource; None if no entry matches."""
        for policy in self._policies:
            for entries in policy.matching(kind, name):
                key = (id(entries), action)
                try:
                    decision = self._known[key]
                except KeyError:
                    decision = self._known[key] = self._of(entries, action)
                if decision is not None:
                    return decision
        return None

    def _of(self, entries: Iterable[Entry], action: Action) -> Decision | None:
        found = [each.decision for each in entries if each.applies(action, self._source_ip)]
        if not found:
            return None
        return Decision.DENY if Decision.DENY in found else Decision.ALLOW


class _Policy:
    """The entries of a policy by their resources, of which 10,000 may be in it. A request may name
    as many groups, so not every name is compared with every entry."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._literals: dict[tuple[Kind, str], list[Entry]] = {}
        self._prefixes: dict[tuple[Kind, str], list[Entry]] = {}
        self._every: dict[Kind, list[Entry]] = {}
        lengths: dict[Kind, set[int]] = {}
        for entry in entries:
            kind, name = entry.resource.kind, entry.resource.name
            if entry.resource.pattern is Pattern.LITERAL:
                self._literals.setdefault((kind, name), []).append(entry)
            elif entry.resource.pattern is Pattern.PREFIXED:
                self._prefixes.setdefault((kind, name), []).append(entry)
                lengths.setdefault(kind, set()).add(len(name))
            else:
                self._every.setdefault(kind, []).append(entry)
        # Of the prefixes, the longest first.
        self._lengths = {kind: sorted(each, reverse=True) for kind, each in lengths.items()}

    def matching(self, kind: Kind, name: str) -> Iterator[list[Entry]]:
        """Yield the entries of each resource that matches, those of the most specific first."""
        if entries := self._literals.get((kind, name)):
            yield entries
        for length in self._lengths.get(kind, ()):
            if length <= len(name) and (entries := self._prefixes.get((kind, name[:length]))):
                yield entries
        for every in (kind, Kind.ANY):
            if entries := self._every.get(every):
                yield entries


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(maxsize=4096)
def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _within(source_ip: str, networks: Iterable[str]) -> bool:
    try:
        address = ipaddress.ip_address(source_ip)
    except ValueError:
        return False
    return any((n := _network(text)) is not None and address in n for text in networks)
