"""Converts users and access lists of official brokers. No I/O.

Two sources: the `plain_acl.yml` of ACL 1.0 (up to RocketMQ 5.2), by the rules of
`migrateAuthFromV1Enabled`, and the two RocksDB tables of ACL 2.0.

ACL 1.0 has fewer concepts: an admin becomes a super user, permissions of topics and groups become
entries of the Custom policy, default permissions entries for `Topic:*` and `Group:*` of the Default
policy. White lists of addresses have no counterpart; omissions are reported.
Reference: auth AuthMigrator, LocalAuthorizationMetadataProvider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from pocketmq.auth.errors import AuthError
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
from pocketmq.auth.users import User, UserStatus, UserType, name_of

_PUB_SUB: Final = {
    "PUB": frozenset((Action.PUB,)),
    "SUB": frozenset((Action.SUB,)),
    "PUB|SUB": frozenset((Action.PUB, Action.SUB)),
    "SUB|PUB": frozenset((Action.PUB, Action.SUB)),
    "ANY": frozenset((Action.PUB, Action.SUB)),
}
#: The numbers of the official tables.
_KINDS: Final = dict(enumerate(Kind, 1))
_PATTERNS: Final = dict(enumerate(Pattern, 1))
#: 2 is Any, which only requests have.
_ACTIONS: Final = {1: Action.ALL, **dict(enumerate(list(Action)[1:], 3))}


class SourceError(ValueError):
    """A source cannot be read; the text says which and why, without passwords."""


class Imported(msgspec.Struct):
    """The content of a source.

    Attributes:
        left_out: a line for each thing that has no counterpart here.
    """

    users: list[User] = []
    acls: dict[str, Acl] = {}
    left_out: list[str] = []


class _Account(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def __repr__(self) -> str:
        return f"_Account({self.access_key!r})"


class _PlainAcl(msgspec.Struct, rename="camel"):
    global_white_remote_addresses: list[str] | None = None
    accounts: list[_Account] | None = None


def of_plain_acl(content: object, name: str) -> Imported:
    """Read the content of a plain_acl.yml: the output of a YAML parser, with scalars as texts.

    Raises SourceError.
    """
    try:
        plain = msgspec.convert(content or {}, _PlainAcl, strict=False)
    except msgspec.ValidationError as error:
        raise SourceError(f"{name} is not a plain_acl.yml: {error}") from None
    found = Imported()
    if plain.global_white_remote_addresses:
        found.left_out.append(f"{name}: globalWhiteRemoteAddresses: everybody has to sign here")
    for account in plain.accounts or ():
        key = account.access_key
        try:
            kind = UserType.SUPER if account.admin else UserType.NORMAL
            found.users.append(User(key, account.secret_key, kind))
            acl = _acl_of(account, f"{name}: account {key}")
        except AuthError as error:
            raise SourceError(f"{name}: account {key}: {error.remark}") from None
        if account.white_remote_address:
            found.left_out.append(f"{name}: account {key}: whiteRemoteAddress: it has to sign here")
        if acl.custom or acl.default:
            found.acls[key] = acl
    return found


def _acl_of(account: _Account, where: str) -> Acl:
    custom = [
        *_entries(Kind.TOPIC, account.topic_perms or (), where),
        *_entries(Kind.GROUP, account.group_perms or (), where),
    ]
    defaults = [
        _entry(Resource(kind, Pattern.ANY), perm)
        for kind, perm in (
            (Kind.TOPIC, account.default_topic_perm),
            (Kind.GROUP, account.default_group_perm),
        )
        if perm is not None
    ]
    return Acl().merged(PolicyType.CUSTOM, custom).merged(PolicyType.DEFAULT, defaults)


def _entries(kind: Kind, perms: Iterable[str], where: str) -> Iterable[Entry]:
    for text in perms:
        name, equals, perm = text.partition("=")
        if not equals or not name.strip():
            raise AuthError(f"{text[:80]!r} is not NAME=PERMISSION")
        yield _entry(Resource(kind, Pattern.LITERAL, name.strip()), perm)


def _entry(resource: Resource, perm: str) -> Entry:
    """Text that RocketMQ does not know is DENY there, and here."""
    actions = _PUB_SUB.get("".join(perm.upper().split()))
    if actions is None:
        return Entry(resource, frozenset((Action.ALL,)), Decision.DENY)
    return Entry(resource, actions, Decision.ALLOW)


Number = Annotated[int, Meta(ge=1)]


class _UserRow(msgspec.Struct, rename="camel"):
    username: str
    password: str
    user_type: Number = 2
    user_status: Number = 1

    def __repr__(self) -> str:
        return f"_UserRow({self.username!r})"


class _ResourceRow(msgspec.Struct, rename="camel"):
    resource_type: Number
    resource_pattern: Number
    resource_name: str | None = None


class _Environment(msgspec.Struct, rename="camel"):
    source_ips: list[str] | None = None


class _EntryRow(msgspec.Struct, rename="camel"):
    resource: _ResourceRow
    actions: list[Number]
    decision: Number
    environment: _Environment | None = None


class _PolicyRow(msgspec.Struct, rename="camel"):
    policy_type: Number = 1
    entries: list[_EntryRow] = []


class _AclRow(msgspec.Struct, rename="camel"):
    policies: list[_PolicyRow] = []


def of_rocksdb(users: Mapping[str, bytes], acls: Mapping[str, bytes]) -> Imported:
    """Read the rows of the tables `users` (by name) and `acls` (by subject). Raises SourceError."""
    try:
        return _of_rocksdb(users, acls)
    except AuthError as error:
        raise SourceError(error.remark) from None


def _of_rocksdb(users: Mapping[str, bytes], acls: Mapping[str, bytes]) -> Imported:
    found = Imported()
    for name, row in users.items():
        one = _decoded(row, _UserRow, f"user {name}")
        kind = UserType.SUPER if one.user_type == 1 else UserType.NORMAL
        status = UserStatus.ENABLE if one.user_status == 1 else UserStatus.DISABLE
        found.users.append(User(one.username, one.password, kind, status))
    known = {user.username for user in found.users}
    for subject, row in acls.items():
        name = name_of(subject)
        if name not in known:
            found.left_out.append(f"the access list of {subject}: there is no such user")
            continue
        acl = Acl()
        for policy in _decoded(row, _AclRow, f"access list of {subject}").policies:
            which = PolicyType.DEFAULT if policy.policy_type == 2 else PolicyType.CUSTOM
            acl = acl.merged(which, [_of_row(entry, subject) for entry in policy.entries])
        found.acls[name] = acl
    return found


def _of_row(row: _EntryRow, subject: str) -> Entry:
    try:
        kind, pattern = _KINDS[row.resource.resource_type], _PATTERNS[row.resource.resource_pattern]
        actions = frozenset(_ACTIONS[number] for number in row.actions)
    except KeyError as error:
        raise AuthError(f"access list of {subject}: the number {error} is unknown") from None
    ips = row.environment.source_ips if row.environment is not None else None
    return Entry(
        Resource(kind, pattern, row.resource.resource_name or ""),
        actions,
        Decision.ALLOW if row.decision == 1 else Decision.DENY,
        tuple(ips or ()),
    )


def _decoded(row: bytes, kind: type[Any], what: str) -> Any:
    try:
        return msgspec.json.decode(row, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the text: it contains a password.
        raise AuthError(f"{what}: the row cannot be read") from None
