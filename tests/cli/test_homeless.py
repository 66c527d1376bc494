"""A user without a home directory: a container with any uid, a service without HOME."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.embedded import EmbeddedServer
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.serving.service import ExitCode


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


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
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
    async with NameServer(config):
        assert f"{closed}/namesrv/kv.json cannot be written" in caplog.text
