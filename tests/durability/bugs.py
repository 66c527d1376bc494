"""Deliberate bugs: a proof that does not find them proves nothing.

Each is a broker that leaves out a sync, or does something else than it should.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from unittest import mock

from pocketmq.broker.acknowledge.answers import SendAnswers
from pocketmq.broker.tables.topic_births import TopicBirths
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message.record import decode
from pocketmq.remoting.serving.frame_stream import FrameStream
from pocketmq.store.files import MappedFile
from pocketmq.store.log import log_walk, record_blocks
from pocketmq.store.recovery.flush import CommitLogFlusher

from .disk import Lie
from .failing_disk import Fault


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


def of_directories(directory: str) -> Lie:
    """Leave out the syncs of a directory, and of those in it."""
    return lambda kind, path: kind == "directory" and directory in path.parts


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


@contextlib.contextmanager
def no_crc() -> Iterator[None]:
    """Bodies are not looked at, neither of single records nor of many."""
    with (
        mock.patch.object(log_walk, "decode", partial(decode, check_crc=False)),
        mock.patch.object(record_blocks, "first_wrong_crc", lambda _, begin, *__: len(begin)),
    ):
        yield


@contextlib.contextmanager
def zeros_are_lost() -> Iterator[None]:
    """Zeros in properties count as lost bytes, whatever the checksum says."""
    with (
        mock.patch.object(log_walk, "is_proven", return_value=False),
        mock.patch.object(record_blocks, "is_proven", return_value=False),
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
    "the names of the queues are not synced": Bug(
        "its offset is given again|its queue does not have it", of_directories("consumequeue")
    ),
    "the index is not synced": Bug("not found by its key", of_files("index")),
    "the names of the index are not synced": Bug("not found by its key", of_directory("index")),
    "the timer wheel is not synced": Bug("not delivered", of_files("timerwheel"), timed=True),
    "the timer log is not synced": Bug("do not open", of_files("timerlog"), timed=True),
    "the names of the timer log are not synced": Bug(
        "do not open", of_directory("timerlog"), timed=True
    ),
    "the names in the store's directory are not synced": Bug(
        "lost, the log ends|does not open", of_directory("life")
    ),
    "the checkpoint is written before the log": Bug(
        "does not open", patch=checkpoint_before_log(), sync=False
    ),
    "recovery does not check the CRC": Bug(
        "not readable",
        patch=no_crc(),
        sync=False,
    ),
    "recovery takes zeros in properties for lost bytes": Bug(
        "lost, the log ends", patch=zeros_are_lost()
    ),
}


class DiskBug(NamedTuple):
    """A bug in what is done about an error of the disk, `fault`; `found` is what is said then, a
    pattern; `sync`: the flush mode in which it breaks a promise."""

    found: str
    fault: Fault
    patch: contextlib.AbstractContextManager[object]
    sync: bool = True


def _swallowed(original: Callable[..., None]) -> Callable[..., None]:
    """Return it as a function whose errors nobody hears of."""

    def quiet(*args: object) -> None:
        with contextlib.suppress(OSError):
            original(*args)

    return quiet


async def _at_once(*_: object) -> None:
    """Wait for nothing."""


@contextlib.contextmanager
def _topics_unsaved() -> Iterator[None]:
    """Topics are used before topics.json is written, and nothing else notes them."""
    unsaved = mock.patch.multiple(
        TopicConfigs, saved=_at_once, is_saved=lambda *_: True, check_new=lambda *_: None
    )
    with unsaved, mock.patch.object(TopicBirths, "created"):
        yield


DISK_BUGS = {
    "a sync that failed counts as done": DiskBug(
        "taken although a sync of the log has failed",
        Fault("fdatasync", errno.EIO, 5, 12, short=False),
        mock.patch.object(MappedFile, "sync", _swallowed(MappedFile.sync)),
    ),
    "a send is acknowledged although its write failed": DiskBug(
        "not readable|lost",
        Fault("write", errno.EIO, 5, 40, short=False),
        mock.patch.object(FrameStream, "replace_answers", return_value=set()),
        sync=False,
    ),
    "connections are closed instead of an answer": DiskBug(
        "a request was not answered",
        Fault("write", errno.ENOSPC, 5, 40, short=False),
        mock.patch.object(SendAnswers, "not_available", side_effect=OSError),
    ),
    "a topic is used before it is on the disk": DiskBug(
        "does not know the topic",
        Fault("replace", errno.EIO, 3, 200, short=False),
        _topics_unsaved(),
    ),
}
