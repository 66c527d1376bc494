"""Errors of a scan, beside `StoreCorrupt` of `store.errors`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pocketmq.store.errors import StoreError

_SHOWN_NAMES: Final = 10


class NoStore(StoreError):
    """A path that is not the root directory of a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no store at {path}: {_reason(path)}")
        self.path = path


class NoTopic(StoreError):
    """A topic that the store does not have. `known` lists the topics that it has."""

    def __init__(self, root: Path | str, topic: str, known: str) -> None:
        super().__init__(f"no topic {topic!r} in the store {root}; its topics: {known}")
        self.root = root
        self.topic = topic


class NotVisible(StoreError):
    """A store that this executor of Spark does not see, although the driver does."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            f"this executor does not see {root}: the store must be at the same path on the driver "
            "and on every executor, on a shared file system for instance"
        )
        self.root = root


class RecordsLost(StoreError):
    """Records that were asked for, or were there at planning time, are gone."""

    def __init__(self, topic: str, queue_id: int, first: int, last: int, reason: str) -> None:
        super().__init__(f"{topic}/{queue_id}: the records {first} to {last} are gone: {reason}")
        self.topic = topic
        self.queue_id = queue_id
        self.first = first
        self.last = last
        self.reason = reason


class QueueReplaced(RecordsLost):
    """A queue is not the one that was read up to an offset: its topic was deleted, and perhaps
    created again, or the store was replaced. How many messages were lost with it is not known."""

    def __init__(self, topic: str, queue_id: int, offset: int, reason: str) -> None:
        super().__init__(topic, queue_id, offset, offset, reason)
        self.args = (
            f"{topic}/{queue_id} was read up to offset {offset}, and is not the same queue any "
            f"more: {reason}. The topic was deleted, and perhaps created again, or the store was "
            "replaced",
        )


class StoreRecovering(StoreError):
    """A store whose broker was killed, and has not built its queues again within the time that a
    reader waits."""

    def __init__(self, place: Path | str, seconds: float) -> None:
        super().__init__(
            f"{place}: the broker was killed, and has not recovered the ends of its queues within "
            f"{seconds:.0f} s. Read again when it has started"
        )
        self.place = place


class PulledCorrupt(StoreError):
    """A record that a broker has sent is invalid."""

    def __init__(self, broker: str, topic: str, queue_id: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{topic}/{broker}/{queue_id}: the record {offset}, or one after it, is corrupt: "
            f"{reason}. To check the files of the broker, type on its machine: pocketmq store check"
        )
        self.broker = broker
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.reason = reason


def raise_loss(count: int, error: RecordsLost) -> None:
    """Raise `error`: by default, missing records end a scan."""
    raise error


def _reason(path: Path) -> str:
    """Say why `path` is not the root of a store, and what it holds instead."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return "there is no such directory"
    except NotADirectoryError:
        return "it is a file"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    reason = "it has no directory named commitlog"
    if "consumequeue" in names:
        return f"{reason}; where storePathCommitLog is elsewhere, make a link of that name to it"
    more = ", ..." if len(names) > _SHOWN_NAMES else ""
    return f"{reason}; it has {', '.join(names[:_SHOWN_NAMES]) or 'nothing'}{more}"
