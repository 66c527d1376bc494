"""A settings file that every user may read is a warning if it holds a password."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.cli.servers.server_command import read_tls_config
from pocketmq.remoting.serving.service import ExitCode


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ('initAuthenticationUser={"username":"a","password":"b"}', True),
        ('innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"b"}', True),
        ("metricsGrpcExporterHeader=token:b", True),
        ("tls.server.keyPassword=b", True),
        ("initAuthenticationUser=", False),
        ("brokerName=b", False),
    ],
)
def test_a_file_with_a_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, warned: bool
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(line + "\n")
    options = argparse.Namespace(config=conf, settings=[])
    conf.chmod(0o644)
    read_tls_config(options)
    told = [record.getMessage() for record in caplog.records]
    text = f"{conf} holds a secret and every user may read it: chmod o-r {conf}"
    assert told == [text] * warned
    conf.chmod(0o640)
    read_tls_config(options)
    assert len(caplog.records) == len(told)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"initAuthenticationUser": {"username": "a", "password": "b"}}, True),
        ({"tls.server.keyPassword": "b"}, True),
        ({"tlsKeyPassword": "b"}, True),
        ({"grpcServerPort": 0}, False),
    ],
)
def test_the_file_of_a_proxy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, object], warned: bool
) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(json.dumps({**settings, "authenticationEnabled": True}))
    file.chmod(0o644)
    # It ends at once, since it could not read the users of the brokers.
    assert main(["proxy", "-c", str(file)]) == ExitCode.CONFIG
    text = f"{file} holds a secret and every user may read it: chmod o-r {file}"
    assert (text in caplog.messages) == warned
