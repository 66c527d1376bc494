"""`repair_store`: replaces damaged ranges of the log, and rebuilds what is derived from it.

Nothing is deleted: damaged parts are kept in STORE/damaged/NUMBER. They are on the disk there
before the original changes, and the store counts as crashed until all is done. So a repair that is
interrupted can be started again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import MIN_RECORD, RecordError, encode_into
from pocketmq.store.check.queue_check import QueueFiles, queue_directories
from pocketmq.store.check.report import Report, State
from pocketmq.store.check.store_check import StoreCheck, lost_topics, sized
from pocketmq.store.config import StoreConfig
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.deletions import read_deleted_topics
from pocketmq.store.dispatch import has_queue_entry
from pocketmq.store.errors import StoreCorrupt, StoreLocked
from pocketmq.store.files import Files, MappedFile, Retirement, raise_descriptor_limit
from pocketmq.store.log.allocation import FileAllocator
from pocketmq.store.log.checkpoint import SIZE as CHECKPOINT_SIZE
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.log.padding import MIN_PADDING
from pocketmq.store.message_store import now_ms
from pocketmq.store.queue.consume_queue import FILLER_SIZE
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.queue_bounds import BoundsFile
from pocketmq.store.recovery.recovery import Recovery
from pocketmq.store.repair.patches import LostMessage, by_file, patches
from pocketmq.store.repair.tables import add_topics, mend_tables
from pocketmq.store.repair.timers import rebuild_timers
from pocketmq.store.store_lock import ABORT_FILE, StoreLock, is_locked

DAMAGED_DIRECTORY: Final = "damaged"


class LostOffsets(Struct, kw_only=True):
    """Queue offsets [begin, end) of messages that are gone for good."""

    topic: str
    queue_id: int
    begin: int
    end: int


class Repair(Struct, kw_only=True):
    """What a repair did, or would do.

    Attributes:
        kept: the directory with the damaged parts; empty without damage.
        lost: the known messages that are gone.
        unknown: physical offsets [begin, end) of damage in which no message is known, though there
            is room for one.
    """

    store: str
    dry_run: bool
    kept: str = ""
    actions: list[str]
    lost: list[LostOffsets]
    unknown: list[tuple[int, int]]

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        return [
            *self.actions,
            *(
                f"{each.topic}/{each.queue_id}: messages {each.begin} to {each.end - 1} are gone"
                for each in self.lost
            ),
            *(
                f"physical offsets {begin} to {end}: which messages were there is not known"
                for begin, end in self.unknown
            ),
            *([f"what was damaged is kept in {self.kept}"] if self.kept else []),
        ]


def repair_store(
    config: StoreConfig,
    *,
    dry_run: bool = False,
    advanced: Callable[[int], None] = lambda _: None,
    clock: Callable[[], int] = now_ms,
) -> Repair:
    """Check the store at `config.root` and mend what is wrong with it; with `dry_run` only say
    what that would be. File sizes are taken from the files.

    Raises:
        StoreLocked: a broker has the store open.
        StoreCorrupt: it cannot be mended.
        OSError: it cannot be read or written.
    """
    raise_descriptor_limit()
    config = sized(config)
    if dry_run:
        if is_locked(config.root):
            raise StoreLocked(config.root)
        return _Repairing(config, clock, dry_run=True).run(advanced)
    lock = StoreLock(Files(), config.root, config.commit_log_directory)
    lock.acquire()
    try:
        return _Repairing(config, clock, dry_run=False, lock=lock).run(advanced)
    finally:
        lock.release()


class _Misnamed(NamedTuple):
    """A record that names another topic, queue or queue offset than the entry that leads to it."""

    entry: LostMessage
    topic: str
    queue_id: int
    queue_offset: int

    def is_in_own_file(self, check: StoreCheck) -> bool:
        """Return whether the file that the entry is in is that of its queue."""
        queue = check.queues.queues[self.entry.topic, self.entry.queue_id]
        return queue.is_own(queue.file_of(self.entry.queue_offset), check.log.begin)

    @property
    def can_be(self) -> bool:
        """Return whether the log has room for the messages that the queue has before the one that
        the record names."""
        return 0 <= self.queue_offset * MIN_RECORD <= self.entry.physical_offset


class _Repairing:
    def __init__(
        self,
        config: StoreConfig,
        clock: Callable[[], int],
        *,
        dry_run: bool,
        lock: StoreLock | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._files = Files()
        self._dry_run = dry_run
        self._lock = lock
        self._aside = _free_name(config.root / DAMAGED_DIRECTORY)
        self._actions: list[str] = []
        self._lost: list[LostMessage] = []
        self._unknown: list[tuple[int, int]] = []

    def run(self, advanced: Callable[[int], None]) -> Repair:
        check = StoreCheck(self._config, advanced, self._clock)
        crashed = (self._config.root / ABORT_FILE).exists()
        state = State.CRASHED if crashed else State.CLEAN
        report = check.run(state)
        if self._mend_names(check):
            if self._dry_run:
                self._actions.append("what else there is to do can only be said after that")
                return self._repair()
            check = StoreCheck(self._config, advanced, self._clock)
            report = check.run(state)
        if report.problems or not report.starts or check.queues.not_entered:
            self._mend(check, report)
        return self._repair()

    def _repair(self) -> Repair:
        return Repair(
            store=str(self._config.root), dry_run=self._dry_run,
            kept=str(self._aside) if self._aside.exists() else "", actions=self._actions,
            lost=list(_as_ranges(self._lost)), unknown=self._unknown,
        )  # fmt: skip

    def _mend(self, check: StoreCheck, report: Report) -> None:
        config = self._config
        crashed = self._lock is not None and self._lock.aborted
        if self._lock is not None:
            self._lock.mark_open()
        directory = config.root / "config"
        self._actions += mend_tables(directory, self._aside, self._files, dry_run=self._dry_run)
        self._mend_checkpoint()
        self._mend_log(check)
        self._mend_heads(check)
        for queue in check.queues.queues.values():
            if queue.bad:
                self._put_aside(queue.directory, "its files have gaps or wrong sizes")
        parts = {problem.part for problem in report.problems}
        if parts & {"commitlog", "index"} or check.log.torn is not None:
            for path in sorted(_listed(config.index_directory)):
                self._put_aside(path, "a broker builds the index again")
        rebuilt = parts & {"commitlog", "consumequeue", "checkpoint"} or not report.starts
        if rebuilt or check.queues.not_entered:
            self._rebuild(crashed=crashed)
        # Messages that wait may be among those that are lost.
        if (
            "timers" in parts
            or _is_about_timers(report.refusal, config.root)
            or self._has_lost_timed()
            or (rebuilt and self._timers_are_refused(crashed=crashed))
        ):
            self._rebuild_timers()
        # A rebuild makes queues of all topics in the log: what nobody knows to be deleted is back.
        if rebuilt and self._dry_run:
            queues = {*check.queues.queues, *check.queues.unknown}
        else:
            paths = queue_directories(config.consume_queue_directory)
            queues = {(path.parent.name, int(path.name)) for path in paths}
        topics = lost_topics(config.root, sorted(queues))
        self._actions += add_topics(directory, topics, self._files, dry_run=self._dry_run)
        if self._lock is not None and not crashed:
            self._lock.mark_closed()

    def _mend_names(self, check: StoreCheck) -> bool:
        """Give files of the log that have lost their names these names again; return whether there
        were any. Files that do not belong to the log go aside."""
        moves = self._misplaced(check)
        for path in check.log.strange:
            if path not in moves:
                self._put_aside(path, "the log has no file of that name")
        for path, target in moves.items():
            self._actions.append(f"{path}: renamed to {target.name}, where its messages belong")
        if not self._dry_run:
            # First to names that the log does not use, by which another repair finds them, too.
            drafts = []
            for path, target in moves.items():
                draft = _draft(path)
                self._files.move(path, draft)
                drafts.append((draft, target))
            for draft, target in drafts:
                self._files.move(draft, target)
        return bool(moves)

    def _misplaced(self, check: StoreCheck) -> dict[Path, Path]:
        """Return the files of the log with the name of another one, and the right names, by their
        first records. The right name is free, or becomes free by this."""
        log = check.log
        damaged = {place.begin for place in log.damage}
        moves: dict[Path, Path] = {}
        fit: set[Path] = set()
        for path in [*(file.path for file in log.files if file.base in damaged), *log.strange]:
            if not path.exists() or path.stat().st_size != log.file_size:
                continue
            with self._mapped(path, 0) as file:
                record = _record_at(file, 0)
                if record is None or record.physical_offset % log.file_size:
                    continue
                target = path.with_name(f"{record.physical_offset:020d}")
                if target == path or target in moves.values():
                    continue
                moves[path] = target
                if _is_expected(check, record):
                    fit.add(path)
        while True:
            blocked = [
                path
                for path, target in moves.items()
                if target not in moves and (_has_bytes(target) or path not in fit)
            ]
            if not blocked:
                return moves
            for path in blocked:
                del moves[path]

    # --- the log ------------------------------------------------------------------------------

    def _mend_log(self, check: StoreCheck) -> None:
        log = check.log
        for file in log.misfits:
            self._actions.append(f"{file.path}: has {log.file_size} bytes again, as the others")
            if not self._dry_run:
                self._make_whole(file.path, file.base, log.file_size)
        lost = list(_without_message(check))
        known = log.damage[-1].end if log.damage else 0
        for begin, end in by_file(log.damage, log.file_size):
            base = begin // log.file_size * log.file_size
            path = log.directory / f"{base:020d}"
            if end % log.file_size and end - begin < MIN_PADDING:
                if begin < log.end:
                    reason = f"{end - begin} bytes are no whole record"
                    raise StoreCorrupt(path, begin - base, reason)
                end = min(begin + MIN_PADDING, base + log.file_size)  # nothing follows
            if not self._dry_run:
                self._make_whole(path, base, log.file_size)
            here = [each for each in lost if begin <= each.physical_offset and each.end <= end]
            here += self._by_its_head(path, begin - base, base, here)
            self._lost += here
            self._unknown += _gaps(begin, end, here)
            self._actions.append(
                f"{path}: bytes {begin - base} to {end - base} (physical offsets {begin} to {end}) "
                "replaced by padding"
            )
            if not self._dry_run:
                self._patch(path, base, begin, end, here)

        # A checkpoint that was lost does not say that the log had gone on.
        self._lost += [
            each
            for each in lost
            if each.physical_offset >= max(log.end, known)
            and not check.queues.queues[each.topic, each.queue_id].is_in_log(each.queue_offset)
        ]

    def _mend_heads(self, check: StoreCheck) -> None:
        """Correct records whose topic, queue or queue offset, which no checksum covers, are not
        those of the queue that leads to them. If most of the queue's file leads elsewhere, the file
        is another queue's, and the records are right, unless they name a queue or an offset that
        never was."""
        known = {topic for topic, _ in check.queues.queues} | {
            *read_deleted_topics(self._config.root)
        }
        for each in list(self._misnamed(check)):
            if each.is_in_own_file(check) or each.topic not in known or not each.can_be:
                self._mend_head(check, each)

    def _misnamed(self, check: StoreCheck) -> Iterator[_Misnamed]:
        """Return good records that name another place than the queue that leads to them."""
        log, queues = check.log, check.queues.queues
        for entry in _without_message(check):
            damaged = any(
                place.begin < entry.end and entry.physical_offset < place.end
                for place in log.damage
            )
            path, at = _place_in(check, entry)
            if damaged or entry.is_light or not _has_bytes(path):
                continue
            with self._mapped(path, entry.physical_offset - at) as file:
                record = _record_at(file, at)
                if (
                    record is None
                    or (record.physical_offset, record.size) != entry[:2]
                    or len(record.topic.encode()) != len(entry.topic.encode())
                ):
                    continue
                own = queues.get((record.topic, record.queue_id))
                if own is not None and own.leads_to(record.queue_offset, record.physical_offset):
                    continue
                yield _Misnamed(entry, record.topic, record.queue_id, record.queue_offset)

    def _mend_head(self, check: StoreCheck, misnamed: _Misnamed) -> None:
        entry = misnamed.entry
        path, at = _place_in(check, entry)
        self._actions.append(
            f"{path}: the record at byte {at} said that it is message {misnamed.queue_offset} "
            f"of {misnamed.topic}/{misnamed.queue_id}; corrected to message {entry.queue_offset} "
            f"of {entry.topic}/{entry.queue_id}, whose entry leads there"
        )
        if self._dry_run:
            return
        self._files.unshare(path)
        with self._mapped(path, entry.physical_offset - at) as file:
            mended = _with_place(decode(file.view, at), entry)
            self._keep(file, at, at + len(mended))
            file.map[at : at + len(mended)] = mended
            file.sync()

    def _make_whole(self, path: Path, base: int, size: int) -> None:
        """Give a file that is missing, empty, cut short, or too long its size."""
        if not path.exists():
            created = self._files.create(path, base, size)
            created.sync()
            created.close()
        elif path.stat().st_size > size:
            self._files.unshare(path)
            with self._mapped(path, base) as file:
                self._keep(file, size, file.size)
            self._files.resize(path, size)
        elif path.stat().st_size < size:
            self._files.unshare(path)
            self._files.resize(path, size)

    def _by_its_head(
        self, path: Path, at: int, base: int, known: Sequence[LostMessage]
    ) -> list[LostMessage]:
        """Return the message at a byte of a file if its head and its lengths are whole, so that
        only its body is damaged; not if it is `known`."""
        if not _has_bytes(path) or any(each.physical_offset == base + at for each in known):
            return []
        with self._mapped(path, base) as file, contextlib.suppress(RecordError):
            record = decode(file.view, at, check_crc=False)
            if record.physical_offset == base + at and has_queue_entry(record.sys_flag):
                return [
                    LostMessage(
                        base + at, record.size, record.topic, record.queue_id, record.queue_offset
                    )
                ]
        return []

    def _patch(
        self, path: Path, base: int, begin: int, end: int, lost: Sequence[LostMessage]
    ) -> None:
        size = self._config.mapped_file_size_commit_log
        self._files.unshare(path)
        with self._mapped(path, base) as file:
            file.allocate()
            self._keep(file, begin - base, end - base)
            timestamp = self._timestamp_near(file, end - base)
            for patch in patches(begin, end, size, lost, timestamp):
                at = patch.physical_offset - base
                file.map[at : at + len(patch.content)] = patch.content
            file.sync()

    def _keep(self, file: MappedFile, begin: int, end: int) -> None:
        """Copy bytes of a file, unless they are zeros, to where damage is kept."""
        with file.view[begin:end] as old:
            if not np.frombuffer(old, np.uint8).any():
                return
            first, behind = file.base_offset + begin, file.base_offset + end
            kept = self._aside / "commitlog" / f"{first:020d}-{behind:020d}"
            copy = self._files.create(kept, 0, end - begin)
            copy.map[:] = old
            copy.sync()
            copy.close()

    def _timestamp_near(self, file: MappedFile, at: int) -> int:
        """Return the store timestamp of the record after the damage, or of the last one known to
        the checkpoint."""
        with contextlib.suppress(RecordError):
            if at < file.size:
                return decode(file.view, at).store_timestamp
        checkpoint = Checkpoint(self._files, self._config.root / "checkpoint")
        checkpoint.open()
        timestamp = checkpoint.physic_timestamp
        checkpoint.close()
        return timestamp

    @contextlib.contextmanager
    def _mapped(self, path: Path, base: int) -> Iterator[MappedFile]:
        file = self._files.open(path, base, path.stat().st_size)
        try:
            yield file
        finally:
            file.close()

    # --- what is derived from it --------------------------------------------------------------

    def _rebuild(self, *, crashed: bool) -> None:
        """Build the queues from the whole log, and tell the checkpoint where it ends."""
        config, files, retired = self._config, self._files, Retirement()
        self._actions.append(f"{config.consume_queue_directory}: built from the commit log")
        if self._dry_run:
            return
        checkpoint = Checkpoint(files, config.root / "checkpoint")
        run = MappedFileQueue(
            files, config.commit_log_directory, config.mapped_file_size_commit_log,
            "mappedFileSizeCommitLog", retired,
        )  # fmt: skip
        table = ConsumeQueueTable(
            files, config.consume_queue_directory, config.consume_queue_file_size, retired
        )
        try:
            run.load()
            checkpoint.open()
            checkpoint.exact = False  # it describes the state before the repair
            bounds = BoundsFile(files, config.root)
            known = bounds.load(checkpoint.queue_bounds, clean=not crashed)
            table.load(clean=False, bounds=known)
            table.distrust_bounds()
            log = CommitLog(run, FileAllocator(files))
            levels = DelayLevels(config.message_delay_level)
            deleted = read_deleted_topics(config.root)
            Recovery(
                log, table, checkpoint, levels, clean=False, rebuild=True, deleted=deleted
            ).run()
            for file in run.mapped:
                file.sync()
            for queue in table.all:
                queue.flush()
            checkpoint.confirm_physical_offset = checkpoint.entered_offset = log.end
            checkpoint.last_write = log.last_write
            # Also for the offsets of lost messages at the ends of queues: the next start does not
            # see the padding that replaces them.
            checkpoint.queue_bounds = bounds.save(table.bounds())
            checkpoint.physic_timestamp = log.store_timestamp
            if not table.has_foreign:  # whose entries only the official broker can make
                checkpoint.logics_timestamp = log.store_timestamp
            checkpoint.sync()
        finally:
            table.close()
            run.close()
            checkpoint.close()
            retired.sweep()

    def _has_lost_timed(self) -> bool:
        """Return whether messages are lost of a store that has timers."""
        is_timed = (self._config.root / "config" / "timercheck").exists()
        return is_timed and bool(self._lost or self._unknown)

    def _timers_are_refused(self, *, crashed: bool) -> bool:
        """Return whether a start would refuse the timers, once it gets to them."""
        if self._dry_run:
            return False
        check = StoreCheck(self._config, clock=self._clock)
        refusal = check.refusal(State.CRASHED if crashed else State.CLEAN)
        return _is_about_timers(refusal, self._config.root)

    def _rebuild_timers(self) -> None:
        """Build the timers from the whole log."""
        config, retired = self._config, Retirement()
        for path in (
            config.root / "timerwheel", config.root / "timerlog",
            config.root / "config" / "timercheck",
        ):  # fmt: skip
            if path.exists():
                self._put_aside(path, "the timers are built from the commit log")
        if self._dry_run:
            return
        run = MappedFileQueue(
            self._files, config.commit_log_directory, config.mapped_file_size_commit_log,
            "mappedFileSizeCommitLog", retired,
        )  # fmt: skip
        try:
            run.load()
            rebuild_timers(config, self._files, run, self._clock())
        finally:
            run.close()
            retired.sweep()

    def _mend_checkpoint(self) -> None:
        path = self._config.root / "checkpoint"
        if path.exists() and path.stat().st_size not in (0, CHECKPOINT_SIZE):
            self._put_aside(path, "it has a wrong size")

    def _put_aside(self, path: Path, reason: str) -> None:
        self._actions.append(f"{path}: moved aside, {reason}")
        if not self._dry_run:
            self._files.move(path, self._aside / path.relative_to(self._config.root))


def _without_message(check: StoreCheck) -> Iterator[LostMessage]:
    """Return the messages that queues lead to, but that are not there."""
    for each in check.queues.disagreements(check.log.begin, check.log.end, open=False):
        queue: QueueFiles = check.queues.queues[each.topic, each.queue_id]
        offsets = np.arange(each.begin, each.end)
        entries = queue.at(offsets)
        size = entries["size"]
        for row in np.flatnonzero((size > 0) & (size < FILLER_SIZE)).tolist():
            yield LostMessage(
                int(entries["physical"][row]), int(size[row]), each.topic, each.queue_id,
                int(offsets[row]),
            )  # fmt: skip


def _is_about_timers(refusal: str, root: Path) -> bool:
    """Return whether the timers are why a broker would not start."""
    names = (root / "timerwheel", root / "timerlog", root / "config" / "timercheck")
    return refusal.startswith(tuple(map(str, names)))


def _with_place(record: Record, entry: LostMessage) -> bytes:
    """Return the bytes of a record with the topic, queue and queue offset of an entry."""
    mended = bytearray(record.size)
    encode_into(
        mended, 0, record.size, record.magic, record.body_crc, entry.queue_id, record.flag,
        entry.queue_offset, record.physical_offset, record.sys_flag, record.born_timestamp,
        record.born_host, record.store_timestamp, record.store_host, record.reconsume_times,
        record.prepared_transaction_offset, record.body, entry.topic.encode(),
        bytes(record.properties_bytes),
    )  # fmt: skip
    return bytes(mended)


def _place_in(check: StoreCheck, message: LostMessage) -> tuple[Path, int]:
    """Return the file of the log that a message begins in, and at which byte."""
    at = message.physical_offset % check.log.file_size
    return check.log.directory / f"{message.physical_offset - at:020d}", at


def _has_bytes(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _gaps(begin: int, end: int, known: Sequence[LostMessage]) -> Iterator[tuple[int, int]]:
    """Return the parts of a damaged range that have room for a message that is not `known`."""
    at = begin
    for each in [*sorted(known), LostMessage(end, 0, "", 0, 0)]:
        if each.physical_offset - at >= MIN_RECORD:
            yield at, each.physical_offset
        at = max(at, each.end)


def _draft(path: Path) -> Path:
    """Return a name beside `path` that no file of the log has."""
    drafts = (path.with_name(f"{int(path.name) + more:020d}") for more in itertools.count(1))
    return next(draft for draft in drafts if not draft.exists())


def _is_expected(check: StoreCheck, record: Record) -> bool:
    """Return whether the queue of a record leads to this place, or has room for it where the log
    lacks something: one of another store lies elsewhere."""
    queue = check.queues.queues.get((record.topic, record.queue_id))
    place = record.queue_offset, record.physical_offset
    if queue is not None and queue.leads_to(*place):
        return True
    is_lacking = any(each.begin <= record.physical_offset < each.end for each in check.log.damage)
    return is_lacking and (queue is None or queue.has_place_for(*place))


def _record_at(file: MappedFile, at: int) -> Record | None:
    with contextlib.suppress(RecordError):
        return decode(file.view, at) if 0 <= at < file.size else None
    return None


def _as_ranges(lost: Sequence[LostMessage]) -> Iterator[LostOffsets]:
    """Return the lost messages by queue."""
    found: LostOffsets | None = None
    for each in sorted(lost, key=lambda each: (each.topic, each.queue_id, each.queue_offset)):
        place = each.topic, each.queue_id, each.queue_offset
        if found is not None and (found.topic, found.queue_id, found.end) == place:
            found.end += 1
            continue
        if found is not None:
            yield found
        found = LostOffsets(
            topic=each.topic, queue_id=each.queue_id, begin=each.queue_offset,
            end=each.queue_offset + 1,
        )  # fmt: skip
    if found is not None:
        yield found


def _free_name(directory: Path) -> Path:
    """Return a directory that no repair has used."""
    number = 1
    while (directory / str(number)).exists():
        number += 1
    return directory / str(number)


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
