"""`config/timercheck` with values that no broker writes."""

from __future__ import annotations

from pathlib import Path
from struct import pack, unpack_from

from pocketmq.store.files import Files
from pocketmq.store.timer.timer_checkpoint import SIZE, TimerCheckpoint


def test_the_highest_counter_is_followed_by_the_lowest(tmp_path: Path) -> None:
    path = tmp_path / "config" / "timercheck"
    path.parent.mkdir()
    path.write_bytes(pack(">7q", 1, 2, 3, 3, 0, 0, 2**63 - 1).ljust(SIZE, b"\0"))
    for counter in (-(2**63), -(2**63) + 1):
        checkpoint = TimerCheckpoint(Files(), path)
        checkpoint.open()
        assert (checkpoint.read_time, checkpoint.log_flushed, checkpoint.queue_offset) == (1, 2, 3)
        checkpoint.sync(1, 2, 3, 4)
        checkpoint.close()
        assert unpack_from(">q", path.read_bytes(), 48) == (counter,)
