"""Tables for people, JSON lines for scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pocketmq.cli.output import (
    complain,
    counted,
    local_time,
    print_rows,
    print_table,
    rich_table,
)
from pocketmq.remoting.serving.service import ExitCode

ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "lastStored": None, "lag": 7, "online": True},
    {"topic": "receipts", "lastStored": "12:00", "lag": 12345, "online": False},
]


def test_a_table_has_aligned_columns_with_numbers_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC     LAST STORED    LAG  ONLINE",
        "orders                     7  yes",
        "receipts  12:00        12345  no",
    ]


def test_what_needs_attention_has_a_colour_on_a_terminal() -> None:
    pytest.importorskip("rich", reason="pip install 'pocketmq[server]'")
    from rich.text import Text

    rows: list[dict[str, Any]] = [
        {"group": "a", "lag": 7, "disk": "90%"},
        {"group": "b", "lag": 0, "disk": "12%"},
        {"group": "c", "lag": None, "disk": None},
    ]
    _, lag, disk = rich_table(rows).columns
    assert [str(cell.style) for cell in lag.cells if isinstance(cell, Text)] == ["yellow", "", ""]
    assert [str(cell.style) for cell in disk.cells if isinstance(cell, Text)] == [
        "bold red", "", "",
    ]  # fmt: skip


def test_control_characters_stay_out_of_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"body": "a\x1b[2Jb\nc"}])
    assert capsys.readouterr().out == "BODY\na\ufffd[2Jb\ufffdc\n"


def test_json_has_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=True, empty="nothing")
    assert list(map(json.loads, capsys.readouterr().out.splitlines())) == ROWS


def test_no_line_moves_the_cursor_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2Jb\x9b2Jc\u202ed\u2028e\x85☕"
    print_rows([{"body": hostile}], as_json=True, empty="")
    printed = capsys.readouterr().out
    assert printed[:-1].isprintable()
    assert json.loads(printed) == {"body": hostile}
    assert complain(f"refused:\n{hostile}", ExitCode.FAILURE) == ExitCode.FAILURE
    said = capsys.readouterr().err
    assert said == "error: refused:\na\ufffd[2Jb\ufffd2Jc\ufffdd\ufffde\ufffd☕\n"


def test_no_rows_are_said_to_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], as_json=False, empty="there are no topics")
    assert capsys.readouterr() == ("", "there are no topics\n")
    print_rows([], as_json=True, empty="there are no topics")
    assert capsys.readouterr() == ("", "")


def test_plural_forms() -> None:
    assert [counted(n, "message") for n in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]


def test_no_time_is_an_empty_cell() -> None:
    assert local_time(0) == ""
    assert local_time(1_795_248_000_000).startswith("2026-11-2")
