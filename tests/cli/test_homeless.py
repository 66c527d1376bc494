"""A user without a home directory: a container with any uid, a service without HOME."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.cli.servers.store_layout import brokers_kept_in
from pocketmq.embedded import EmbeddedServer
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.serving.service import ExitCode
from tests.unprivileged import unprivileged


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this user's home directory away."""

    def unknown(uid: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize(
    ("command", "key"),
    [
        (["namesrv"], "kvConfigPath"),
        (["broker"], "storePathRootDir"),
        (["serve"], "storePathRootDir"),
        (["broker", "--store", "~/x"], "storePathRootDir"),
        (["store", "check", "~/x"], "~/x"),
    ],
)
def test_a_command_says_so_in_one_line(
    command: list[str], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) in (ExitCode.CONFIG, ExitCode.USAGE)
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert key in said
    assert "HOME" in said


@pytest.mark.usefixtures("homeless")
async def test_a_temporary_store_needs_no_home() -> None:
    async with EmbeddedServer() as server:
        assert server.store.is_dir()


@pytest.fixture
def closed_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give this user the home directory of another one."""
    home = tmp_path / "root"
    home.mkdir(mode=0)
    monkeypatch.setenv("HOME", str(home))
    yield home
    home.chmod(0o700)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (["namesrv"], "kvConfigPath"),
        (["namesrv", "--set", "kvConfigPath=/tmp/kv.json"], "configStorePath"),
        (["broker"], "storePathRootDir"),
        (["broker", "--set", "storePathCommitLog=~/log", "--set", "storePathRootDir=/tmp/store"],
         "storePathCommitLog"),
        (["serve"], "storePathRootDir"),
        (["serve", "--brokers", "2"], "storePathRootDir"),
        (["serve", "--store", "~/a/b"], "storePathRootDir"),
        (["serve", "--store", "~"], "storePathRootDir"),
        (["store", "check", "~/x"], "x"),
    ],
)  # fmt: skip
def test_a_command_names_a_home_that_it_may_not_enter(
    closed_home: Path, command: list[str], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with unprivileged():
        assert main(command) in (ExitCode.CONFIG, ExitCode.FAILURE)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    line = said.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert key in line
    assert str(closed_home) in line


def test_a_store_that_cannot_be_listed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o300)
    with unprivileged():
        assert main(["serve", "--store", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert f"error: [Errno 13] Permission denied: '{tmp_path}'" in capsys.readouterr().err
    tmp_path.chmod(0o700)


def test_stores_may_lie_beside_a_closed_directory(tmp_path: Path) -> None:
    """As at the root of a file system."""
    (tmp_path / "broker-1" / "commitlog").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir(mode=0)
    with unprivileged():
        assert brokers_kept_in(tmp_path) == [1]


async def test_a_name_server_that_may_not_enter_its_directory_warns_too(
    closed_home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = closed_home / "namesrv.properties"
    config = NamesrvConfig(
        listen_port=0, kv_config_path=str(tmp_path / "kv.json"), config_store_path=str(path)
    )
    with unprivileged():
        async with NameServer(config):
            pass
    assert f"{path} cannot be written" in caplog.text


async def test_a_name_server_that_cannot_keep_changes_warns_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=str(closed / "namesrv" / "kv.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    with unprivileged():
        async with NameServer(config):
            pass
    assert f"{closed}/namesrv/kv.json cannot be written" in caplog.text
