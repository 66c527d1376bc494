"""The settings of a store: RocketMQ's own names (camelCase in a broker.conf), 5.3.3's defaults."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct, field

from pocketmq.message.limits import MAX_BODY
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

TABLES: Final = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "consumerFilter.json",
    "delayOffset.json",
)
"""The tables of a broker in `config/`, without which it does not start when they are damaged."""

# A file must hold at least a few records; its size is a signed 32-bit number to the reference.
MAX_FILE_SIZE: Final = 2**31 - 1
FileSize = Annotated[int, Meta(ge=1024, le=MAX_FILE_SIZE)]
Millis = Annotated[int, Meta(ge=1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Delays = Annotated[
    str, Meta(pattern=r"^[0-9]+[smhd]( +[0-9]+[smhd])*$", description="delays such as 1s 5m 2h 1d")
]
Hours = Annotated[
    str,
    Meta(
        pattern=r"^ *([01]?[0-9]|2[0-3]) *(; *([01]?[0-9]|2[0-3]) *)*;?$",
        description="hours of the day, 0 to 23, such as 04;16",
    ),
]


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
        check_crc_on_read: compare the CRC of each message that is read, and its tags code; not of
            the official broker, whose checkCRCOnRecover this is named after.
        enabled_append_prop_crc: give each record the checksum of all its bytes as its last property
            (`__CRC32#`), which takes 20 bytes, and the quick ways of sends.
        force_verify_prop_crc: a record that differs from this checksum counts as damaged wherever
            its body's CRC is checked. One that has none counts by its body's CRC.
        max_message_size: of a body, or of a whole batch body.
        max_filter_message_size: consume-queue bytes that one get scans at most.
        message_delay_level: the delay levels, from 1 upwards.
        flush_delay_offset_interval: how often the progress of the delay levels is written.
        timer_wheel_enable: take messages with a delivery time.
        timer_precision_ms: the length of a slot of the timer wheel, of 100, 200, 500 or 1000; use
            `timer_precision`. A store that has timed messages keeps the one it was written with.
        timer_max_delay_sec: the furthest delivery time, seconds.
        timer_roll_window_slot: a message that is due in more slots than this is stored again
            before it is due, lest its commit-log file expires.
        timer_congest_num_each_slot: messages of one slot above which more may be refused.
        timer_flush_interval_ms: how often the progress of timed messages is written.
        mapped_file_size_timer_log: of each file of the timer log.
        message_index_enable: whether messages can be found by their keys and tags; use
            `builds_index`.
        index_file_write_enable, index_file_read_enable: of 5.4: whether the index is built, and
            whether queries look for anything in it.
        max_hash_slot_num, max_index_num: of each index file. A file of another size is rebuilt.
        max_msgs_num_batch: messages that one query finds at most.
        default_query_max_num: messages that a query by unique key finds at most.
        enable_lmq, enable_multi_dispatch: with both, there are light queues; use
            `has_light_queues`. enable_lmq also chooses the file of the consumer offsets; unset: the
            one that was written last.
        max_lmq_consume_queue_num: light queues above which no new one is made.
        delete_when: hours of the day (`"04"`, `"04;16"`) at which commit-log files expire ...
        file_reserved_time: ... that have not been written to for this many hours.
        disk_max_used_space_ratio: percentage of the disk from which on these expire at any time.
        disk_space_clean_forcibly_ratio: from which on files are removed whatever their age (30 to
            85), if clean_file_forcibly_enable.
        disk_space_warning_level_ratio: from which on a warning is logged (35 to 90).
        clean_resource_interval: between two looks at what can be removed.
        delete_commit_log_files_interval: between the removals of two commit-log files.
        delete_file_batch_max: commit-log files removed in one round.
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
    check_crc_on_read: bool = field(default=False, name="checkCRCOnRead")
    enabled_append_prop_crc: bool = field(default=False, name="enabledAppendPropCRC")
    force_verify_prop_crc: bool = field(default=False, name="forceVerifyPropCRC")
    max_message_size: Annotated[int, Meta(ge=1024, le=2**30)] = MAX_BODY
    max_filter_message_size: Annotated[int, Meta(ge=CONSUME_QUEUE_UNIT)] = 16_000
    message_delay_level: Delays = DEFAULT_DELAY_LEVELS
    flush_delay_offset_interval: Millis = 10_000
    timer_wheel_enable: bool = True
    timer_precision_ms: Millis = 1_000
    timer_max_delay_sec: Annotated[int, Meta(ge=0, le=2_000_000)] = 3 * 24 * 3600
    timer_roll_window_slot: int = 2 * 24 * 3600
    timer_congest_num_each_slot: Annotated[int, Meta(ge=0)] = 2**31 - 1
    timer_flush_interval_ms: Millis = 1_000
    mapped_file_size_timer_log: FileSize = 100 * 1024 * 1024
    message_index_enable: bool = True
    index_file_write_enable: bool = True
    index_file_read_enable: bool = True
    max_hash_slot_num: Annotated[int, Meta(ge=1, le=2**28)] = 5_000_000
    max_index_num: Annotated[int, Meta(ge=2, le=50_000_000)] = 20_000_000
    max_msgs_num_batch: Annotated[int, Meta(ge=1, le=10_000)] = 64
    default_query_max_num: Annotated[int, Meta(ge=1)] = 32
    enable_lmq: bool | None = None
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: Annotated[int, Meta(ge=0)] = 20_000
    delete_when: Hours = "04"
    file_reserved_time: Annotated[int, Meta(ge=0)] = 72
    disk_max_used_space_ratio: Percent = 75
    disk_space_clean_forcibly_ratio: Percent = 85
    disk_space_warning_level_ratio: Percent = 90
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: Millis = 10_000
    delete_commit_log_files_interval: Annotated[int, Meta(ge=0)] = 100
    delete_file_batch_max: Annotated[int, Meta(ge=1)] = 10

    @property
    def root(self) -> Path:
        """The store's directory."""
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_directory(self) -> Path:
        """The directory of the commit log's files."""
        if self.store_path_commit_log:
            return Path(self.store_path_commit_log).expanduser()
        return self.root / "commitlog"

    @property
    def consume_queue_directory(self) -> Path:
        """The directory of the consume queues, as TOPIC/QUEUE_ID/FILE."""
        return self.root / "consumequeue"

    @property
    def index_directory(self) -> Path:
        """The directory of the index files."""
        return self.root / "index"

    @property
    def builds_index(self) -> bool:
        """Whether keys and tags of new messages are entered into the index."""
        return self.message_index_enable and self.index_file_write_enable

    @property
    def has_light_queues(self) -> bool:
        """Whether messages are dispatched to light queues, and these are served."""
        return self.enable_lmq is True and self.enable_multi_dispatch

    @property
    def copied_file(self) -> Path:
        """The file that exists while the log is copied from a master. It tells a start that the
        last record may be incomplete. The official broker has no such file."""
        return self.root / "copied"

    @property
    def directories(self) -> tuple[Path, ...]:
        """All directories of the store, whether they exist or not."""
        return (
            self.root,
            self.commit_log_directory,
            self.consume_queue_directory,
            self.index_directory,
            self.root / "config",
            self.root / "timerlog",
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the store whose names never change, whether they exist or not."""
        config = self.root / "config"
        return (
            self.root / "lock",
            self.root / "abort",
            self.root / "checkpoint",
            self.copied_file,
            self.root / "queuebounds",
            self.root / "queuebegins",
            self.root / "timerwheel",
            config / "timercheck",
            *(config / name for name in TABLES),
            *(config / f"{name}.bak" for name in TABLES),
        )

    @property
    def timer_precision(self) -> int:
        """`timer_precision_ms`, rounded to one of the lengths that the reference allows."""
        return max((p for p in (200, 500, 1000) if p <= self.timer_precision_ms), default=100)

    @property
    def consume_queue_file_size(self) -> int:
        """`mapped_file_size_consume_queue`, rounded up to whole entries as the reference does."""
        unit = CONSUME_QUEUE_UNIT
        return -(-self.mapped_file_size_consume_queue // unit) * unit
