"""What every test shares."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# A deadline per example would be an assertion on speed: it fails on a busy machine.
settings.register_profile("pocketmq", deadline=None)
settings.register_profile("long", deadline=None, max_examples=4_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "pocketmq"))


class _Scheduling(LoadScopeScheduling):
    """With `-n`, the tests of one file stay together, and those of one directory where they share
    what takes long to start: the official servers, or a Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        directory = file.removeprefix("tests/").partition("/")[0]
        return directory if directory in ("interop", "spark") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


@pytest.fixture
def in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is eight hours ahead of UTC."""
    with monkeypatch.context() as environment:
        environment.setenv("TZ", "CST-8")  # needs no table of time zones
        time.tzset()
        yield
    time.tzset()
