"""One `pocketmq serve` for the tests that need a cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pocketmq.cli import main
from tests.cli.running import TIMEOUT, Running, command, environment

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="package")
def namesrv() -> Iterator[str]:
    """The address of the name server of a running `pocketmq serve --ephemeral`."""
    with Running("serve", "--ephemeral", "--listen-port", "0", "--namesrv-port", "0") as server:
        match = server.wait_for(r"name server listening on (\S+:\d+)")
        yield match[1]


@pytest.fixture
def run(namesrv: str) -> Run:
    """Runs a command to its end against that cluster."""

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command(*arguments),
            env=environment(NAMESRV_ADDR=namesrv),
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )

    return run


class Ended(NamedTuple):
    """How a command ended in this process: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """What `--json` printed: a value for each line."""
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Ended]


@pytest.fixture
def call(namesrv: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command to its end in this process, against that cluster."""
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)

    def call(*arguments: str) -> Ended:
        code = main(arguments)
        return Ended(code, *capsys.readouterr())

    return call
