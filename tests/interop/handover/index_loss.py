"""What the official broker leaves out of its index when it opens a store after a kill.

It removes every index file that the checkpoint does not vouch for, and enters again only what lies
from the file of the commit log on where its recovery starts. What lies between is in no index file
any more. (`messageIndexSafe`, which is off by default, lets recovery start earlier.)
Reference: IndexService.load, CommitLog.isMappedFileMatchedRecover.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

_CHECKPOINT = Struct(">3q")
_INDEX_HEAD = Struct(">4q")
_MAGICS = (0xDAA320A7, 0xDAA320AB)
_RECORD_HEAD = Struct(">4xI48xq")  # magic and store timestamp, with an IPv4 born host
_SAFETY_MS = 3_000


def index_loss(store: Path) -> range:
    """Return the physical offsets whose messages its index need not have.

    To be called after the kill, before the official broker starts.
    """
    physic, logics, index_time = 0, 0, 0
    checkpoint = store / "checkpoint"
    if checkpoint.exists():
        physic, logics, index_time = _CHECKPOINT.unpack_from(checkpoint.read_bytes())
    kept = 0
    for path in sorted((store / "index").glob("*")):
        head = path.read_bytes()[: _INDEX_HEAD.size]
        # A kill may leave a file that has no bytes yet.
        _, end_time, _, end_offset = _INDEX_HEAD.unpack(head.ljust(_INDEX_HEAD.size, b"\0"))
        if end_time <= index_time:
            kept = max(kept, end_offset)
    certain = max(0, min(physic, logics) - _SAFETY_MS)
    files = sorted((store / "commitlog").glob("*"))
    start = int(files[0].name) if files else 0
    for path in reversed(files):
        with path.open("rb") as file:
            magic, timestamp = _RECORD_HEAD.unpack(file.read(_RECORD_HEAD.size))
        if magic in _MAGICS and 0 < timestamp <= certain:
            start = int(path.name)
            break
    # The last message of a full file may have some of its keys in the next one.
    return range(kept, start)
