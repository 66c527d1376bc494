"""`--log-format json`: one object a line, whatever is logged."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli import main
from pocketmq.cli.json_log import JsonFormatter
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import Running, command, environment


def formatted(**fields: Any) -> dict[str, Any]:
    line = JsonFormatter().format(logging.makeLogRecord(fields))
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


def test_a_line_has_time_level_logger_and_message() -> None:
    assert formatted(
        created=1_700_000_000.5, levelname="WARNING", name="pocketmq", msg="%s left", args=("c1",)
    ) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "WARNING",
        "logger": "pocketmq",
        "message": "c1 left",
    }


def test_fields_of_a_line_are_fields_and_replace_none() -> None:
    line = formatted(msg="gone", topic="T", place=(1, 2), level="mine", error=ValueError("x"))
    assert (line["topic"], line["place"], line["error"]) == ("T", [1, 2], "x")
    assert (line["message"], line["level"]) == ("gone", "Level None")


def test_an_exception_is_in_its_line() -> None:
    try:
        raise LookupError("no\nlook")
    except LookupError:
        line = formatted(msg="failed", exc_info=sys.exc_info())
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("LookupError: no\nlook")


@given(st.text(st.characters()))
def test_any_text_is_one_line(text: str) -> None:
    assert formatted(msg="%s", args=(text,))["message"] == text


@pytest.mark.parametrize("option", [["--log-format", "json"], ["--log-format=json"]])
def test_a_server_writes_its_warnings_so(option: list[str]) -> None:
    ended = subprocess.run(
        command("broker", "--set", "brokerNam=x", "--set", "listenPort=x", *option),
        env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    first, *_ = ended.stderr.splitlines()
    line = json.loads(first)
    assert (line["level"], line["logger"]) == ("WARNING", "pocketmq")
    assert "did you mean brokerName?" in line["message"]


def test_a_server_writes_what_admins_change_without_verbose(tmp_path: Path) -> None:
    file = f"configStorePath={tmp_path / 'namesrv.properties'}"
    with Running(
        "namesrv", "--listen-port", "0", "--set", file,
        "--set", f"kvConfigPath={tmp_path / 'kv.json'}", "--log-format", "json",
    ) as server:  # fmt: skip
        address = server.wait_for(r"listening on (\S+),")[1]
        assert (
            main(["config", "set", "orderMessageEnable=true", "--name-servers", "-n", address]) == 0
        )
        server.wait_for("UPDATE_NAMESRV_CONFIG")
        assert server.stop() == ExitCode.OK
    [line] = map(json.loads, server.err)  # and no other line at INFO
    assert (line["level"], line["logger"]) == ("INFO", "pocketmq.audit")
    assert line["message"].startswith(
        "UPDATE_NAMESRV_CONFIG orderMessageEnable by an anonymous client"
    )
    assert line["message"].endswith(": done")
