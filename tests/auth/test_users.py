"""Users, their file, and the signatures that they give."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pocketmq.auth.errors import AuthError
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.signature import ACCESS_KEY, SIGNATURE, key_of, sign, signed_by
from pocketmq.auth.store import AuthFileError, AuthTables, UserInfo
from pocketmq.auth.users import User, UserStatus, UserType, name_of

SECRET = "do-not-show-this"


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "x" * 300])
def test_a_name_that_cannot_be(name: str) -> None:
    with pytest.raises(AuthError):
        User(name, "password")


@pytest.mark.parametrize("password", ["", "  ", "x" * 2000])
def test_a_password_that_cannot_be(password: str) -> None:
    with pytest.raises(AuthError):
        User("alice", password)


@pytest.mark.parametrize("subject", ["", "alice", "User:", "Role:alice"])
def test_a_subject_that_cannot_be(subject: str) -> None:
    with pytest.raises(AuthError):
        name_of(subject)


def test_passwords_do_not_show() -> None:
    user = User("alice", SECRET)
    info = UserInfo.of(user, password=True)
    assert SECRET not in f"{user!r} {user} {info!r} {info}"
    assert SECRET not in str(user.__rich_repr__())


def test_a_signature_covers_fields_and_body() -> None:
    fields = {ACCESS_KEY: "alice", "topic": "T", "queueId": "1"}
    fields[SIGNATURE] = sign(SECRET, fields, b"body")
    assert signed_by(key_of(SECRET), fields, b"body", 479)
    assert not signed_by(key_of("other"), fields, b"body", 479)
    assert not signed_by(key_of(SECRET), fields, b"body!", 479)
    assert not signed_by(key_of(SECRET), fields | {"topic": "U"}, b"body", 479)
    assert not signed_by(key_of(SECRET), fields | {SIGNATURE: ""}, b"body", 479)
    assert not signed_by(key_of(SECRET), fields | {SIGNATURE: "\ud800é"}, b"body", 479)
    del fields[SIGNATURE]
    assert not signed_by(key_of(SECRET), fields, b"body", 479)


def test_old_clients_do_not_sign_the_flag_of_unique_keys() -> None:
    fields = {ACCESS_KEY: "alice", "topic": "T"}
    fields[SIGNATURE] = sign(SECRET, fields)
    fields["_UNIQUE_KEY_QUERY"] = "true"
    assert signed_by(key_of(SECRET), fields, b"", 399)
    assert not signed_by(key_of(SECRET), fields, b"", 400)


ENTRY = Entry(Resource.parse("Topic:a*"), frozenset({Action.PUB}), Decision.ALLOW, ("10.0.0.0/8",))


@pytest.fixture
async def open_tables(tmp_path: Path) -> AsyncIterator[Callable[[], AuthTables]]:
    opened = []

    def open_tables() -> AuthTables:
        tables = AuthTables(tmp_path / "config" / "auth.json")
        tables.load()
        tables.start()
        opened.append(tables)
        return tables

    yield open_tables
    for tables in opened:
        await tables.stop()


async def test_the_file_keeps_users_and_lists(open_tables: Callable[[], AuthTables]) -> None:
    tables = open_tables()
    alice = User("alice", SECRET, UserType.SUPER, UserStatus.DISABLE)
    tables.put_user(alice)
    tables.put_user(User("bob", "b"))
    tables.put_acl("bob", Acl((ENTRY,), (ENTRY,)))
    await tables.saved()

    again = open_tables()
    assert again.users == tables.users
    assert again.users["alice"] == alice
    assert again.acls == {"bob": Acl((ENTRY,), (ENTRY,))}

    again.delete_user("bob")
    await again.saved()
    last = open_tables()
    assert set(last.users) == {"alice"}
    assert not last.acls


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
async def test_only_the_owner_may_read_the_file(open_tables: Callable[[], AuthTables]) -> None:
    tables = open_tables()
    old = os.umask(0)
    try:
        tables.put_user(User("alice", SECRET))
        await tables.saved()
    finally:
        os.umask(old)
    assert stat.S_IMODE(tables.path.stat().st_mode) == 0o600
    assert [path.name for path in tables.path.parent.iterdir()] == ["auth.json"]

    tables.path.chmod(0o644)
    open_tables()
    assert stat.S_IMODE(tables.path.stat().st_mode) == 0o600


def test_a_pipe_or_device_instead_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "auth.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    for name in ("auth.json", "device.json"):
        with pytest.raises(AuthFileError, match=rf"{name} cannot be read: it is not a regular"):
            AuthTables(tmp_path / name).load()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"users":[{"username":"a","password":7}]}',
        b'{"users":[{"password":"x"}]}',
        b'{"x":' * 100_000,
        b'{"users":[{"username":"a","password":"x"},{"username":"a","password":"y"}]}',
        b'{"acls":[%b,%b]}' % ((b'{"subject":"User:a","policies":[{"entries":[]}]}',) * 2),
        b'{"users":[%b]}'
        % b",".join(b'{"username":"u%d","password":"x"}' % n for n in range(10_001)),
    ],
    ids=range(8),
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "auth.json"
    path.write_bytes(content)
    with pytest.raises(AuthFileError, match=r"auth\.json"):
        AuthTables(path).load()
