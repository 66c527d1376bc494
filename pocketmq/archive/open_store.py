"""`open_store`: the messages of a store or an archive as Arrow, pandas or polars.

Neither Java nor a broker is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.store.scan.records.stored_messages import StoredMessages


def open_store(directory: Path | str) -> StoredMessages:
    """Open a store, or the archives under a URL, for reading.

    The store may be open in a broker, closed, or left by a broker that was killed. It is not
    written to, and no lock is taken. It may be of this broker or the official one.

    Args:
        directory: the broker's storePathRootDir. If storePathCommitLog is elsewhere, make a link to
            it named `commitlog` in this directory. Or where `pocketmq sync` has put archives: a URL
            such as `s3://bucket/archives`, or a directory. The archives of several brokers are read
            as one. Or the directory of RocketMQ's tiered storage (tieredStoreFilePath).

    Raises:
        NoStore: the directory is missing or holds no store.
        ArchiveError: the URL is wrong, there is no archive, or it cannot be read.
        ModuleNotFoundError: PyArrow is not installed.

    Example::

        with pocketmq.open_store("./store") as store:
            print(store.topics)
            frame = store.to_pandas(topic="orders", tags="paid")
    """
    try:
        from pocketmq.store.scan.records.stored_messages import StoredMessages
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("numpy", "pyarrow"):
            raise
        raise ModuleNotFoundError(
            f"open_store needs {missing.name}, which is not installed; "
            "type: pip install 'pocketmq[arrow]'",
            name=missing.name,
        ) from None
    from pocketmq.archive.archives import archives_at, is_archive
    from pocketmq.archive.location import Location
    from pocketmq.store.local_path import is_remote
    from pocketmq.store.scan.planning.snapshot import check_store
    from pocketmq.store.scan.planning.tail import take_snapshot

    if not isinstance(directory, str | Path):
        raise TypeError(f"directory is {directory!r}: need a str or a Path")
    if isinstance(directory, str) and is_remote(directory):
        return StoredMessages(directory, archives_at(Location(directory)))
    if isinstance(directory, str):
        directory = directory.removeprefix("file://")
    root = Path(directory).expanduser().absolute()
    if is_archive(root):
        return StoredMessages(root, archives_at(Location(str(root))))
    check_store(root)
    return StoredMessages(root, lambda choice, _: [take_snapshot(root, choice)])
