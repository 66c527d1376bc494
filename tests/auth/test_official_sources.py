"""Users and access lists of official brokers, read and imported."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.official_sources import SourceError, of_plain_acl, of_rocksdb
from pocketmq.auth.policies import Acl, Action, Decision, Kind
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.cli import main
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.serving.service import ExitCode
from tests.unprivileged import unprivileged

PLAIN = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC= SUB
    groupPerms:
      - groupA=DENY
  - accessKey: rocketmq2
    secretKey: "87654321"
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""

#: As a broker of 5.3.3 stores them.
USERS = {
    "alice": b'{"password":"p","subjectType":1,"userStatus":1,"userType":2,"username":"alice"}',
    "root": b'{"password":"r","subjectType":1,"userStatus":2,"userType":1,"username":"root"}',
}
ACLS = {
    "User:alice": (
        b'{"policies":[{"entries":[{"actions":[3,4],"decision":1,"environment":'
        b'{"sourceIps":["10.0.0.0/8"]},"resource":{"resourceName":"TN","resourcePattern":2,'
        b'"resourceType":4}},{"actions":[1],"decision":2,"environment":{},"resource":'
        b'{"resourceName":"pre","resourcePattern":3,"resourceType":5}}],"policyType":1}],'
        b'"subject":{"subjectType":1,"username":"alice"}}'
    ),
    "User:gone": b'{"policies":[]}',
}


def plain() -> Any:
    yaml = pytest.importorskip("yaml", reason="pip install 'pocketmq[acl]'")
    return yaml.load(PLAIN, Loader=yaml.BaseLoader)


def decision(acl: Acl, kind: Kind, name: str, action: Action) -> Decision | None:
    return acl.at("127.0.0.1").decide(kind, name, action)


def test_accounts_become_users_and_their_permissions_entries() -> None:
    found = of_plain_acl(plain(), "plain_acl.yml")
    assert found.users == [
        User("RocketMQ", "12345678"), User("rocketmq2", "87654321", UserType.SUPER),
    ]  # fmt: skip
    acl = found.acls["RocketMQ"]
    allowed = [
        (kind, name, action)
        for kind, names in ((Kind.TOPIC, "ABCD"), (Kind.GROUP, "AB"))
        for name in (f"{kind.value.lower()}{letter}" for letter in names)
        for action in (Action.PUB, Action.SUB)
        if decision(acl, kind, name, action) is Decision.ALLOW
    ]
    assert allowed == [
        (Kind.TOPIC, "topicB", Action.PUB),
        (Kind.TOPIC, "topicB", Action.SUB),
        (Kind.TOPIC, "topicC", Action.SUB),
        (Kind.GROUP, "groupB", Action.SUB),
    ]
    assert "rocketmq2" not in found.acls
    assert [line.partition(": ")[2] for line in found.left_out] == [
        "globalWhiteRemoteAddresses: everybody has to sign here",
        "account rocketmq2: whiteRemoteAddress: it has to sign here",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([1], "is not a plain_acl.yml"),
        ({"accounts": [{"accessKey": "a"}]}, "secretKey"),
        ({"accounts": [{"accessKey": "a", "secretKey": " "}]}, "account a: password"),
        (
            {"accounts": [{"accessKey": "a", "secretKey": "b", "topicPerms": ["T"]}]},
            "'T' is not NAME=PERMISSION",
        ),
    ],
)
def test_what_is_wrong_is_said(content: object, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        of_plain_acl(content, "plain_acl.yml")


def test_rows_of_rocksdb_are_read() -> None:
    found = of_rocksdb(USERS, ACLS)
    assert found.users == [
        User("alice", "p"), User("root", "r", UserType.SUPER, UserStatus.DISABLE),
    ]  # fmt: skip
    first, second = found.acls["alice"].custom
    assert (str(first.resource), first.actions, first.source_ips) == (
        "Topic:TN", frozenset((Action.PUB, Action.SUB)), ("10.0.0.0/8",),
    )  # fmt: skip
    assert (str(second.resource), second.actions, second.decision) == (
        "Group:pre*", frozenset((Action.ALL,)), Decision.DENY,
    )  # fmt: skip
    assert found.left_out == ["the access list of User:gone: there is no such user"]


def test_a_damaged_row_is_named_without_its_content() -> None:
    with pytest.raises(SourceError, match="user alice: the row cannot be read") as caught:
        of_rocksdb({"alice": b'{"password":"secret"'}, {})
    assert "secret" not in str(caught.value)


def test_the_command_imports_files_of_acl_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain()
    source, file = tmp_path / "plain_acl.yml", tmp_path / "config" / "auth.json"
    source.write_text(PLAIN)
    assert main(["auth", "import", str(source), str(file), "--dry-run"]) == ExitCode.OK
    assert not file.exists()
    assert main(["auth", "import", str(source), str(file)]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[-1] == "imported 2 users"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tables = AuthTables(file)
    tables.load()
    assert tables.users["rocketmq2"].is_super
    # Once more: everything is there, and what was changed since stays.
    assert main(["auth", "import", str(source), str(file), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["known"] == ["RocketMQ", "rocketmq2"]


def test_the_command_imports_the_tables_of_acl_2(tmp_path: Path) -> None:
    rocksdict = pytest.importorskip("rocksdict", reason="pip install 'pocketmq[acl]'")
    for name, rows in (("users", USERS), ("acls", ACLS)):
        table = rocksdict.Rdict(str(tmp_path / "config" / name), rocksdict.Options(raw_mode=True))
        for key, value in rows.items():
            table[key.encode()] = value
        for family in ("kvDataVersion", "forbidden"):
            table.create_column_family(family, rocksdict.Options(raw_mode=True))
        table.close()
    file = tmp_path / "auth.json"
    assert main(["auth", "import", str(tmp_path / "config"), str(file)]) == ExitCode.OK
    tables = AuthTables(file)
    tables.load()
    assert sorted(tables.users) == ["alice", "root"]
    assert list(tables.acls) == ["alice"]


@pytest.mark.parametrize("content", ["a: [", "accounts: 5", "\x00"])
def test_a_source_that_cannot_be_read_is_an_error(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain()
    (tmp_path / "plain_acl.yml").write_text(content)
    code = main(["auth", "import", str(tmp_path / "plain_acl.yml"), str(tmp_path / "auth.json")])
    assert code == ExitCode.STORE_CORRUPT
    assert "plain_acl.yml" in capsys.readouterr().err


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (LAUGHS + "accounts: *a11\n", "more than 1000000 values"),
        ("accounts: &a [*a]\n", "is not YAML"),
        ("accounts: " + "[" * 30 + "]" * 30, "deeper than 20 levels"),
        ("[" * 5_000, "is not YAML"),
        ("#" * (16 * 1024 * 1024 + 1), "more than 16777216 bytes"),
        ("accounts: !!python/object/apply:os.system ['true']", "not a plain_acl.yml"),
    ],
)
def test_a_hostile_file_is_refused_by_name(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain()
    source, file = tmp_path / "plain_acl.yml", tmp_path / "auth.json"
    source.write_text(content)
    assert main(["auth", "import", str(source), str(file)]) == ExitCode.STORE_CORRUPT
    said = capsys.readouterr().err
    assert str(source) in said
    assert says in said
    assert not file.exists()


def test_a_directory_that_may_not_be_read_is_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain()
    closed, file = tmp_path / "conf" / "acl", tmp_path / "auth.json"
    closed.mkdir(parents=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(PLAIN)
    closed.chmod(0)
    try:
        with unprivileged():
            code = main(["auth", "import", str(closed.parent), str(file)])
    finally:
        closed.chmod(0o755)
    assert code == ExitCode.UNAVAILABLE
    assert f"Permission denied: '{closed}'" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000005", "key"])
def test_tables_that_are_damaged_are_refused_by_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rocksdict = pytest.importorskip("rocksdict", reason="pip install 'pocketmq[acl]'")
    table = rocksdict.Rdict(str(tmp_path / "users"), rocksdict.Options(raw_mode=True))
    table[b"\xff" if name == "key" else b"alice"] = USERS["alice"]
    table.close()
    if name != "key":
        for path in (tmp_path / "users").glob(name[:8] + "*"):
            path.write_bytes(b"\xff" * 100)
    code = main(["auth", "import", str(tmp_path), str(tmp_path / "auth.json")])
    assert code == ExitCode.STORE_CORRUPT
    assert str(tmp_path / "users") in capsys.readouterr().err
    assert not (tmp_path / "auth.json").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
@pytest.mark.parametrize("source", ["plain_acl.yml", "users"])
def test_sources_that_would_never_end_are_refused_by_name(
    kind: str, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain()
    pytest.importorskip("rocksdict", reason="pip install 'pocketmq[acl]'")
    path = tmp_path / source
    if source == "users":
        path.mkdir()
        path = path / "MANIFEST-000005"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    place = tmp_path if source == "users" else path
    assert main(["auth", "import", str(place), str(tmp_path / "auth.json")]) == (
        ExitCode.STORE_CORRUPT
    )
    assert str(tmp_path / source) in capsys.readouterr().err
    assert not (tmp_path / "auth.json").exists()


async def test_a_running_broker_keeps_its_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain()
    source = tmp_path / "plain_acl.yml"
    source.write_text(PLAIN)
    async with EmbeddedServer(store=tmp_path / "store") as server:
        file = server.store / "config" / "auth.json"
        code = await asyncio.to_thread(main, ["auth", "import", str(source), str(file)])
    assert code == ExitCode.STORE_LOCKED
    assert not file.exists()
