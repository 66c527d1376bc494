"""What others read of a broker's checkpoint."""

from __future__ import annotations

import struct
from pathlib import Path

from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint, FlushedUpTo, read_flushed


def test_how_far_a_log_is_flushed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_flushed(path) is None
    path.write_bytes(bytes(40))
    assert read_flushed(path) is None
    path.unlink()
    checkpoint = Checkpoint(Files(), path)
    checkpoint.open()
    checkpoint.physic_timestamp, checkpoint.confirm_physical_offset = 5, 77
    checkpoint.save()
    # Also while the broker has it open.
    assert read_flushed(path) == FlushedUpTo(77, 5)
    checkpoint.close()
    # An official broker writes the first 40 bytes, and does not use the offset.
    with path.open("r+b") as file:
        file.write(struct.pack(">5q", 6, 6, 6, 0, 0))
    assert read_flushed(path) == FlushedUpTo(None, 6)
