"""Users and access lists: a table in memory, and the file that it is kept in.

The file contains passwords, so only its owner may read it (0600), and no copy of the previous
content is kept. A change is in memory at once, and `saved` returns when it is on the disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.auth.errors import AuthError
from pocketmq.auth.policies import Acl, Action, Decision, Entry, PolicyType, Resource
from pocketmq.auth.users import User, UserStatus, UserType, by_name
from pocketmq.regular_file import read_regular
from pocketmq.table_writer import TableWriter

AUTH_FILE: Final = "auth.json"
"""In the `config` directory of a broker's store."""
MAX_USERS: Final = 10_000
MAX_FILE: Final = 256 << 20
"""Bytes: of the most users, with two hundred entries each."""
_MODE: Final = 0o600


class AuthFileError(Exception):
    """The file with users and access lists cannot be used; the text names it and says why."""


class EntryInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """An entry in the form of the file and the admin requests."""

    resource: str = ""
    actions: list[str] = []
    source_ips: list[str] | None = None
    decision: str = ""

    @classmethod
    def of(cls, entry: Entry) -> EntryInfo:
        """Return the form of this entry."""
        actions = [action.value for action in Action if action in entry.actions]
        return cls(
            str(entry.resource), actions, list(entry.source_ips) or None, entry.decision.value
        )

    def entry(self) -> Entry:
        """Return the entry. Raises AuthError."""
        return Entry(
            Resource.parse(self.resource.strip()),
            frozenset(by_name(Action, name) for name in self.actions),
            by_name(Decision, self.decision),
            tuple(ip.strip() for ip in self.source_ips or ()),
        )


class PolicyInfo(msgspec.Struct, rename="camel"):
    """A policy in the same form."""

    policy_type: str | None = None
    entries: list[EntryInfo] = []


class AclInfo(msgspec.Struct, rename="camel"):
    """An access list in the same form."""

    subject: str | None = None
    policies: list[PolicyInfo] = []

    @classmethod
    def of(cls, name: str, acl: Acl, keep: Callable[[str], bool] = lambda text: True) -> AclInfo:
        """Return a user's list in this form, with the resources that `keep` takes."""
        policies = []
        for policy in PolicyType:
            entries = [EntryInfo.of(entry) for entry in acl.of(policy)]
            entries = [entry for entry in entries if keep(entry.resource)]
            if entries:
                policies.append(PolicyInfo(policy.value, entries))
        return cls(f"User:{name}", policies)

    def merged_into(self, acl: Acl) -> Acl:
        """Return `acl` with these entries. Raises AuthError."""
        if not any(policy.entries for policy in self.policies):
            raise AuthError("The policies is empty.")
        for policy in self.policies:
            kind = by_name(PolicyType, policy.policy_type or PolicyType.CUSTOM.value)
            acl = acl.merged(kind, [info.entry() for info in policy.entries])
        return acl


class UserInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """A user in the same form; fields that a request leaves out are None."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    @classmethod
    def of(cls, user: User, *, password: bool) -> UserInfo:
        """Return a user in this form, with the password only if asked to."""
        return cls(
            user.username,
            user.password if password else None,
            user.user_type.value,
            user.user_status.value,
        )

    def user(self, name: str, before: User | None = None) -> User:
        """Return the user; omitted fields are those of `before`. Raises AuthError."""
        password = self.password or (before.password if before is not None else "")
        kind = before.user_type if before is not None else UserType.NORMAL
        status = before.user_status if before is not None else UserStatus.ENABLE
        if self.user_type:
            kind = by_name(UserType, self.user_type)
        if self.user_status:
            status = by_name(UserStatus, self.user_status)
        return User(name, password, kind, status)

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r})"


class _Document(msgspec.Struct):
    users: list[UserInfo] = []
    acls: list[AclInfo] = []


class AuthTables:
    """The users and access lists of one process, in the file at `path`.

    `on_change` callbacks are called after each change in memory.

    Attributes:
        inner: the user of this server's own requests, from its settings; it is in no file.
        users: the others, by name.
        acls: the access lists, by the name of their user.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inner: User | None = None
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}
        self.on_change: list[Callable[[], None]] = []
        self._writer = TableWriter(path, self.encode, lambda content: write_secret(path, content))

    def load(self) -> None:
        """Read the file, if it exists. Blocks; raises AuthFileError."""
        try:
            users, acls = read_auth_file(self.path)
        except FileNotFoundError:
            return
        # Guards and others hold references to the tables.
        self.users.update(users)
        self.acls.update(acls)
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            if mode & 0o077 and os.name != "nt":
                self.path.chmod(_MODE)
        except OSError as error:
            raise AuthFileError(f"{self.path} cannot be read: {error.strerror}") from None

    def encode(self) -> bytes:
        """Return the content of the file."""
        document = _Document(
            [UserInfo.of(user, password=True) for user in self.users.values()],
            [AclInfo.of(name, acl) for name, acl in self.acls.items()],
        )
        return msgspec.json.format(msgspec.json.encode(document), indent=1)

    def start(self) -> None:
        """Write changes from now on; call this on the event loop."""
        self._writer.start()

    async def stop(self) -> None:
        """Write pending changes."""
        await self._writer.stop()

    async def saved(self) -> None:
        """Wait until all changes so far are on the disk. Raises RemotingError."""
        await self._writer.saved(self._writer.revision)

    def find(self, name: str) -> User | None:
        """Return the user of this name."""
        inner = self.inner
        return inner if inner is not None and inner.username == name else self.users.get(name)

    def put_user(self, user: User) -> None:
        """Create or replace a user. Raises AuthError for too many."""
        if user.username not in self.users and len(self.users) >= MAX_USERS:
            raise AuthError(f"there are {MAX_USERS} users already")
        self.users[user.username] = user
        self._changed()

    def delete_user(self, name: str) -> None:
        """Forget a user and their access list."""
        self.users.pop(name, None)
        self.acls.pop(name, None)
        self._changed()

    def put_acl(self, name: str, acl: Acl) -> None:
        """Set a user's access list; an empty one is forgotten."""
        if acl.custom or acl.default:
            self.acls[name] = acl
        else:
            self.acls.pop(name, None)
        self._changed()

    def adopt(self, users: Iterable[UserInfo], acls: Iterable[AclInfo]) -> None:
        """Take over the users and access lists of another server, which keeps them.

        Raises AuthError.
        """
        found = [info.user(info.username or "") for info in users]
        lists = {(acl.subject or "").removeprefix("User:"): acl for acl in acls if acl.policies}
        merged = {name: acl.merged_into(Acl()) for name, acl in lists.items()}
        # Guards and others hold references to the tables.
        self.acls.clear()
        self.acls.update(merged)
        self.users.clear()
        self.users.update((user.username, user) for user in found)
        for callback in self.on_change:
            callback()

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()
        self._writer.changed()


def read_auth_file(path: Path) -> tuple[dict[str, User], dict[str, Acl]]:
    """Return the users and access lists of a file, by name. Blocks.

    Raises:
        FileNotFoundError: it does not exist.
        AuthFileError: it cannot be used.
    """
    try:
        content = read_regular(path, MAX_FILE)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise AuthFileError(f"{path} cannot be read: {error.strerror}") from None
    users: dict[str, User] = {}
    acls: dict[str, Acl] = {}
    try:
        document = msgspec.json.decode(content, type=_Document)
        if len(document.users) > MAX_USERS:
            raise AuthError(f"it has {len(document.users)} users, {MAX_USERS} are allowed")
        for info in document.users:
            user = info.user(info.username or "")
            if user.username in users:
                # Which of the two has the rights that the operator knows of?
                raise AuthError(f"it has the user {user.username} twice")
            users[user.username] = user
        for acl in document.acls:
            name = (acl.subject or "").removeprefix("User:")
            if name in acls:
                raise AuthError(f"it has two access lists of the user {name:.255}")
            acls[name] = acl.merged_into(Acl())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AuthError) as error:
        # None of these texts contains a value of the file that could be a password.
        why = error.remark if isinstance(error, AuthError) else error
        raise AuthFileError(
            f"{path} is damaged ({why}): restore it from a copy, or move it away to "
            "start with initAuthenticationUser only"
        ) from None
    return users, acls


def write_secret(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read. Blocks; raises OSError.

    If the process dies, the old file or the new one is there, whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    fresh.unlink(missing_ok=True)  # its mode may differ
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    os.replace(fresh, path)
    if os.name != "nt":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
