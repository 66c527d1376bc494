"""Spark sessions from any interpreter, finding a Java runtime, and the errors without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pocketmq.spark.sessions.java import SparkUnavailable, find_java, java_version, use_java
from tests.cli.running import environment
from tests.store.made_store import MadeStore

T = TypeVar("T")


def fake_java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("eleven", 0)]
)
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, path = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    assert find_java() == home


def test_an_old_java_home_gives_way_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "home", "1.8.0_392")
    path = fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    assert find_java() == path
    use_java(path)
    # Spark's own scripts would take JAVA_HOME.
    assert "JAVA_HOME" not in os.environ


@pytest.mark.usefixtures("nothing_installed")
def test_no_java_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="Java 17 or newer; install one and set JAVA_HOME"):
        find_java()
    manager = tmp_path / "dnf"
    manager.write_text("")
    manager.chmod(0o755)
    with pytest.raises(SparkUnavailable, match="type: sudo dnf install java"):
        find_java()


@pytest.mark.usefixtures("nothing_installed")
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("PATH", str(java.parent))
    # The script's interpreter needs no PATH.
    with pytest.raises(SparkUnavailable, match=r"\(.*/bin/java is version 11\)"):
        find_java()


@pytest.mark.spark
@pytest.mark.timeout(900)  # Spark needs minutes to start on a loaded machine
def test_a_job_runs_by_the_path_of_its_interpreter(tmp_path: Path) -> None:
    """As from a virtual environment that is not activated: no `python3` in PATH works. And the
    partitions are as many as the session's `spark.default.parallelism`."""
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    try:
        java = find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    for name in ("python", "python3"):
        other = tmp_path / "bin" / name
        other.parent.mkdir(exist_ok=True)
        other.write_text("#!/bin/sh\nexit 1\n")
        other.chmod(0o755)
    made = MadeStore(tmp_path / "store", segment_size=32 << 20)
    for body in (b"1", b"2"):
        made.put("orders", body=body)
    for _ in range(24):
        made.put("large", body=bytes(1 << 20))
    made.write()
    program = tmp_path / "job.py"
    program.write_text(
        "from pocketmq import spark\n"
        "session = spark.session(config={'spark.default.parallelism': '5'})\n"
        "orders = session.read.format('rocketmq').option('subscribe', 'orders').load('store')\n"
        "print(orders.count(), orders.selectExpr('min(CAST(body AS STRING))').first()[0])\n"
        "large = session.read.format('rocketmq').option('subscribe', 'large').load('store')\n"
        "print(large.rdd.getNumPartitions(), 'partitions')\n"
        "session.stop()\n"
    )
    path = os.pathsep.join([str(tmp_path / "bin"), str(java.parent), "/usr/bin", "/bin"])
    ended = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment(PATH=path, PYSPARK_PYTHON=str(tmp_path / "bin" / "python3")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "2 1\n5 partitions\n", ended.stderr
    assert ended.stderr == "", "Spark's start is quiet"


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds child processes in /proc")
def test_ctrl_c_while_spark_starts_leaves_no_java_process(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    program = (
        "import pathlib\n"
        "from pocketmq.spark import session\n"
        f"session('test', log=pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "print('not interrupted')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    # Asking for its version ends; the one whose command line names Spark stays.
    java = wait_until(lambda: [pid for pid in children.read_text().split() if is_spark(pid)])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert out == ""
    assert "KeyboardInterrupt" in err
    wait_until(lambda: not any(is_spark(pid) for pid in java))


def is_spark(pid: str) -> bool:
    try:
        return b"org.apache.spark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def wait_until(condition: Callable[[], T], timeout: float = 60.0) -> T:
    """What it gives when that is true; processes can only be looked at, not awaited."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
