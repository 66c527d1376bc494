"""`pocketmq serve --brokers N`: one cluster of several processes, also when one is killed."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from pocketmq import Message, Producer
from pocketmq.cli import main
from pocketmq.cli.servers.broker_process import BrokerProcess, Restarts
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import TIMEOUT, Running, command, environment

FREE_PORTS = ("--namesrv-port", "0", "--listen-port", "0")
LISTENS = r"^broker {name} listening on (\S+:\d+), store (\S+), .*process (\d+)$"


def listening(server: Running, name: str) -> re.Match[str]:
    return server.wait_for(LISTENS.format(name=name))


def pid_of(server: Running, name: str) -> int:
    return int(listening(server, name)[3])


def wait_for_end(pid: int) -> None:
    """Of a process that is not this one's child."""
    deadline = time.monotonic() + TIMEOUT
    while Path(f"/proc/{pid}/stat").exists():
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


async def send(producer: Producer, bodies: range) -> dict[bytes, str]:
    """Each body with the broker that acknowledged it."""
    sent = {}
    for number in bodies:
        body = b"%d" % number
        result = await producer.send(Message("orders", body))
        sent[body] = result.queue.broker_name
    return sent


def stored(namesrv: str) -> set[bytes]:
    """The bodies that the brokers have."""
    pulled = subprocess.run(
        command("pull", "orders", "-n", namesrv), env=environment(), capture_output=True, check=True
    )
    return set(pulled.stdout.split())


@pytest.mark.crash
async def test_a_killed_broker_starts_again_and_lost_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Running("serve", "--brokers", "2", "--store", store, *FREE_PORTS) as server:
        started = await asyncio.to_thread(
            server.wait_for,
            r"^name server listening on (\S+:\d+), 2 brokers, (?:dashboard on \S+, )?store (\S+),",
        )
        namesrv = started[1]
        before = listening(server, "broker-1")
        async with Producer("shop", namesrv=namesrv) as producer:
            sent = await send(producer, range(40))
            # A topic comes into being on each broker that clients send to.
            assert set(sent.values()) == {"broker-0", "broker-1"}
            server.out.clear()
            os.kill(int(before[3]), signal.SIGKILL)
            sent |= await send(producer, range(40, 80))
            again = await asyncio.to_thread(listening, server, "broker-1")
            assert again.group(1, 2) == before.group(1, 2)
            sent |= await send(producer, range(80, 100))
        assert await asyncio.to_thread(stored, namesrv) == set(sent)
        assert len(sent) == 100
        assert await asyncio.to_thread(server.stop) == ExitCode.OK
    [said] = [line for line in server.err if " WARNING pocketmq: " in line]
    assert said.endswith("broker broker-1 ended (by SIGKILL); it starts again in 0.5 s")
    for name in ("broker-0", "broker-1"):
        assert (store / name / "commitlog").is_dir()
        assert not (store / name / "abort").exists()


@pytest.mark.crash
def test_brokers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    with Running("serve", "--brokers", "2", "--store", tmp_path, *FREE_PORTS) as server:
        server.wait_for("^name server listening")
        brokers = [pid_of(server, name) for name in ("broker-0", "broker-1")]
        server.process.kill()
        for pid in brokers:
            wait_for_end(pid)
        # They stopped cleanly, by themselves.
        assert not (tmp_path / "broker-0" / "abort").exists()
        assert not (tmp_path / "broker-1" / "abort").exists()
        server.end()


def test_a_broker_that_does_not_start_stops_the_others(tmp_path: Path) -> None:
    (tmp_path / "broker-1").write_bytes(b"")
    with Running("serve", "--brokers", "2", "--store", tmp_path, *FREE_PORTS) as server:
        assert server.end() == ExitCode.UNAVAILABLE
    assert any(str(tmp_path / "broker-1") in line for line in server.err)
    assert server.err[-1] == "error: broker broker-1 did not start (exit code 7)"


@pytest.mark.parametrize(
    ("brokers", "stored", "said"),
    [
        ("2", ["commitlog"], "is the store of a single broker"),
        ("2", ["broker-0/commitlog", "broker-2/config"], "use --brokers 3"),
        ("1", ["broker-0/commitlog", "broker-1/commitlog"], "add --brokers 2"),
    ],
)
def test_a_directory_of_another_layout_is_refused(
    tmp_path: Path,
    brokers: str,
    stored: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for directory in stored:
        (tmp_path / directory).mkdir(parents=True)
    code = main(["serve", "--brokers", brokers, "--store", str(tmp_path), *FREE_PORTS])
    assert code == ExitCode.CONFIG
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path} ")
    assert said in error


def test_ports_above_the_last_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["serve", "--brokers", "3", "--ephemeral", "--listen-port", "65520"])
    assert code == ExitCode.CONFIG
    assert "3 brokers need ports up to 65540" in capsys.readouterr().err


@pytest.mark.crash
async def test_a_broker_that_fails_again_and_again_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store"
    lines: asyncio.Queue[str] = asyncio.Queue()
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            store.unlink()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    broker = BrokerProcess(
        "broker-0",
        [f"--store={store}", f"--listen-port={port}", "--namesrv="],
        lines.put_nowait,
        restarts=Restarts(first_pause=1.0, longest_pause=4.0, reported=2),
        stop_seconds=TIMEOUT,
        sleep=sleep,
    )
    await broker.start()
    watching = asyncio.ensure_future(broker.supervise())
    store.rename(tmp_path / "elsewhere")
    store.write_bytes(b"")  # in the place of its directory
    with caplog.at_level(logging.WARNING, "pocketmq"):
        os.kill(int((await lines.get()).split()[-1]), signal.SIGKILL)
        await lines.get()  # it listens again
    assert pauses == [1.0, 2.0, 4.0, 4.0]
    ended, reported = [r.getMessage() for r in caplog.records if r.name == "pocketmq"]
    assert "ended (by SIGKILL)" in ended
    assert "has failed 2 times in a row (last: exit code 7)" in reported
    watching.cancel()
    await broker.stop()


@pytest.mark.parametrize(
    ("setting", "needed"),
    [
        ("authenticationEnabled=true", "innerClientAuthenticationCredentials"),
        ("tls.server.mode=enforcing", "tls.enable"),
    ],
)
def test_what_brokers_need_to_register_is_asked_for(
    setting: str, needed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("serve", "--brokers", "2", "--store", str(tmp_path), *FREE_PORTS, "--set", setting)
    assert main(options) == ExitCode.CONFIG
    assert f"needs {needed}" in capsys.readouterr().err


def test_a_cluster_that_checks_signatures(tmp_path: Path) -> None:
    settings = (
        "authenticationEnabled=true",
        'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret"}',
    )
    options = [each for setting in settings for each in ("--set", setting)]
    with Running(
        "serve", "--brokers", "2", "--store", str(tmp_path), *FREE_PORTS, *options
    ) as server:
        assert server.wait_for(r"^name server listening on (\S+), 2 brokers")
