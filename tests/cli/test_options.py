"""Option values, the table of commands, and usage errors."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import socket
import subprocess
import sys
import time

import pytest

from pocketmq.cli import COMMANDS, main
from pocketmq.cli.options import count, port, timestamp
from pocketmq.cli.startup import process_age
from pocketmq.remoting.service import ExitCode
from tests.cli.running import environment


def test_timestamps() -> None:
    assert timestamp("1763712000123") == 1763712000123
    assert timestamp("2026-11-21T08:00:00Z") == 1795248000000
    assert timestamp("2026-11-21T09:00:00.5+01:00") == 1795248000500
    local = dt.datetime(2026, 11, 21, 8)
    assert timestamp("2026-11-21 08:00") == int(local.timestamp() * 1000)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((count, text) for text in ("0", "-1", "x")),
        *((port, text) for text in ("65536", "ten")),
        *((timestamp, text) for text in ("now", "0001-01-01")),
    ],
)
def test_values_that_are_refused_are_named(kind: type, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}'"):
        kind(text)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == ExitCode.OK
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n    {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == ExitCode.OK
    assert f"usage: pocketmq {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("pocketmq ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "COMMAND"),
        (["sell"], "invalid choice: 'sell'"),
        (["send"], "-t/--topic"),
        (["send", "-t", "a", "--batch", "none"], "'none' is not a number from 1 on"),
        (["pull", "-t", "a", "--from", "yesterday"], "'yesterday'"),
        (["broker", "--listen-port", "100000"], "not a port"),
        (["serve", "--store", "a", "--ephemeral"], "not allowed with"),
    ],
)
def test_usage_errors(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    assert complaint in capsys.readouterr().err


def test_process_age_counts_from_the_start_of_the_process() -> None:
    program = "from pocketmq.cli.startup import process_age; print(process_age())"
    began = time.monotonic()
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    # Ticks of 10 ms, and it can not be older than the call that started it.
    assert 0 < float(output) <= time.monotonic() - began + 0.02
    assert process_age() > 0


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["broker", "--help"]])
def test_without_the_modules_of_posix_there_is_help(arguments: list[str]) -> None:
    """As on Windows, which has no fcntl and no resource."""
    program = (
        "import sys\n"
        "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "import pocketmq\n"
        "from pocketmq import Producer, PullConsumer, sync\n"
        "from pocketmq.cli import main\n"
        f"code = main({arguments!r})\n"
        "assert not {'pocketmq.store.files', 'pocketmq.store.store_lock'} & set(sys.modules)\n"
        "sys.exit(code)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == ExitCode.OK, ended.stderr
    assert "pocketmq" in ended.stdout


def test_ctrl_c_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    try:
        code = main(["serve"])
    except KeyboardInterrupt:
        pytest.fail("it shows a traceback")  # and would end all tests
    assert code == 130


@pytest.mark.parametrize("start", ["253402300800000", "9" * 20])
def test_a_pull_from_a_time_that_no_calendar_has(
    start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", "-t", "orders", "--from", start]) == ExitCode.USAGE
    assert f"argument --from: '{start}' is behind the year 9999" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX closes them")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["send", "pull"])
def test_standard_files_may_be_closed(command: str, closed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    line = f'exec "$0" -m pocketmq {command} -n {nobody} -t orders {closed}'
    ended = subprocess.run(
        ["sh", "-c", line, sys.executable], env=environment(), timeout=60, check=False
    )
    assert ended.returncode == ExitCode.UNAVAILABLE
