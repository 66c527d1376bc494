"""A local Spark session, and what to type where Spark can not run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

#: Package managers, in the order they are looked for, and what installs a Java runtime with them.
INSTALL_JAVA = {
    "apt-get": "sudo apt-get install default-jre-headless",
    "dnf": "sudo dnf install java-latest-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "brew": "brew install openjdk",
}


class SparkUnavailable(Exception):
    """Spark can not run here; the text says what is missing and what to type."""


def start(name: str, *, log: Path | None = None, short_lived: bool = False) -> SparkSession:
    """A session on this machine's cores, bound to loopback, without web page or progress lines.

    `log`: a file for what the Java process writes to stderr, which starts with a dozen lines
    that nobody needs; None leaves it on ours. `short_lived`: for a few small queries, which end
    before Java's optimising compiler has paid for itself: half the time on two busy cores.

    Raises:
        SparkUnavailable: PySpark, Arrow, or a Java runtime is missing.
    """
    if not all(importlib.util.find_spec(package) for package in ("pyspark", "pyarrow")):
        raise SparkUnavailable("PySpark is not installed; type: pip install 'pocketmq[spark]'")
    use_java(find_java())
    # Workers have to be the interpreter that has our packages, whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # They import the data source from where this process has it, installed or not.
    ours = str(Path(__file__).parents[1])
    paths = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[*]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # The data is small or comes in few partitions; 200 tasks for a GROUP BY are not faster.
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.log.level", "ERROR")
    )
    if short_lived:
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        builder = builder.config("spark.driver.extraJavaOptions", quick)
    with _interrupted_later(), _stderr_to(log), warnings.catch_warnings():
        # That it does not know the newest pandas, which nothing here uses.
        warnings.simplefilter("ignore", FutureWarning)
        return builder.getOrCreate()


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Holds Ctrl-C back until the block has ended.

    PySpark that is interrupted while it waits for the Java process leaves that one behind for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # KeyboardInterrupt is raised in the main thread only
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Has processes that are started meanwhile write their errors to the file, for ever."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def find_java() -> Path:
    """A Java runtime that is new enough: the one in JAVA_HOME, else the one in PATH.

    Raises:
        SparkUnavailable: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [shutil.which("java", path=str(Path(home) / "bin")) if home else None]
    candidates.append(shutil.which("java"))
    too_old = ""
    for candidate in filter(None, candidates):
        version = java_version(Path(candidate))
        if version >= OLDEST_JAVA:
            return Path(candidate)
        too_old = f" ({candidate} is version {version})" if version else ""
    advice = next(
        (f"type: {line}" for manager, line in INSTALL_JAVA.items() if shutil.which(manager)),
        "install one and set JAVA_HOME to its directory",
    )
    raise SparkUnavailable(f"Spark needs Java {OLDEST_JAVA} or newer{too_old}; {advice}")


def java_version(java: Path) -> int:
    """The major version of a runtime; 0 when it can not be told."""
    try:
        ended = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # 17.0.15, 21, and 1.8.0_392 for what is called 8.
    match = re.search(r'version "(?:1\.)?(\d+)', ended.stderr + ended.stdout)
    return int(match[1]) if match else 0


def use_java(java: Path) -> None:
    """Makes Spark start this runtime: it looks at JAVA_HOME before PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and java.parent != Path(home) / "bin":
        del os.environ["JAVA_HOME"]
