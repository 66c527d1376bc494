"""Servers that take only TLS, started and used from the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pocketmq.remoting.serving.service import ExitCode
from tests.certificates import Authority, Certificate
from tests.cli.running import TIMEOUT, Running, command


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.sign("cluster")


def settings(authority: Authority, own: Certificate) -> str:
    return (
        "tls.server.mode=enforcing\n"
        f"tls.server.certPath={own.chain}\ntls.server.keyPath={own.key}\n"
        "tls.server.need.client.auth=require\ntls.server.authClient=true\n"
        f"tls.server.trustCertPath={authority.certificate.chain}\n"
    )


def run(*arguments: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=TIMEOUT)
    return done.returncode, done.stdout, done.stderr


def test_a_cluster_that_takes_only_known_certificates(
    authority: Authority, own: Certificate, tmp_path: Path
) -> None:
    ca = authority.certificate.chain
    tls = tmp_path / "tls.properties"
    tls.write_text(
        settings(authority, own) + f"tls.enable=true\ntls.client.trustCertPath={ca}\n"
        f"tls.client.certPath={own.chain}\ntls.client.keyPath={own.key}\n"
    )
    file = f"tls.config.file={tls}"
    kv = f"kvConfigPath={tmp_path / 'kv.json'}"
    with Running("namesrv", "--set", file, "--set", kv, "--listen-port", "0") as name_server:
        namesrv = name_server.wait_for(r"listening on (\S+),")[1]
        with Running(
            "broker", "-n", namesrv, "--set", file, "--store", tmp_path / "store",
            "--listen-port", "0", "--set", "mappedFileSizeCommitLog=16777216",
        ) as broker:  # fmt: skip
            broker.wait_for("listening")
            known = ["-n", namesrv, "--tls-ca", ca, "--tls-cert", own.chain, "--tls-key", own.key]
            assert run("send", "T", "hello", *known)[0] == ExitCode.OK
            code, out, _ = run("pull", "T", *known, "--count", "1", "--json")
            assert code == ExitCode.OK
            assert "hello" in out
            code, _, err = run("topics", "list", "-n", namesrv, "--tls-ca", ca)
            assert code == ExitCode.UNAVAILABLE
            assert "Traceback" not in err
            assert broker.stop() == ExitCode.OK
        assert broker.err == []
        assert name_server.stop() == ExitCode.OK
    assert len(name_server.err) == 1
    assert "did not return a certificate" in name_server.err[0]


def test_serve_with_tls_only(authority: Authority, own: Certificate, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(settings(authority, own))
    with Running(
        "serve", "--ephemeral", "-c", conf, "--listen-port", "0", "--namesrv-port", "0"
    ) as server:
        namesrv = server.wait_for(r"name server listening on (\S+),")[1]
        known = ["-n", namesrv, "--tls-insecure", "--tls-cert", own.chain, "--tls-key", own.key]
        code, out, _ = run("status", *known)
        assert code == ExitCode.OK
        assert "broker-a" in out
        assert server.stop() == ExitCode.OK
    assert server.err == []


@pytest.mark.parametrize(
    ("server", "setting", "says"),
    [
        ("namesrv", "tls.server.mode=enforcing", "tls.server.certPath"),
        ("serve", "tls.server.certPath=/nowhere.pem", "tls.server.keyPath"),
        ("serve", "tls.server.mode=maybe", "disabled or permissive or enforcing"),
    ],
)
def test_settings_that_cannot_be(server: str, setting: str, says: str, tmp_path: Path) -> None:
    place: list[str | Path] = ["--store", tmp_path / "store"] if server == "serve" else []
    code, _, err = run(server, *place, "--set", setting)
    assert code == ExitCode.CONFIG
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tls-ca", "/nowhere.pem"], "--tls-ca /nowhere.pem: No such file"),
        (["--tls-cert", __file__], "--tls-cert"),
        (["--tls-key", __file__], "--tls-key needs --tls-cert"),
    ],
)
def test_options_that_cannot_be(options: list[str], says: str) -> None:
    code, _, err = run("status", *options)
    assert code == ExitCode.FAILURE
    assert says in err
    assert err.count("\n") == 1


def test_a_server_that_everybody_reaches_says_so_once(tmp_path: Path) -> None:
    kv = f"kvConfigPath={tmp_path / 'kv.json'}"
    with Running("namesrv", "--set", kv, "--listen-port", "0", "--bind", "0.0.0.0") as server:
        server.wait_for("listening on 0.0.0.0")
        assert server.stop() == ExitCode.OK
    assert len(server.err) == 1
    assert "without authentication" in server.err[0]


def test_a_key_that_everybody_may_read_is_named(own: Certificate, tmp_path: Path) -> None:
    key = tmp_path / "open.pem"
    key.write_bytes(own.key.read_bytes())
    key.chmod(0o644)
    settings = {"tls.server.certPath": own.chain, "tls.server.keyPath": key}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    kv = f"kvConfigPath={tmp_path / 'kv.json'}"
    with Running("namesrv", "--set", kv, "--listen-port", "0", *options) as server:
        server.wait_for("listening")
        assert server.stop() == ExitCode.OK
    assert len(server.err) == 1
    assert f"chmod o-r {key}" in server.err[0]
