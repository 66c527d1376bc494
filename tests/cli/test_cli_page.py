"""docs/cli.md says what the parsers say."""

from __future__ import annotations

from pathlib import Path

from pocketmq.cli import COMMANDS
from scripts import write_cli_page


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert write_cli_page.PAGE.read_text() == write_cli_page.page(), "run scripts/write_cli_page.py"


def test_the_page_has_every_command() -> None:
    text = write_cli_page.page()
    for command in COMMANDS:
        assert f"\n### pocketmq {command}\n" in text


def test_the_readme_leads_to_the_page() -> None:
    readme = Path(write_cli_page.PAGE).parents[1] / "README.md"
    assert "(docs/cli.md)" in readme.read_text()
