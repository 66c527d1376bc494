"""`open_store`: the messages of a store as Arrow, pandas or polars, without Java and a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.store.scan.stored_messages import StoredMessages


def open_store(directory: Path | str) -> StoredMessages:
    """Open a store directory for reading.

    The store may be open in a broker, closed, or left by a broker that was killed. Nothing is
    written to it, and no lock is taken. It may have been written by this broker or the official
    one.

    Args:
        directory: the broker's storePathRootDir. If storePathCommitLog is elsewhere, make a link to
            it named `commitlog` in this directory.

    Raises:
        NoStore: the directory is missing or holds no store.
        ValueError: `directory` is a URL such as `s3a://...`; only local paths can be read.
        ModuleNotFoundError: PyArrow is not installed.

    Example::

        with pocketmq.open_store("./store") as store:
            print(store.topics)
            frame = store.to_pandas(topic="orders", tags="paid")
    """
    try:
        from pocketmq.store.scan.stored_messages import StoredMessages
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("numpy", "pyarrow"):
            raise
        raise ModuleNotFoundError(
            f"open_store needs {missing.name}, which is not installed; "
            "type: pip install 'pocketmq[arrow]'",
            name=missing.name,
        ) from None
    return StoredMessages(directory)
