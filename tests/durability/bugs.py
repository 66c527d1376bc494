"""Deliberate bugs: a proof that does not find them proves nothing.

Each is a broker that leaves out a sync, or does something else than it should.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple
from unittest import mock

from pocketmq.message.record import decode
from pocketmq.store.files import MappedFile
from pocketmq.store.log import log_walk
from pocketmq.store.log.flush import CommitLogFlusher

from .disk import Lie


class Bug(NamedTuple):
    """A bug, and what is said when it is found: a pattern. `lie`: syncs that are left out, `patch`
    what else is wrong; `sync`: the flush mode in which it breaks a promise, `timed`: with timed
    messages."""

    found: str
    lie: Lie | None = None
    patch: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    sync: bool = True
    timed: bool = False


def of_files(directory: str) -> Lie:
    return lambda kind, path: kind == "file" and directory in path.parts


def of_directory(name: str) -> Lie:
    return lambda kind, path: kind == "directory" and path.name == name


@contextlib.contextmanager
def checkpoint_before_log() -> Iterator[None]:
    """The flush of the log writes the checkpoint, and syncs the log after that."""
    flush, sync = CommitLogFlusher.flush, MappedFile.sync
    late = threading.local()

    def flush_late(flusher: CommitLogFlusher) -> int:
        late.files = []
        end = flush(flusher)
        files, late.files = late.files, None
        for file in files:
            sync(file)
        return end

    def sync_late(file: MappedFile) -> None:
        if getattr(late, "files", None) is None:
            sync(file)
        else:
            late.files.append(file)

    with (
        mock.patch.object(CommitLogFlusher, "flush", flush_late),
        mock.patch.object(MappedFile, "sync", sync_late),
    ):
        yield


BUGS = {
    "the log is not synced": Bug("does not open|lost, the log ends", of_files("commitlog")),
    "the names of the log are not synced": Bug(
        "does not open|lost, the log ends|not readable", of_directory("commitlog")
    ),
    "the tables are not synced": Bug("does not know the topic|does not load", of_files("config")),
    "the names of the tables are not synced": Bug(
        "does not know the topic", of_directory("config")
    ),
    "the queues are not synced": Bug(
        "its offset is given again|its queue does not have it", of_files("consumequeue")
    ),
    "the index is not synced": Bug("not found by its key", of_files("index")),
    "the timer wheel is not synced": Bug("not delivered", of_files("timerwheel"), timed=True),
    "the timer log is not synced": Bug("do not open", of_files("timerlog"), timed=True),
    "the checkpoint is written before the log": Bug(
        "does not open", patch=checkpoint_before_log(), sync=False
    ),
    "recovery does not check the CRC": Bug(
        "not readable",
        patch=mock.patch.object(log_walk, "decode", partial(decode, check_crc=False)),
        sync=False,
    ),
}
