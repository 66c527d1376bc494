"""`pocketmq dashboard`, and the dashboard of `pocketmq serve` and `pocketmq broker`."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import TIMEOUT, Running

pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("jinja2", reason="pip install 'pocketmq[dashboard]'")

PORTS = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        text: str = answer.read().decode()
        return text


def test_of_another_cluster(namesrv: str, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    options = ("-n", namesrv, "--port", "0", "--password-file", password)
    with Running("dashboard", *options) as dashboard:
        line = dashboard.wait_for(r"^dashboard on (http://127\.0\.0\.1:\d+), name server (\S+),")
        assert line[2] == namesrv
        assert "broker-a" in page(line[1])
        assert "Password" in page(f"{line[1]}/login")
        assert dashboard.stop() == ExitCode.OK
    assert dashboard.err == []


def test_of_serve_is_on_by_default_and_finds_a_port() -> None:
    with Running("serve", "--ephemeral", *PORTS) as server:
        line = server.wait_for(r"^name server .* dashboard on (http://127\.0\.0\.1:\d+), temporary")
        assert "broker-a" in page(line[1])
        assert "read-only" in page(f"{line[1]}/login")
        assert server.stop() == ExitCode.OK
    assert len(server.out) == 1
    assert server.err == []


def test_of_serve_can_be_left_out() -> None:
    with Running("serve", "--ephemeral", *PORTS, "--no-dashboard") as server:
        assert "dashboard" not in server.wait_for("^name server listening on.*")[0]


def test_of_several_brokers() -> None:
    arguments = ("serve", "--ephemeral", *PORTS, "--brokers", "2", "--dashboard-port", "0")
    with Running(*arguments) as server:
        url = server.wait_for(r"2 brokers, dashboard on (http://\S+),")[1]
        text = page(url)
        assert "broker-0" in text
        assert "broker-1" in text


def test_of_a_broker_is_off_by_default(namesrv: str, tmp_path: Path) -> None:
    arguments = ("broker", "-n", namesrv, "--set", "brokerName=with-page", "--listen-port", "0")
    with Running(*arguments, "--store", tmp_path / "a", "--dashboard-port", "0") as broker:
        url = broker.wait_for(r"^broker with-page .* dashboard on (http://\S+),")[1]
        assert "with-page" in page(url)
    with Running(*arguments, "--store", tmp_path / "b") as broker:
        assert "dashboard" not in broker.wait_for("^broker with-page .*")[0]


def test_a_port_that_is_asked_for_and_taken(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code = main(("serve", "--ephemeral", *PORTS, "--dashboard-port", port))
    assert code == ExitCode.PORT_IN_USE
    assert f"the dashboard cannot listen on 127.0.0.1:{port}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"short", "the password must have 8 to 1024 characters"),
        (b"\xff" * 20, "it is not text in UTF-8"),
        (None, "No such file or directory"),
    ],
)
def test_a_password_file_that_cannot_be_used(
    content: bytes | None, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    assert main(("dashboard", "--password-file", str(path))) == ExitCode.FAILURE
    assert f"error: --password-file {path}: {why}" in capfd.readouterr().err
    options = ("--ephemeral", *PORTS, "--dashboard-password-file", str(path))
    assert main(("serve", *options)) == ExitCode.CONFIG
    assert f"--dashboard-password-file {path}: {why}" in capfd.readouterr().err


def test_beyond_this_machine_it_warns(namesrv: str) -> None:
    options = ("-n", namesrv, "--port", "0", "--bind", "0.0.0.0")
    with Running("dashboard", *options) as dashboard:
        dashboard.wait_for("^dashboard on http://127.0.0.1:")
        dashboard.wait_for("the dashboard listens on 0.0.0.0 without TLS")
