"""Starts a Spark session with the data source on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pocketmq.spark.sessions.java import find_java, use_java
from pocketmq.spark.sessions.registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Lines that Java and Spark write to stderr at every start, unrelated to the job.
_NOISE: Final = re.compile(
    rb"WARNING: |"
    rb"Using Spark's default log4j profile: |"
    rb"Setting default log level to |"
    rb"To adjust logging level use |"
    rb"Setting Spark log level to |"
    rb".* WARN NativeCodeLoader: "
)


def session(
    name: str = "pocketmq",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    log: Path | str | None = None,
    short_lived: bool = False,
) -> SparkSession:
    """Start a Spark session that can read stores: `session().read.format("rocketmq").load(DIR)`.

    By default it runs on the cores of this machine, is bound to loopback, and has
    neither a web page nor progress lines. Times are shown in the local time zone, as Spark does. If
    a session is running already, you get that one with `config` applied.

    Spark's Python workers run the interpreter that calls this (PYSPARK_PYTHON) and import pocketmq
    from where it has it, so you need not activate a virtual environment. With another `master` than
    a local one, pocketmq and PyArrow must be installed on the executors, and a PYSPARK_PYTHON that
    is set stays as it is.

    Args:
        name: of the application.
        master: where to run, as in `SparkSession.builder.master`.
        config: Spark's settings, such as `{"spark.driver.memory": "4g"}`.
        log: a file for the stderr of the Java process. Default: this process's stderr, without the
            lines that Spark writes at every start.
        short_lived: for a few small queries: Java compiles less, which halves the time of those on
            two busy cores.

    Raises:
        SparkUnavailable: a Java runtime is missing.
    """
    use_java(find_java())
    # Without this, workers run the `python3` in PATH, which may lack pocketmq's packages.
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers import the data source from the same place as this process, installed or not.
    ours = str(Path(__file__).parents[3])
    paths = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # The data is small or has few partitions; 200 tasks for a GROUP BY are not faster.
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.log.level", "ERROR")
    )
    if short_lived:
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        builder = builder.config("spark.driver.extraJavaOptions", quick)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    with _interrupted_later(), _java_stderr(log), warnings.catch_warnings():
        # PySpark warns about a pandas that is too new, which nothing here uses.
        warnings.simplefilter("ignore", FutureWarning)
        started = builder.getOrCreate()
    register(started)
    return started


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended.

    If PySpark is interrupted while it waits for the Java process, that process runs for ever.
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
def _java_stderr(log: Path | str | None) -> Iterator[None]:
    """Send the stderr of processes started within the block to a file, or through a filter.

    This applies as long as these processes run.
    """
    try:
        kept = os.dup(2)
    except OSError:  # this process was started without a stderr
        yield
        return
    try:
        if log is None:
            target = _filter_to(os.dup(kept))
        else:
            target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(target, 2)
        os.close(target)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _filter_to(stderr: int) -> int:
    """Return a pipe to write to. Its lines go to the descriptor `stderr`, except `_NOISE`."""
    reading, writing = os.pipe()

    def copy() -> None:
        with open(reading, "rb") as lines, open(stderr, "wb", buffering=0) as target:
            for line in lines:
                if not _NOISE.match(line):
                    with contextlib.suppress(OSError):
                        target.write(line)

    threading.Thread(target=copy, name="spark-stderr", daemon=True).start()
    return writing
