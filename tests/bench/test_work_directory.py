"""Where benchmarks keep their stores, and what becomes of servers that are left running there."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bench.work_directory import work_directory
from tests.interop.harness.process import Process

WAITS = [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]


def started(directory: Path) -> Process:
    process = Process("server", WAITS, log=directory / "output.log")
    process.wait_for("ready")
    return process


def test_nothing_is_left_after_an_interrupt(tmp_path: Path) -> None:
    other = started(tmp_path)
    try:
        with suppress(KeyboardInterrupt), work_directory("bench-test-") as directory:
            server = started(directory)
            raise KeyboardInterrupt
        assert not server.running
        assert not directory.exists()
        assert other.running
    finally:
        other.kill()


def test_what_is_to_be_kept_is_kept(tmp_path: Path) -> None:
    with work_directory("bench-test-", tmp_path / "new") as directory:
        (directory / "store").touch()
    assert (tmp_path / "new" / "store").exists()


def test_what_an_earlier_run_has_left_is_not_measured_again(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with (
        pytest.raises(SystemExit, match="is not empty"),
        work_directory("bench-test-", tmp_path),
    ):
        pass
    assert (tmp_path / "store").exists()
