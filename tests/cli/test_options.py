"""Option values, the table of commands, and usage errors."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.cli import COMMANDS, command_line, main
from pocketmq.cli.command_parser import leaves, subcommands
from pocketmq.cli.options import (
    count,
    duration,
    key,
    message_property,
    moment,
    name_servers,
    port,
    position,
    queue_offset,
    setting,
    start,
    tag,
)
from pocketmq.cli.servers.startup import process_age
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import environment

MORNING = dt.datetime(2026, 11, 21, 8, tzinfo=dt.UTC)


def test_a_time_is_iso_8601_or_milliseconds() -> None:
    assert moment("2026-11-21T08:00:00Z") == MORNING
    assert moment("2026-11-21T09:00:00+01:00") == MORNING
    assert moment(str(int(MORNING.timestamp() * 1000))) == MORNING


def test_a_time_without_a_zone_is_local(in_shanghai: None) -> None:
    assert moment("2026-11-21 16:00").timestamp() == MORNING.timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-90s", 90), ("-10m", 600), ("-2h", 7200), ("-1d", 86400), ("-5ms", 0.005)],
)
def test_a_time_may_count_back_from_now(text: str, seconds: float) -> None:
    assert moment(text, MORNING.timestamp) == MORNING - dt.timedelta(seconds=seconds)


def test_a_start_is_an_end_of_the_queues_or_a_time() -> None:
    assert [start("begin"), start("end")] == ["begin", "end"]
    assert start("2026-11-21T08:00:00Z") == MORNING


def test_a_number_is_a_queue_offset_where_a_group_is_reset() -> None:
    assert position("17") == 17
    assert position("end") == "end"


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10), ("1.5s", 1.5), ("5m", 300), ("250ms", 0.25), ("0", 0)]
)
def test_a_duration_is_in_seconds_unless_it_names_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_a_place_names_one_message() -> None:
    assert queue_offset("orders/broker-a/3/17") == (MessageQueue("orders", "broker-a", 3), 17)


def test_a_value_may_hold_the_equals_sign() -> None:
    assert setting("a=b=c") == ("a", "b=c")
    assert setting("a=") == ("a", "")
    assert message_property("a=b=c") == ("a", "b=c")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((count, text) for text in ("0", "-1", "x")),
        *((port, text) for text in ("65536", "ten")),
        *((start, text) for text in ("now", "0001-01-01", "first", "-10", "-10x", "9" * 20)),
        *((moment, text) for text in ("begin", "253402300800000")),
        *((duration, text) for text in ("-1", "soon", "5y")),
        *((tag, text) for text in ("a||b", "a || b", " a", "")),
        *((key, text) for text in ("a b", "")),
        *((setting, text) for text in ("recallMessageEnable", "=true")),
        *((message_property, text) for text in ("amount", "amount=", "=7")),
        *((queue_offset, text) for text in ("orders/broker-a/3", "orders/broker-a/x/1", "///")),
        (name_servers, "5"),
    ],
)
def test_a_value_that_is_refused_is_named(kind: Callable[[str], Any], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        kind(text)
    assert repr(text) in str(refused.value)


def test_seconds_are_not_taken_for_milliseconds() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="give milliseconds, not seconds"):
        start("1795370851")


def test_help_names_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == ExitCode.OK
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n  {command} " in text
    for group in ("Servers:", "Messages:", "Administration:"):
        assert f"\n{group}\n" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == ExitCode.OK
    assert f"usage: pocketmq {command}" in capsys.readouterr().out


def test_every_command_that_asks_a_cluster_has_a_time_limit() -> None:
    servers = {"broker", "proxy"}  # their -n is whom they register with, or serve
    asked = 0
    for name, command in subcommands(command_line()).items():
        for parser in leaves(command):
            options = parser.format_usage()
            if "-n ADDR" in options and name not in servers:
                assert "--timeout TIME" in options, parser.prog
                asked += 1
    assert asked > 20


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("pocketmq ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "COMMAND"),
        (["sell"], "unknown command 'sell'"),
        (["pul"], "did you mean pull?"),
        (["send"], "TOPIC"),
        (["send", "a", "--batch", "none"], "'none' is not a whole number of at least 1"),
        (["send", "a", "--tag", "a||b"], "'a||b' is not one tag"),
        (["send", "a", "--key", "a b"], "repeat --key for several keys"),
        (["pull", "a", "--from", "yesterday"], "'yesterday'"),
        (["pull", "a", "--from", "253402300800000"], "is outside the years 1 to 9999"),
        (["pull", "a", "--count", "-5"], "'-5' is not a whole number of at least 1"),
        (["pull", "a", "-n", "5"], "--count limits the number of messages"),
        (["broker", "--listen-port", "100000"], "not a port"),
        (["serve", "--store", "a", "--ephemeral"], "not allowed with"),
        (
            ["export", "a.parquet", "--store", "s3a://bucket/store"],
            "not a directory of this machine",
        ),
        (["message", "--key", "k"], "--key needs a topic"),
        (["message", "--tag", "t"], "--tag needs a topic"),
        (["topics"], "list|show|create|delete"),
        (["send", "a", "body", "--file", "lines"], "either BODY or lines"),
        (["send", "a", "body", "--batch", "2"], "either BODY or lines"),
        (["reset", "g", "t", "--to", "soon"], "'soon' is not begin, end, a queue offset, or a "),
        (["reset", "g", "t", "--to", "-1h", "--queue", "b/1"], "--queue needs a queue offset"),
    ],
)
def test_usage_errors(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "usage", "complaint"),
    [
        (["send", "a", "--tga", "x"], "usage: pocketmq send ", "--tga, did you mean --tag?"),
        (["topics", "list", "--al"], "usage: pocketmq topics list ", "--al, did you mean --all?"),
        (["lag", "a", "b", "c"], "usage: pocketmq lag ", "unexpected argument 'c'"),
    ],
)
def test_an_unknown_option_shows_the_usage_of_its_own_command(
    arguments: list[str], usage: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    text = capsys.readouterr().err
    assert text.startswith(usage)
    assert complaint in text


def test_help_imports_no_heavy_package() -> None:
    program = (
        "import sys\n"
        "from pocketmq.cli import main\n"
        "main(['--help'])\n"
        "heavy = {'rich', 'numpy', 'pyarrow', 'pyspark', 'pocketmq.client'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True, timeout=60)


def test_process_age_counts_from_the_start_of_the_process() -> None:
    program = "from pocketmq.cli.servers.startup import process_age; print(process_age())"
    began = time.monotonic()
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    # Ticks of 10 ms, and it cannot be older than the call that started it.
    assert 0 < float(output) <= time.monotonic() - began + 0.02
    assert process_age() > 0


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["broker", "--help"]])
def test_help_works_without_the_modules_of_posix(arguments: list[str]) -> None:
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


def test_ctrl_c_while_a_command_is_imported_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    try:
        code = main(["serve"])
    except KeyboardInterrupt:
        pytest.fail("it shows a traceback")  # and would end all tests
    assert code == 130


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX closes them")
@pytest.mark.parametrize("command", ["send", "pull"])
def test_standard_files_may_be_closed(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    line = f'exec "$0" -m pocketmq {command} -n {nobody} orders'
    # All at once: each waits for a name server for a while.
    running = [
        subprocess.Popen(["sh", "-c", f"{line} {closed}", sys.executable], env=environment())
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
    ]
    assert [each.wait(60) for each in running] == [ExitCode.UNAVAILABLE] * 4
