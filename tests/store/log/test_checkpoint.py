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
    # An official broker writes the first 40 bytes, from 5.4 on 48, and does not use the offset.
    for fields in ((6, 6, 6, 0, 0), (7, 7, 7, 0, 0, 9)):
        with path.open("r+b") as file:
            file.write(struct.pack(f">{len(fields)}q", *fields))
        assert read_flushed(path) == FlushedUpTo(None, fields[0])
        checkpoint.open()
        assert (checkpoint.exact, checkpoint.physic_timestamp) == (False, fields[0])
        checkpoint.close()


def test_official_brokers_enter_again_what_is_not_flushed(tmp_path: Path) -> None:
    """From 5.4 on they start at this offset after a kill; at 0, at the timestamp."""
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(Files(), path)
    checkpoint.open()
    checkpoint.physic_timestamp = 1_795_906_800_000
    for entered, holds, wanted in ((0, False, 0), (77, False, 77), (88, True, 0)):
        checkpoint.entered_offset, checkpoint.holds_logics = entered, holds
        checkpoint.save()
        assert struct.unpack_from(">q", path.read_bytes(), 40) == (wanted,)
    checkpoint.close()
