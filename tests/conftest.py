"""What every test shares."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from pocketmq._accelerator import MODULES, accelerator_state, accelerator_wanted
from tests.spark.unpacked_home import unpacked_home

# A deadline per example would be an assertion on speed: it fails on a busy machine.
# The nightly run has many examples; here there are half as many as Hypothesis would try.
settings.register_profile("pocketmq", deadline=None, max_examples=50)
settings.register_profile("long", deadline=None, max_examples=4_000)
# On CI, Hypothesis would try the same examples each time.
settings.register_profile("fuzz", deadline=None, max_examples=1_000, derandomize=False)
# Instrumented modules, and an allocator that checks each call, make the first examples slow.
settings.register_profile("sanitize", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "pocketmq"))


_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java compiles less: most of these tests are over before it pays."""

PRODUCT = Path(__file__).parent.parent / "pocketmq"


#: The scopes that take longest come first: a long one that begins last keeps one worker busy alone.
LONGEST = (
    "clusters",
    "spark",
    "tests/interop/",
    "tests/packaging/",
    "tests/dst/",
    "tests/durability/",
    "tests/crash/",
    "tests/monitoring/",
    "tests/examples/",
    "tests/cli/test_demo.py",
    "tests/bench/",
)


class _Scheduling(LoadScopeScheduling):
    """With `-n`, the tests of one file stay together, and those of several files where they share
    what takes long to start: a Spark session, or the clusters of official servers and ours."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith("tests/interop/") and _uses_clusters(self.config.rootpath / file):
            return "clusters"
        return "spark" if file.startswith("tests/spark/") else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_rank), last=False)
        super()._assign_work_unit(node)


def _rank(scope: str) -> int:
    return next((n for n, begin in enumerate(LONGEST) if scope.startswith(begin)), len(LONGEST))


@cache
def _uses_clusters(file: Path) -> bool:
    return re.search(r"\b(both|cluster|\w+_cluster): ", file.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


def pytest_report_header() -> str:
    return f"pocketmq: {accelerator_state()}"


def pytest_sessionstart() -> None:
    """End a run that would test compiled modules of other sources, or none where it has to."""
    if os.environ.get("POCKETMQ_ACCELERATOR") and accelerator_state() != "compiled":
        pytest.exit(f"POCKETMQ_ACCELERATOR is set, but this is {accelerator_state()}", 2)
    shared = [file.stat().st_mtime for file in PRODUCT.rglob("*.pxd")]
    for module in MODULES if accelerator_wanted() else ():
        found = find_spec(module)
        if found is None or found.origin is None:
            continue
        compiled = Path(found.origin)
        source = compiled.with_name(compiled.name.partition(".")[0] + ".pyx")
        changed = max(source.stat().st_mtime, *shared)
        if changed > compiled.stat().st_mtime:
            pytest.exit(f"{compiled} is older than its source: make accelerator", 2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that are marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked `long`: all of a test, or its runs with the parameters that are named."""
    if config.getoption("--long"):
        return
    for item in items:
        for mark in item.iter_markers("long"):
            parameters = getattr(item, "callspec", None)
            values = parameters.id.split("-") if parameters else []
            if not mark.args or set(mark.args) & set(values):
                item.add_marker(pytest.mark.skip(reason="pytest --long runs it"))


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Commands that run in this process set levels of loggers; put them back afterwards."""
    manager = logging.Logger.manager
    before = {
        name: logger.level
        for name, logger in manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    root = logging.getLogger().level
    yield
    logging.getLogger().setLevel(root)
    for name, logger in manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            logger.setLevel(before.get(name, logging.NOTSET))


@pytest.fixture
def in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is eight hours ahead of UTC."""
    with monkeypatch.context() as environment:
        environment.setenv("TZ", "CST-8")  # needs no table of time zones
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session")
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Settings of every Spark that is started here, also by commands and jobs, and where it is."""
    directory = tmp_path_factory.mktemp("spark-conf")
    settings = (f"spark.{where}.extraJavaOptions {_QUICK}\n" for where in ("driver", "executor"))
    (directory / "spark-defaults.conf").write_text("".join(settings))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_CONF_DIR", str(directory))
        if find_spec("pyspark") is not None:
            home = unpacked_home(tmp_path_factory.mktemp("spark") / "home")
            environment.setenv("SPARK_HOME", str(home))
        yield
