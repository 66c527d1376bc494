"""The server commands as processes: their line, their signals, what they say when they cannot."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.cli import main
from pocketmq.cli.servers import broker as broker_command
from pocketmq.remoting.frames.first_bytes import PROTOCOL_VERSION_ALERT
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import TIMEOUT, Running, command, environment


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def namesrv(directory: Path, *arguments: str) -> Running:
    conf = directory / "namesrv.conf"
    conf.write_text(f"kvConfigPath={directory / 'kv.json'}\n")
    return Running("namesrv", "-c", conf, *arguments)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_name_server_says_one_line_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    with namesrv(tmp_path, "--listen-port", "0") as server:
        server.wait_for(r"^name server listening on 127\.0\.0\.1:\d+, .* in \d\.\d\d s$")
        assert server.stop(number) == ExitCode.OK
    assert len(server.out) == 1
    assert server.err == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_says_one_line_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    with namesrv(tmp_path, "--listen-port", "0") as name_server:
        address = name_server.wait_for(r"listening on (\S+),")[1]
        with Running(
            "broker", "-n", address, "--store", tmp_path / "store", "--listen-port", "0"
        ) as broker:
            line = broker.wait_for(r"^broker \S+ listening on 127\.0\.0\.1:\d+, .* in \d\.\d\d s$")
            assert str(tmp_path / "store") in line[0]
            assert address in line[0]
            assert broker.stop(number) == ExitCode.OK
        assert len(broker.out) == 1
        assert broker.err == []
    assert not (tmp_path / "store" / "abort").exists()


def test_a_broker_without_its_name_server_starts_and_says_so(tmp_path: Path) -> None:
    with Running(
        "broker", "-n", "127.0.0.1:9", "--store", tmp_path / "store", "--listen-port", "0"
    ) as broker:
        broker.wait_for("^broker .* listening on")
        broker.wait_for("cannot register at name server 127.0.0.1:9")
        assert "127.0.0.1:9" in "\n".join(broker.err)
        assert broker.stop() == ExitCode.OK


def test_a_taken_port_is_said_in_one_line(tmp_path: Path, taken_port: int) -> None:
    for server in (
        namesrv(tmp_path, "--listen-port", str(taken_port)),
        Running("broker", "--store", tmp_path / "a", "--listen-port", str(taken_port)),
        Running(
            "serve", "--store", tmp_path / "b", "--listen-port", str(taken_port),
            "--namesrv-port", "0",
        ),
        Running("serve", "--ephemeral", "--namesrv-port", str(taken_port)),
    ):  # fmt: skip
        with server:
            assert server.end() == ExitCode.PORT_IN_USE
        assert server.out == []
        errors = [line for line in server.err if line.startswith("error: ")]
        assert len(errors) == 1
        assert f"127.0.0.1:{taken_port}" in errors[0]
        assert "Traceback" not in server.everything()


def test_a_locked_store_is_said_in_one_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Running("broker", "--store", store, "--listen-port", "0") as first:
        first.wait_for("listening")
        with Running("broker", "--store", store, "--listen-port", "0") as second:
            assert second.end() == ExitCode.STORE_LOCKED
        assert str(store) in second.err[-1]
        assert str(first.process.pid) in second.err[-1]
        assert first.stop() == ExitCode.OK


def test_broker_conf_by_official_names(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    with namesrv(tmp_path, "--listen-port", "0") as name_server:
        address = name_server.wait_for(r"listening on (\S+),")[1]
        conf.write_text(
            f"namesrvAddr={address}\nbrokerClusterName = shops\nbrokerName=till\nlistenPort=0\n"
            f"brokerIP1=localhost\nstorePathRootDir={tmp_path / 'store'}\n"
            "mappedFileSizeCommitLog=65536\nflushDiskType=SYNC_FLUSH\n"
            "waitTimeMillsInSendQueue=200\nlistenProt=1\n"
        )
        with Running("broker", "-c", conf) as broker:
            broker.wait_for("^broker till listening on localhost:")
            with Running("send", "receipts", "-n", address) as sender:
                sender.write("one coffee\n")
                assert sender.end() == ExitCode.OK
            assert broker.stop() == ExitCode.OK
    warnings = "\n".join(broker.err)
    assert re.search("waitTimeMillsInSendQueue.* no effect here", warnings)
    assert re.search("listenProt.*listenPort", warnings)
    first_file = tmp_path / "store" / "commitlog" / "00000000000000000000"
    assert first_file.stat().st_size == 65536


@pytest.mark.parametrize(("log", "warned"), [("store/commitlog", False), ("fast", True)])
def test_the_store_of_the_option_holds_its_commit_log(
    tmp_path: Path,
    log: str,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path / 'store'}\nstorePathCommitLog={tmp_path / log}\n")
    served: list[BrokerConfig] = []

    def serve(prepare: Any, exit_codes: object, **options: object) -> int:
        prepare()(asyncio.Event()).close()
        return ExitCode.OK

    monkeypatch.setattr(broker_command, "run_server", serve)
    monkeypatch.setattr("pocketmq.broker.broker.Broker", lambda config, **_: served.append(config))
    main(["broker", "-c", str(conf), "--store", str(tmp_path / "mine")])
    [config] = served
    assert config.commit_log_directory == tmp_path / "mine" / "commitlog"
    told = [record.getMessage() for record in caplog.records]
    warning = f"{conf}: storePathCommitLog={tmp_path / log} gives way to --store"
    assert told == [warning] * warned


@pytest.mark.parametrize(
    ("command", "line", "said"),
    [
        ("broker", "flushDiskType=SOMETIMES", ["flushDiskType", "SOMETIMES", "ASYNC_FLUSH"]),
        ("broker", "listenPort=70000", ["listenPort", "70000", "65535"]),
        ("broker", "maxMessageSize=much", ["maxMessageSize", "much"]),
        ("namesrv", "listenPort=ten", ["listenPort", "ten"]),
    ],
)
def test_a_bad_value_stops_the_start(
    tmp_path: Path, command: str, line: str, said: list[str]
) -> None:
    conf = tmp_path / "a.conf"
    conf.write_text(line + "\n")
    with Running(command, "-c", conf) as server:
        assert server.end() == ExitCode.CONFIG
    (error,) = server.err
    for word in said:
        assert word in error


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_a_missing_configuration_file(tmp_path: Path, command: str) -> None:
    with Running(command, "-c", tmp_path / "none.conf") as server:
        assert server.end() == ExitCode.CONFIG
    (error,) = server.err
    assert "none.conf" in error


@pytest.mark.parametrize("command", ["broker", "serve"])
def test_a_store_that_can_not_be_made_is_said_in_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "store").symlink_to(tmp_path / "gone" / "store")
    ports = ("--listen-port", "0", *(("--namesrv-port", "0") if command == "serve" else ()))
    with Running(command, "--store", tmp_path / "store", *ports) as server:
        assert server.end() == ExitCode.UNAVAILABLE
    (error,) = server.err
    assert str(tmp_path / "store") in error


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config", "timerlog", ""])
def test_a_file_in_the_place_of_a_directory_stops_the_start(tmp_path: Path, name: str) -> None:
    store = tmp_path / "store"
    path = store / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    with Running("broker", "--store", store, "--listen-port", "0") as server:
        assert server.end() == ExitCode.UNAVAILABLE
    assert server.out == []
    (error,) = server.err
    assert error.startswith(f"error: {path} is not a directory")
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "content",
    ["# 你好\nbrokerName=till\n".encode("gbk"), "\ufeffbrokerName=till\n".encode()],
    ids=["another encoding, as Java reads it", "a byte order mark"],
)
def test_a_configuration_that_is_not_plain_utf_8(tmp_path: Path, content: bytes) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(content)
    with Running("broker", "-c", conf, "--store", tmp_path / "store", "--listen-port", "0") as one:
        one.wait_for("^broker till listening")


@pytest.mark.parametrize("disk_full", [False, True])
def test_a_server_whose_line_nobody_can_read_serves(tmp_path: Path, disk_full: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stdout = os.open("/dev/full", os.O_WRONLY) if disk_full else writing
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=0\n")
    process = subprocess.Popen(
        command("namesrv", "-c", conf), env=environment(), stdout=stdout, stderr=subprocess.PIPE
    )
    for descriptor in {stdout, writing}:
        os.close(descriptor)
    assert process.stderr is not None
    with process.stderr:
        warning = process.stderr.readline()
        process.terminate()
        assert process.stderr.read() == b""
    assert process.wait(TIMEOUT) == ExitCode.OK
    assert b"name server listening on" in warning


def test_a_directory_that_the_output_has_no_letters_for(tmp_path: Path) -> None:
    store = tmp_path / "在"
    arguments = ("--store", store, "--listen-port", "0", "--namesrv-port", "0")
    with Running("serve", *arguments, env={"PYTHONIOENCODING": "ascii"}) as server:
        server.wait_for(r"^name server listening on .*/\\u5728, pocketmq .*, started")
        assert server.stop() == ExitCode.OK


def test_serve_keeps_its_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Running(
        "serve", "--store", store, "--listen-port", "0", "--namesrv-port", "0",
        "--advertise", "localhost",
    ) as server:  # fmt: skip
        line = server.wait_for(r"^name server listening on 127\.0\.0\.1:\d+, broker on localhost:")
        assert str(store) in line.string
        assert server.stop(signal.SIGINT) == ExitCode.OK
    assert len(server.out) == 1
    assert server.err == []
    assert (store / "config").is_dir()


def test_serve_ephemeral_leaves_nothing(tmp_path: Path) -> None:
    with Running(
        "serve", "--ephemeral", "--listen-port", "0", "--namesrv-port", "0",
        env={"TMPDIR": str(tmp_path)},
    ) as server:  # fmt: skip
        server.wait_for("listening")
        assert any(tmp_path.iterdir())
        assert server.stop() == ExitCode.OK
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("first_bytes", "named", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP", b""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "gRPC", b""),
        (b"\x16\x03\x01\x02\x00\x01", "TLS", PROTOCOL_VERSION_ALERT),
    ],
)
def test_who_speaks_something_else_is_named_once(
    tmp_path: Path, first_bytes: bytes, named: str, answer: bytes
) -> None:
    with Running("serve", "--ephemeral", "--listen-port", "0", "--namesrv-port", "0") as server:
        match = server.wait_for(r"name server listening on (\S+):(\d+), broker on \S+:(\d+)")
        for port in (match[2], match[3]):
            with socket.create_connection((match[1], int(port)), 5) as client:
                client.sendall(first_bytes)
                assert client.recv(100) == answer
            server.wait_for(rf"{named}.*{port}")
        assert server.stop() == ExitCode.OK
    assert len(server.err) == 2


def test_a_setting_of_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=file\nlistenPort=0\nstorePathRootDir={tmp_path / 'store'}")
    with Running("broker", "-c", conf, "--set", "brokerName=line", "--set", "a.b=c") as broker:
        broker.wait_for("^broker line listening on")
        broker.wait_for("a.b: unknown property")
        assert broker.stop() == ExitCode.OK


def test_serve_takes_a_file_of_settings(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerName=till\nlistenPort=0\nnamesrvAddr=10.0.0.1:9876\n"
        f"storePathRootDir={tmp_path / 'store'}\nmappedFileSizeCommitLog=65536\n"
    )
    with Running("serve", "-c", conf, "--namesrv-port", "0") as server:
        line = server.wait_for("^name server listening on")
        assert str(tmp_path / "store") in line.string
        assert server.stop() == ExitCode.OK
    first_file = tmp_path / "store" / "commitlog" / "00000000000000000000"
    assert not first_file.exists() or first_file.stat().st_size == 65536
    [warning] = server.err
    assert "namesrvAddr=10.0.0.1:9876 has no effect" in warning


@pytest.mark.parametrize(
    ("command", "setting", "said"),
    [
        ("serve", "listenPort=ten", "'ten'"),
        ("serve", "namesrvAddr=10.0.0.1:9876", "`pocketmq serve` runs its own name server"),
        ("broker", "flushDiskType=SOMETIMES", "ASYNC_FLUSH"),
        ("namesrv", "listenPort=ten", "'ten'"),
    ],
)
def test_a_setting_that_is_not_allowed_stops_the_start(
    command: str, setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--set", setting]) == ExitCode.CONFIG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "broker"])
def test_all_settings_that_are_not_allowed_are_named_with_their_places(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=till\nlistenPort=ten\n\nflushDiskType=SOMETIMES\n")
    code = main([command, "-c", str(conf), "--set", "maxMessageSize=much"])
    assert code == ExitCode.CONFIG
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {conf}:2: listenPort = 'ten'")
    assert second.startswith(f"error: {conf}:4: flushDiskType = 'SOMETIMES'")
    assert third.startswith("error: --set: maxMessageSize = 'much'")


def test_a_misspelt_setting_of_serve_is_named_with_its_place(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("\nlistenProt=1\n")
    ports = ("--listen-port", "0", "--namesrv-port", "0")
    with Running("serve", "-c", conf, "--ephemeral", *ports) as server:
        server.wait_for("^name server listening on")
        assert server.stop() == ExitCode.OK
    [warning] = server.err
    assert f"{conf}:2: listenProt: unknown property" in warning


def test_a_setting_of_a_name_server_that_was_changed_outlives_it(tmp_path: Path) -> None:
    paths = [
        part
        for key in ("kvConfigPath", "configStorePath")
        for part in ("--set", f"{key}={tmp_path / key}")
    ]
    arguments = ("namesrv", "--listen-port", "0", *paths)
    with Running(*arguments) as server:
        address = server.wait_for(r"listening on (\S+:\d+),")[1]
        change = ("config", "set", "orderMessageEnable=true", "--name-servers", "-n", address)
        assert main(change) == ExitCode.OK
        assert server.stop() == 0
    with Running(*arguments) as server:
        server.wait_for("setting orderMessageEnable is True, as set at run time, instead of False")
        server.wait_for(r"listening on (\S+:\d+),")
