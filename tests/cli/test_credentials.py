"""`--credentials`: commands at a cluster that wants signatures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import Running

AUTHENTICATION = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    'initAuthenticationUser={"username":"root","password":"root: password"}',
)


@pytest.fixture(scope="module")
def signing() -> Iterator[str]:
    settings = [f"--set={setting}" for setting in AUTHENTICATION]
    ports = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")
    with Running("serve", "--ephemeral", *ports, *settings) as server:
        yield server.wait_for(r"name server listening on (\S+:\d+)")[1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The official conf/tools.yml has such lines."""
    path = tmp_path / "tools.yml"
    path.write_text('# of the operator\naccessKey: root\nsecretKey: "root: password"\n')
    path.chmod(0o600)
    return path


def test_requests_are_signed(
    signing: str, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = ("-n", signing, "--credentials", str(file))
    assert main(("topics", "create", "T", *signed)) == ExitCode.OK
    assert main(("send", "T", "a", *signed)) == ExitCode.OK
    capsys.readouterr()
    assert main(("pull", "T", *signed)) == ExitCode.OK
    assert capsys.readouterr().out == "a\n"
    monkeypatch.setenv("POCKETMQ_CREDENTIALS", str(file))
    assert main(("status", "-n", signing)) == ExitCode.OK
    assert "broker-a" in capsys.readouterr().out


def test_without_a_signature_the_error_names_the_option(
    signing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("status", "-n", signing)) == ExitCode.FAILURE
    error = capsys.readouterr().err
    assert "--credentials" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), ("accessKey: root\n", "it needs accessKey and secretKey")],
)
def test_a_file_that_cannot_be_used(
    content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tools.yml"
    if content is not None:
        path.write_text(content)
    assert main(("status", "--credentials", str(path))) == ExitCode.FAILURE
    assert f"error: --credentials {path}: {why}" in capsys.readouterr().err


def test_a_secret_that_all_may_read_is_a_warning(
    signing: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert main(("status", "-n", signing, "--credentials", str(file))) == ExitCode.OK
    assert f"chmod o-r {file}" in caplog.text
