"""The completion scripts: bash's is run, the others are read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pocketmq.cli import COMMANDS, main

BASH = shutil.which("bash")


@pytest.fixture
def bash_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "pocketmq.bash"
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of `words`, which stand after `pocketmq`."""
    assert BASH is not None
    program = (
        f'source "{script}"; COMP_WORDS=(pocketmq "$@"); COMP_CWORD=$#; _pocketmq; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ended = subprocess.run(
        [BASH, "-c", program, "bash", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=script.parent,
    )
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sen",), ["send"]),
        (("topics", ""), ["list", "show", "create", "delete", "-h", "--help"]),
        (("topics", "cr"), ["create"]),
        (("topics", "create", "orders", "--perm"), ["--permission"]),
        (("topics", "create", "orders", "--permission", ""), ["read", "write", "both"]),
        (("pull", "orders", "--from", "b"), ["begin"]),
        (("send", "orders", "--js"), ["--json"]),
        (("completion", "f"), ["fish"]),
        (("broker", "-c", "pocket"), ["pocketmq.bash"]),
        (("lag", "-n", "127.0.0.1:9876", "--j"), ["--json"]),
    ],
)
def test_bash_offers_what_may_follow(
    bash_script: Path, words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(bash_script, *words) == offered


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_offers_every_command(bash_script: Path) -> None:
    assert set(COMMANDS) < set(completed(bash_script, ""))


def test_zsh_uses_the_functions_of_bash(
    bash_script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "zsh"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "autoload -U +X bashcompinit && bashcompinit" in lines
    assert lines[-1] == bash_script.read_text().splitlines()[-1]


def test_fish_offers_actions_of_one_command_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    actions = [line for line in lines if " -a resend" in line]
    assert len(actions) == 1
    assert "__fish_seen_subcommand_from dlq" in actions[0]
    assert any("-l permission" in line and "'read write both'" in line for line in lines)
