"""`check_store`: finds what is wrong with a store, and whether a broker would start on it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from pocketmq.message import fastjson
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.message.limits import TIMER_TOPIC, is_system_topic
from pocketmq.message.multi_dispatch import is_light_queue
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.index_check import check_index
from pocketmq.store.check.log_check import LogCheck, common_size
from pocketmq.store.check.queue_check import QueueCheck, queue_directories, queue_file_size
from pocketmq.store.check.report import Part, Problem, Report, State
from pocketmq.store.check.timer_check import TimerCheck
from pocketmq.store.config import TABLES, StoreConfig
from pocketmq.store.config_file import ConfigFile, ConfigFileError
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.deletions import DELETED_TOPICS, read_deleted_topics
from pocketmq.store.errors import (
    FileSizeMismatch,
    FileTooLarge,
    NotAFile,
    StoreCorrupt,
    StoreError,
)
from pocketmq.store.files import Retirement, raise_descriptor_limit, read_small
from pocketmq.store.log.allocation import FileAllocator
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.message_store import now_ms
from pocketmq.store.queue.batch_topics import batch_topics
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.queue_bounds import NO_BOUNDS, BoundsFile
from pocketmq.store.recovery.recovery import Recovery
from pocketmq.store.store_lock import ABORT_FILE, is_locked
from pocketmq.store.timer.timer_index import TimerIndex

_ALL: Final = 1 << 62  # after every physical offset
_Offset = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: The key of each table, and the part of its type that matters here.
_SHAPES: Final = {
    "topics.json": ("topicConfigTable", dict[str, dict[str, Any]]),
    "subscriptionGroup.json": ("subscriptionGroupTable", dict[str, dict[str, Any]]),
    "consumerOffset.json": ("offsetTable", dict[str, dict[int, _Offset]]),
    "lmqConsumerOffset.json": ("offsetTable", dict[str, dict[int, _Offset]]),
    "consumerFilter.json": ("filterDataByTopic", dict[str, dict[str, Any]]),
    "delayOffset.json": ("offsetTable", dict[int, _Offset]),
}
#: Those whose version a start reads.
_WITH_VERSION: Final = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
)


def sized(config: StoreConfig) -> StoreConfig:
    """Return the settings with the file sizes that the store was written with, unless the settings
    differ from the defaults."""
    found, default = msgspec.structs.replace(config), StoreConfig()
    size = default.mapped_file_size_commit_log
    if config.mapped_file_size_commit_log == size:
        found.mapped_file_size_commit_log = common_size(config.commit_log_directory, size)
    size = default.mapped_file_size_timer_log
    if config.mapped_file_size_timer_log == size:
        found.mapped_file_size_timer_log = common_size(config.root / "timerlog", size)
    size = default.mapped_file_size_consume_queue
    if config.mapped_file_size_consume_queue == size:
        directories = queue_directories(config.consume_queue_directory)
        found.mapped_file_size_consume_queue = queue_file_size(
            directories, default.consume_queue_file_size
        )
    return found


def check_store(
    config: StoreConfig,
    advanced: Callable[[int], None] = lambda _: None,
    clock: Callable[[], int] = now_ms,
) -> Report:
    """Look through the whole store at `config.root`; a broker may have it open.

    File sizes are taken from the files. `advanced` is called with the bytes of the commit log that
    were looked at since the last call; `clock` gives milliseconds.

    Raises:
        OSError: it cannot be read.
    """
    raise_descriptor_limit()
    return StoreCheck(sized(config), advanced, clock).run(state_of(config.root))


class StoreCheck:
    """One check; `config` has the sizes of the files (`sized`).

    Attributes:
        log, queues: their checks, after `run`.
    """

    log: LogCheck
    queues: QueueCheck

    def __init__(
        self,
        config: StoreConfig,
        advanced: Callable[[int], None] = lambda _: None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """`clock` gives milliseconds."""
        self._config = config
        self._clock = clock
        self._advanced = advanced
        self._problems: list[Problem] = []
        self._parts: list[Part] = []
        self._remarks: list[str] = []
        self._bounds = NO_BOUNDS

    def run(self, state: State) -> Report:
        """Look through everything; `state` is how the last process left it. Raises OSError."""
        config = self._config
        opened = state is State.OPEN
        flushed, entered = self._checkpoint(state)
        if state is State.CLEAN:
            entered = _ALL
        # The queues first: then the log already has what they point at.
        foreign: frozenset[str] = frozenset()
        with suppress(StoreError):  # the table is looked at below
            foreign = batch_topics(config.root)
        queues = QueueCheck(
            config.consume_queue_directory,
            config.consume_queue_file_size,
            foreign,
            entered,
            read_deleted_topics(config.root),
        )
        log = LogCheck(
            config.commit_log_directory,
            config.mapped_file_size_commit_log,
            flushed=flushed,
            open=opened,
            advanced=self._advanced,
        )
        log.run(lambda base, records, codes: queues.compare(log.topics, base, records, codes))
        self.log, self.queues = log, queues
        self._report_log(log)
        self._report_queues(queues, log, state)
        if self._bounds.current:
            self._report_bounds(queues)
        self._report_index(log)
        self._report_timers(log, queues, state)
        self._report_tables(queues)
        refusal = "" if opened else self._refusal(state, ours=flushed is not None)
        return Report(
            store=str(config.root), state=state, flushed=flushed,
            starts=None if opened else not refusal, refusal=refusal, remarks=self._remarks,
            parts=self._parts, problems=self._problems,
        )  # fmt: skip

    def refusal(self, state: State) -> str:
        """Return why a broker would not start, without a look at anything else; nothing if it
        would."""
        flushed, _ = self._checkpoint(state)
        return self._refusal(state, ours=flushed is not None)

    def _add(self, part: str, where: Path | str, problem: str, **more: object) -> None:
        self._problems.append(
            msgspec.convert(
                {"part": part, "where": str(where), "problem": problem, **more}, Problem
            )
        )

    def _checkpoint(self, state: State) -> tuple[int | None, int]:
        """Return the physical offsets up to which the log was flushed, if that is known, and up to
        which messages are in their queues. Read what the last stop left of the queues."""
        checkpoint = Checkpoint(DryFiles(), self._config.root / "checkpoint")
        try:
            checkpoint.open()
        except FileSizeMismatch as error:
            self._add("checkpoint", error.path, f"{error.actual} bytes instead of {error.expected}")
            return None, 0
        with _heard(self._remarks):
            self._bounds = BoundsFile(DryFiles(), self._config.root).load(
                checkpoint.queue_bounds, clean=state is State.CLEAN
            )
        checkpoint.close()
        if not checkpoint.exact:
            return None, 0
        return checkpoint.confirm_physical_offset, checkpoint.entered_offset

    def _report_log(self, log: LogCheck) -> None:
        for path in log.strange:
            self._add("commitlog", path, "its name does not fit the size of the files")
        for each in log.damage:
            self._add("commitlog", each.path, each.reason, begin=each.begin, end=each.end)
        for each in log.altered:
            self._add(
                "commitlog", each.path, f"the record can be read, but {each.reason}",
                begin=each.begin, end=each.end,
            )  # fmt: skip
        for file in log.misfits:
            reason = f"the file has {file.size} bytes instead of {log.file_size}"
            self._add("commitlog", file.path, reason)
        if log.torn is not None:
            self._remarks.append(
                f"{log.directory}: from physical offset {log.torn} on there is what was not "
                "written completely"
            )
        self._part("commitlog", len(log.files), log.bytes, log.records, log.begin, log.end)

    def _report_queues(self, queues: QueueCheck, log: LogCheck, state: State) -> None:
        for bad in queues.bad_files:
            self._add("consumequeue", bad.path, bad.reason)
        for each in queues.disagreements(log.begin, log.end, open=state is State.OPEN):
            self._add(
                "consumequeue", f"{each.topic}/{each.queue_id}", each.reason,
                begin=each.begin, end=each.end, derived=True,
            )  # fmt: skip
        for queue in queues.queues.values():
            for begin, end in queue.mistagged:
                self._add(
                    "consumequeue", f"{queue.topic}/{queue.queue_id}",
                    "the entry has another tags code than the message's tag: one of them is "
                    "damaged", begin=begin, end=end,
                )  # fmt: skip
            if queue.missing:
                self._add(
                    "consumequeue", f"{queue.topic}/{queue.queue_id}",
                    f"{queue.missing} messages of the commit log are not in the queue",
                    begin=queue.end, end=queue.end + queue.missing, derived=True,
                )  # fmt: skip
        waiting = queues.not_entered
        known = self._existing_topics(queues)
        for (topic, queue_id), count in queues.unknown.items():
            if topic not in known and not (is_system_topic(topic) or is_light_queue(topic)):
                self._remarks.append(
                    f"{topic}/{queue_id} has no queue, but {count} messages in the commit log: was "
                    "the topic deleted?"
                )
            elif (topic, queue_id) in queues.missing:
                self._add(
                    "consumequeue", f"{topic}/{queue_id}",
                    f"no queue, but {count} messages in the commit log", derived=True,
                )  # fmt: skip
            else:
                waiting += count
        if waiting and state is State.CRASHED:
            self._remarks.append(
                f"{waiting} messages of the commit log are not in their queues: a start after a "
                "crash enters them, `pocketmq store repair` always does"
            )
        files = sum(len(queue.files) for queue in queues.queues.values())
        self._part("consumequeue", files, files * queues.file_size, queues.entries)

    def _existing_topics(self, queues: QueueCheck) -> set[str]:
        """Return the topics known not to be deleted: those in topics.json, and those with
        queues."""
        root = self._config.root
        if has_topics(root):
            return {*known_topics(root), *lost_topics(root, queues.queues)}
        return {topic for topic, _ in queues.queues}

    def _report_bounds(self, queues: QueueCheck) -> None:
        """Report the queues that have changed since the store was closed, even if their content
        agrees with the log."""
        reported = {problem.where for problem in self._problems}
        for topic, of_topic in self._bounds.table.items():
            for queue_id, bounds in of_topic.items():
                if bounds.begin < 0 or f"{topic}/{queue_id}" in reported:
                    continue
                queue = queues.queues.get((topic, queue_id))
                found = (queue.begin, queue.end) if queue is not None and queue.files else (0, 0)
                if found != (bounds.begin, bounds.end):
                    self._add(
                        "consumequeue", f"{topic}/{queue_id}",
                        f"the queue goes from {found[0]} to {found[1]}, but it went from "
                        f"{bounds.begin} to {bounds.end} when the store was closed", derived=True,
                    )  # fmt: skip

    def _report_refused(self, table: ConsumeQueueTable) -> None:
        """Report the queues that a broker would refuse at their first use."""
        reported = {problem.where for problem in self._problems}
        for topic, queue_id in table.unopened():
            where = f"{topic}/{queue_id}"
            try:
                queue = table.find(topic, queue_id)
                if queue is not None:
                    queue.files.close()  # there may be more queues than descriptors
            except StoreError as error:
                if where not in reported:
                    text = error.reason if isinstance(error, StoreCorrupt) else str(error)
                    self._add("consumequeue", where, text.partition("; ")[0], derived=True)

    def _report_index(self, log: LogCheck) -> None:
        config = self._config
        directory = config.index_directory
        paths = list(directory.iterdir()) if directory.is_dir() else []
        entries, problems = check_index(
            directory, config.max_hash_slot_num, config.max_index_num, log.files
        )
        for each in problems:
            self._add("index", each.path, each.reason, derived=each.derived)
        self._part("index", len(paths), sum(path.stat().st_size for path in paths), entries)

    def _report_timers(self, log: LogCheck, queues: QueueCheck, state: State) -> None:
        timer_queue = TIMER_TOPIC, 0
        queue = queues.queues.get(timer_queue)
        # A start enters what the queue lacks: in a snapshot, all after the checkpoint.
        end = queues.unknown.get(timer_queue, 0)
        if queue is not None:
            end = queue.end + queue.not_entered
        timers = TimerCheck(
            self._config, log.files, end, self._clock(), crashed=state is State.CRASHED
        )
        for each in timers.problems:
            self._add("timers", each.path, each.reason, derived=True)
        size = sum(path.stat().st_size for path in timers.files)
        self._part("timers", len(timers.files), size, timers.waiting)

    def _report_tables(self, queues: QueueCheck) -> None:
        directory = self._config.root / "config"
        count = size = 0
        for name in TABLES:
            path = directory / name
            if path.exists():
                count, size = count + 1, size + path.stat().st_size
            problem = table_problem(path)
            if problem:
                self._add("config", path, problem)
        if queues.entries and not has_topics(self._config.root):
            self._remarks.append(
                f"{directory / 'topics.json'} is not there, nor its .bak: a start makes topics of "
                "the queues, but their settings are lost"
            )
        for topic in lost_topics(self._config.root, queues.queues):
            self._add("config", directory / "topics.json", f"topic {topic} has queues only")
        self._part("config", count, size, 0)

    def _part(
        self,
        part: str,
        files: int,
        size: int,
        items: int,
        begin: int | None = None,
        end: int | None = None,
    ) -> None:
        problems = sum(problem.part == part for problem in self._problems)
        self._parts.append(
            Part(
                part=part, files=files, bytes=size, begin=begin, end=end, items=items,
                problems=problems,
            )
        )  # fmt: skip

    def _refusal(self, state: State, *, ours: bool) -> str:
        """Return why a broker would not start; nothing if it would. `ours`: no broker of another
        kind has used the store since a pocketmq broker last did."""
        try:
            for name in TABLES:
                path = self._config.root / "config" / name
                problem = _misshapen(name, ConfigFile(path, "entries", DryFiles()).load())
                if problem:
                    return str(ConfigFileError(path, problem))
            with _heard(self._remarks), recovered_dry(self._config) as (log, table):
                self._report_refused(table)
                index = TimerIndex(self._config, DryFiles())
                if index.exists:
                    closed = state is State.CLEAN
                    index.open(self._clock(), log, ours=ours, closed=closed)
                    index.close()
        except StoreError as error:
            return str(error)
        return ""


@contextmanager
def recovered_dry(config: StoreConfig) -> Iterator[tuple[CommitLog, ConsumeQueueTable]]:
    """Do what a start does, without changing the disk, and return log and queues as they are then.
    Raises StoreError."""
    files, retired = DryFiles(), Retirement()
    checkpoint = Checkpoint(
        files, config.root / "checkpoint",
        (config.commit_log_directory, config.consume_queue_directory),
    )  # fmt: skip
    table = ConsumeQueueTable(
        files, config.consume_queue_directory, config.consume_queue_file_size, retired
    )
    setting = "mappedFileSizeCommitLog"
    run = MappedFileQueue(
        files, config.commit_log_directory, config.mapped_file_size_commit_log, setting, retired
    )
    clean = not (config.root / ABORT_FILE).exists()
    try:
        run.load()
        checkpoint.open()
        bounds = BoundsFile(files, config.root).load(checkpoint.queue_bounds, clean=clean)
        table.load(clean=clean, bounds=bounds)
        log = CommitLog(run, FileAllocator(files))
        levels = DelayLevels(config.message_delay_level)
        copied = config.copied_file.exists()
        try:
            Recovery(
                log, table, checkpoint, levels, clean=clean, copied=copied,
                deleted=read_deleted_topics(config.root),
                whole_crc=config.force_verify_prop_crc,
            ).run()  # fmt: skip
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            queues = sum(1 for _ in table.unopened()) + len(table.all)
            raise OSError(
                error.errno,
                f"this store needs its {queues} queues open at the same time: raise the limit of "
                "open files (ulimit -n)",
            ) from error
        yield log, table
    finally:
        table.close()
        run.close()
        checkpoint.close()
        retired.sweep()


def state_of(root: Path) -> State:
    """Return how the last process left the store."""
    if is_locked(root):
        return State.OPEN
    return State.CRASHED if (root / ABORT_FILE).exists() else State.CLEAN


def table_problem(path: Path) -> str:
    """Return what is wrong with a table of the broker; nothing if it can be read."""
    backup = path.with_name(path.name + ".bak")
    try:
        content = read_small(path) if path.exists() else b""
    except (NotAFile, FileTooLarge) as error:
        return str(error)
    if not content.strip():
        usable = backup.exists() and backup.stat().st_size
        return f"missing or empty, but there is {backup.name}" if usable else ""
    try:
        document = fastjson.decode(content)
    except FastjsonError as error:
        return str(error)
    if not isinstance(document, dict):
        return "it holds no JSON object"
    return _misshapen(path.name.removesuffix(".bak"), document)


def _misshapen(name: str, document: Mapping[str, Any]) -> str:
    """Return why a document is not the one that the file of that name holds; nothing if it is."""
    shapes = [_SHAPES[name], ("dataVersion", dict[str, int])]
    for key, kind in shapes if name in _WITH_VERSION else shapes[:1]:
        try:
            msgspec.convert(document.get(key, {}), kind, strict=False)
        except msgspec.ValidationError as error:
            return f"its {key} is not that of {name}: {error}"
    return ""


def has_topics(root: Path) -> bool:
    """Return whether there is a topics.json, or its backup."""
    path = root / "config" / "topics.json"
    return path.exists() or path.with_name(path.name + ".bak").exists()


def lost_topics(root: Path, queues: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the topics of `queues`, which are given as topic and queue id, that topics.json lacks,
    though nobody deleted them, and how many queues they have at least."""
    lost: dict[str, int] = {}
    if not has_topics(root):
        return lost  # a store without a broker's tables
    document = _topics(root)
    if document is None:
        return lost
    known = {*document.get("topicConfigTable", ()), *document.get(DELETED_TOPICS, ())}
    for topic, queue_id in queues:
        if topic not in known and not (is_system_topic(topic) or is_light_queue(topic)):
            lost[topic] = max(lost.get(topic, 0), queue_id + 1)
    return lost


def known_topics(root: Path) -> set[str]:
    """Return the topics of topics.json."""
    return {*(_topics(root) or {}).get("topicConfigTable", ())}


def _topics(root: Path) -> dict[str, Any] | None:
    """Return what topics.json, or its backup, holds; None when it cannot be read."""
    try:
        return ConfigFile(root / "config" / "topics.json", "topics", DryFiles()).load()
    except StoreError:
        return None


@contextmanager
def _heard(said: list[str]) -> Iterator[None]:
    """Collect what the store logs as warnings and errors, instead of logging it."""
    logger = logging.getLogger("pocketmq.store")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
