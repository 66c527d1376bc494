"""One `pocketmq serve` for the tests that need a cluster."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator

import pytest

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
