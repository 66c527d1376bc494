"""Offsets wait for the log: they may depend on a message in it that a power cut would lose."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pocketmq.broker.tables.consumer_offset import ConsumerOffsets


@pytest.fixture
def offsets(tmp_path: Path) -> ConsumerOffsets:
    return ConsumerOffsets(tmp_path / "consumerOffset.json", lambda: 1_700_000_000_000)


async def test_they_wait_for_the_log(offsets: ConsumerOffsets, tmp_path: Path) -> None:
    flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    asked = asyncio.Event()

    async def log_flushed() -> bool:
        asked.set()
        return await flushed

    offsets.log_flushed = log_flushed
    offsets.commit("G", "T", 0, 5)
    writing = asyncio.ensure_future(offsets.flush())
    await asked.wait()
    offsets.commit("G", "T", 0, 9)  # of a checkpoint that the flush does not cover
    assert not (tmp_path / "consumerOffset.json").exists()
    flushed.set_result(True)
    await writing
    assert '"T@G":{0:5}' in (tmp_path / "consumerOffset.json").read_text()
    await offsets.flush()
    assert '"T@G":{0:9}' in (tmp_path / "consumerOffset.json").read_text()


async def test_they_are_not_written_while_the_log_cannot_be(
    offsets: ConsumerOffsets, tmp_path: Path
) -> None:
    answers = [False, True]

    async def log_flushed() -> bool:
        return answers.pop(0)

    offsets.log_flushed = log_flushed
    offsets.commit("G", "T", 0, 5)
    with pytest.raises(OSError, match="not on the disk"):
        await offsets.flush()
    assert not (tmp_path / "consumerOffset.json").exists()
    await offsets.flush()
    assert answers == []
    assert '"T@G":{0:5}' in (tmp_path / "consumerOffset.json").read_text()
    await offsets.flush()  # nothing has changed, so there is nothing to wait for
