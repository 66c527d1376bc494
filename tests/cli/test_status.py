"""`pocketmq status`: the health of a broker group in one command, whatever happens to it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.conftest import Call
from tests.cli.running import TIMEOUT, Running
from tests.interop.harness.ports import free_port

ADDRESS = r"listening on (\S+:\d+),"


class Pair:
    """A name server, the master and a slave of a group, each in a process.

    `start(number, role)` starts one of them again, on its store.
    """

    def __init__(
        self, namesrv: str, start: Callable[[int, str], Running], master: Running, slave: Running
    ) -> None:
        self.namesrv = namesrv
        self.start = start
        self.master = master
        self.slave = slave
        self.slave_address = slave.wait_for(ADDRESS)[1]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    names = tmp_path / "kv.json"
    with Running("namesrv", "--listen-port", "0", "--set", f"kvConfigPath={names}") as server:
        namesrv = server.wait_for(ADDRESS)[1]

        def broker(number: int, role: str) -> Running:
            settings = {
                "brokerName": "pair",
                "brokerId": str(number),
                "brokerRole": role,
                "vipChannelEnable": "false",
                "haListenPort": str(free_port()),
                "mappedFileSizeCommitLog": str(1 << 20),
            }
            return Running(
                *("broker", "-n", namesrv, "--store", tmp_path / role, "--listen-port", "0"),
                *(part for each in settings.items() for part in ("--set", "=".join(each))),
            )

        with broker(0, "ASYNC_MASTER") as master:
            master.wait_for(ADDRESS)
            with broker(1, "SLAVE") as slave:
                yield Pair(namesrv, broker, master, slave)


@pytest.fixture
def look(pair: Pair, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def look(*options: str) -> tuple[int, str]:
        code = main(("status", "-n", pair.namesrv, "--timeout", "2s", *options))
        return code, capsys.readouterr().out

    return look


def until(look: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
    """Look until what is seen fits; each look takes long enough to be the pause."""
    deadline = time.monotonic() + TIMEOUT
    while not fits(seen := look()):
        assert time.monotonic() < deadline, seen
    return seen


def test_a_group_from_its_health_to_its_loss(
    pair: Pair, look: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("topics", "create", "-n", pair.namesrv, "orders")) == ExitCode.OK
    capsys.readouterr()
    code, out = until(look, lambda seen: seen[0] == ExitCode.OK)
    assert code == ExitCode.OK
    master, slave = out.splitlines()[1:3]
    assert "master" in master
    assert "ready" in master
    assert "pair (replica 1)" in slave
    assert "slave" in slave
    assert "ready" in slave
    assert "group pair: 1 of 1 replicas connected, 1 in sync" in out
    rows = [json.loads(line) for line in look("--json")[1].splitlines()]
    assert [(row["role"], row["state"], row["inSync"]) for row in rows] == [
        ("MASTER", "ready", None), ("SLAVE", "ready", True),
    ]  # fmt: skip
    assert (rows[1]["lagBytes"], rows[1]["acceptsSends"], rows[1]["permission"]) == (0, False, 6)

    pair.slave.process.send_signal(signal.SIGSTOP)
    try:
        code, out = look()
    finally:
        pair.slave.process.send_signal(signal.SIGCONT)
    assert code == ExitCode.UNAVAILABLE
    assert "no answer" in out
    assert (f"broker {pair.slave_address} did not answer GET_BROKER_RUNTIME_INFO within 2 s") in out

    pair.master.process.kill()
    code, out = until(look, lambda seen: "group pair has no master" in seen[1])
    assert code == ExitCode.UNAVAILABLE
    assert "missing" in out
    assert main(("send", "-n", pair.namesrv, "--timeout", "2s", "orders", "x")) != ExitCode.OK
    assert "no master is registered for pair" in capsys.readouterr().err
    code, out = until(look, lambda seen: "not connected to the master" in seen[1])
    assert code == ExitCode.UNAVAILABLE
    assert "not ready" in out


def test_a_drained_broker_says_so_and_its_topics_are_not_called_writable(call: Call) -> None:
    call("topics", "create", "wanted", "--queues", "1")
    try:
        call("config", "set", "brokerPermission=4")
        ended = call("status")
        assert ended.code == ExitCode.OK
        assert "drained: brokerPermission is 4, so producers choose others" in ended.out
        shown = until(
            lambda: call("topics", "show", "wanted").out, lambda seen: "is drained" in seen
        )
        assert "1 queue, read (the topic itself: read and write;" in shown
        [topic] = call("topics", "show", "wanted", "--json").rows
        [broker] = topic["brokers"].values()
        assert (broker["permission"], broker["topicPermission"]) == ("read", "read and write")
    finally:
        call("config", "set", "brokerPermission=6")


def test_a_drained_group_stays_drained_until_it_is_undrained(
    pair: Pair, look: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        assert main((*arguments, "-n", pair.namesrv)) == ExitCode.OK
        return capsys.readouterr().out

    def states() -> list[tuple[str, str, int]]:
        rows = [json.loads(line) for line in look("--json")[1].splitlines()]
        return [(row["role"], row["state"], row["permission"]) for row in rows]

    def drained(text: str) -> bool:
        return "1 queue, read (the topic itself: read and write; the broker is drained" in text

    run("topics", "create", "orders", "--queues", "1")
    until(lambda: look()[0], lambda code: code == ExitCode.OK)
    assert "broker pair is drained (2 members: " in run("brokers", "drain", "pair")
    both = [("MASTER", "drained", 4), ("SLAVE", "drained", 4)]
    assert states() == both
    until(lambda: run("topics", "show", "orders"), drained)
    assert main(("send", "-n", pair.namesrv, "--timeout", "2s", "orders", "x")) != ExitCode.OK
    capsys.readouterr()

    pair.master.stop()
    with pair.start(0, "ASYNC_MASTER") as again:
        again.wait_for("setting brokerPermission is 4, as set at run time, instead of 6")
        again.wait_for(ADDRESS)
        until(states, lambda seen: seen == both)
        until(lambda: run("topics", "show", "orders"), drained)

        assert "broker pair accepts messages (2 members: " in run("brokers", "undrain", "pair")
        assert states() == [("MASTER", "ready", 6), ("SLAVE", "ready", 6)]
        until(lambda: run("topics", "show", "orders"), lambda text: not drained(text))

        run("brokers", "drain", "pair", "--name-servers")
        assert drained(run("topics", "show", "orders"))
        run("brokers", "undrain", "pair")
        until(lambda: run("topics", "show", "orders"), lambda text: not drained(text))
        run("send", "orders", "x")


def test_a_broker_that_no_name_server_knows_cannot_be_drained(call: Call) -> None:
    for options in ([], ["--name-servers"]):
        ended = call("brokers", "drain", "broker-x", *options)
        assert ended.code == ExitCode.UNAVAILABLE
        assert "there is no broker broker-x; the brokers are: broker-a" in ended.err
    assert call("config", "get", "brokerPermission", "--json").rows[0]["value"] == "6"
