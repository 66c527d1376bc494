"""/ready while a broker recovers its store, which blocks its event loop."""

from __future__ import annotations

import logging
import re
import urllib.error
import urllib.request
from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import load_broker_config
from tests.monitoring.pages import get


class Asks(logging.Handler):
    """Asks for the page at the moment at which the recovery writes its line."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.answers: list[tuple[int, str]] = []
        self._broker = broker

    def emit(self, record: logging.LogRecord) -> None:
        port = self._broker.monitoring.health_port
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=20)
        except urllib.error.HTTPError as error:
            with error:
                self.answers.append((error.code, error.read().decode()))


async def test_ready_says_how_far_the_recovery_is(tmp_path: Path) -> None:
    config, _ = load_broker_config(
        f"storePathRootDir={tmp_path}\nhealthPort=0\nlistenPort=0\nbindAddress=127.0.0.1\n"
        "mappedFileSizeCommitLog=65536\n"
    )
    async with Broker(config) as stopped:
        stopped.store.put("T", 0, b"x", "", born_timestamp=1, born_host=bytes(8), tags_code=0)
    (tmp_path / "abort").touch()
    broker = Broker(config)
    asks = Asks(broker)
    recovery = logging.getLogger("pocketmq.store.recovery.recovery")
    level = recovery.level
    recovery.addHandler(asks)
    recovery.setLevel(logging.INFO)
    try:
        async with broker:
            ready = await get(broker.monitoring.health_port, "/ready")
    finally:
        recovery.removeHandler(asks)
        recovery.setLevel(level)
    [(status, text)] = asks.answers
    assert status == 503
    assert re.fullmatch(r"the server is starting\nrecovering: \d+ %\n", text)
    assert ready.text == "ok\n"
