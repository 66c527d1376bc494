"""The settings of a store: RocketMQ's own names (camelCase in a broker.conf), 5.3.3's defaults."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from message.limits import MAX_BODY

CONSUME_QUEUE_UNIT: Final = 20
"""Bytes of a consume-queue entry."""
DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# A file must hold at least a few records; its size is a signed 32-bit number to the reference.
FileSize = Annotated[int, Meta(ge=1024, le=2**31 - 1)]
Millis = Annotated[int, Meta(ge=1)]


class FlushDiskType(Enum):
    """When a send is acknowledged: after it is stored, or after it is on the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class StoreConfig(Struct, kw_only=True, rename="camel"):
    """Settings of one store. Sizes are bytes, times milliseconds unless said otherwise.

    Attributes:
        store_path_root_dir: the directory of everything; `~` is the home directory.
        store_path_commit_log: the commit log's directory, "" for `commitlog` under the root.
        mapped_file_size_commit_log: of each commit-log file. A store that exists must be opened
            with the size it was written with.
        mapped_file_size_consume_queue: of each consume-queue file, rounded up to whole entries.
        flush_interval_commit_log: the longest time until an asynchronous flush begins.
        flush_commit_log_least_pages: pages of 4 KiB that make an asynchronous flush worth it ...
        flush_commit_log_thorough_interval: ... unless this long has passed since the last one.
        flush_interval_consume_queue, flush_consume_queue_least_pages,
            flush_consume_queue_thorough_interval: the same for consume queues.
        sync_flush_timeout: how long a send waits for a synchronous flush.
        max_message_size: of a body, or of a whole batch body.
        max_filter_message_size: consume-queue bytes that one get scans at most.
        message_delay_level: the delay levels, from 1 upwards.
        delete_when, file_reserved_time: hours of the day at which, and hours after which, files
            expire. Read so that a broker.conf loads; nothing expires yet.
    """

    store_path_root_dir: str = "~/store"
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: FileSize = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: FileSize = 300_000 * CONSUME_QUEUE_UNIT
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log: Millis = 500
    flush_commit_log_least_pages: Annotated[int, Meta(ge=0)] = 4
    flush_commit_log_thorough_interval: Millis = 10_000
    flush_interval_consume_queue: Millis = 1_000
    flush_consume_queue_least_pages: Annotated[int, Meta(ge=0)] = 2
    flush_consume_queue_thorough_interval: Millis = 60_000
    sync_flush_timeout: Millis = 5_000
    max_message_size: Annotated[int, Meta(ge=1024, le=2**30)] = MAX_BODY
    max_filter_message_size: Annotated[int, Meta(ge=CONSUME_QUEUE_UNIT)] = 16_000
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    delete_when: str = "04"
    file_reserved_time: Annotated[int, Meta(ge=0)] = 72

    @property
    def root(self) -> Path:
        """The store's directory."""
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_directory(self) -> Path:
        """Where the commit log's files lie."""
        if self.store_path_commit_log:
            return Path(self.store_path_commit_log).expanduser()
        return self.root / "commitlog"

    @property
    def consume_queue_directory(self) -> Path:
        """Where the consume queues lie, as TOPIC/QUEUE_ID/FILE."""
        return self.root / "consumequeue"

    @property
    def consume_queue_file_size(self) -> int:
        """`mapped_file_size_consume_queue`, rounded up to whole entries as the reference does."""
        unit = CONSUME_QUEUE_UNIT
        return -(-self.mapped_file_size_consume_queue // unit) * unit
