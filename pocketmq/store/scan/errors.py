"""What a scan can meet in a store that is not whole (beside `StoreCorrupt` of `store.errors`)."""

from __future__ import annotations

from pathlib import Path

from pocketmq.store.errors import StoreError


class NoStore(StoreError):
    """A path that is not the root of a store."""

    def __init__(self, path: Path) -> None:
        hint = ""
        if (path / "consumequeue").is_dir():
            hint = "; where storePathCommitLog is elsewhere, make a link of that name to it"
        super().__init__(f"no store at {path}: it has no directory named commitlog{hint}")
        self.path = path


class RecordsLost(StoreError):
    """Records that were asked for, or were there at planning time, are gone."""

    def __init__(self, topic: str, queue_id: int, first: int, last: int, reason: str) -> None:
        super().__init__(f"{topic}/{queue_id}: the records {first} to {last} are gone: {reason}")
        self.topic = topic
        self.queue_id = queue_id
        self.first = first
        self.last = last


def raise_loss(count: int, error: RecordsLost) -> None:
    """What is done about records that are not there, unless one is told otherwise."""
    raise error
