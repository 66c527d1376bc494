"""What may happen to a store, in any order, and readers that keep their places meanwhile.

    python -m tests.tables.reader_machine --runs 10000 --first 0
    python -m tests.tables.reader_machine --plant holes

Each run is a history of a store and its readers, chosen by its seed. Every message is read exactly
once by each reader, as it was sent, or the reader says that messages are missing. A run that fails
is printed without the steps that make no difference. `--plant` makes a mistake, and looks for the
first run that finds it. Each plant has such a seed, for the tests.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pocketmq.archive.archived_store import ArchivedStore
from pocketmq.archive.errors import OtherStore
from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.incarnation import CREATED_OFFSET
from pocketmq.message.limits import SYNC_BROKER_MEMBER_PREFIX
from pocketmq.message.properties import decode
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.streams.stream_brokers import StreamBrokers
from pocketmq.spark.streams.stream_reader import RocketMQStreamReader
from pocketmq.store.config import StoreConfig
from pocketmq.store.deletions import DELETED_TOPICS
from pocketmq.store.repair.store_repair import Repair, repair_store
from pocketmq.store.scan.planning import tail
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.stream_offsets import Mark, StreamQueue, offsets_of
from pocketmq.sync_client import LoopThread
from pocketmq.tables.commit import Commit
from pocketmq.tables.exports import export
from pocketmq.tables.parquet_table import ParquetTable
from pocketmq.tables.table import Table, open_table
from tests.spark.stream_store import GrowingStore
from tests.store.made_store import ENTRY, damage, write
from tests.tables.rows_in import rows_in

TOPICS = ("T", "U")
ENTRIES = 60
"""In a file of a queue."""
SEGMENT = 2048
"""Bytes of a file of the log."""
FILES = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": ENTRIES * ENTRY.size}
SAYS_SO = ("left out ", "others may be missing")
STEPS = 30
"""Of a run."""
Queue = tuple[str, int]

PROPERTIES = (
    b"",
    b"TAGS\1TagA\2KEYS\1k1 k2\2",
    b"TAGS\1\2empty\1\2other\1value\2",
    b"\1no name\2TAGS\1TagB\2\1\2",
)
"""As they are stored: some without a value, some without a name."""
COLUMNS = ("physicalOffset", "body", "tags", "properties")
SCHEMA = StructType(
    [
        StructField(name, kind)
        for name, kind in zip(
            COLUMNS,
            (LongType(), BinaryType(), StringType(), MapType(StringType(), StringType())),
            strict=True,
        )
    ]
)


class Sent(NamedTuple):
    """A message: which queue has it, since when its topic was created, and where it lies."""

    queue: Queue
    generation: int
    offset: int
    physical: int
    body: bytes
    properties: bytes

    @property
    def queue_read(self) -> tuple[Queue, int]:
        """Its queue; that of a topic which was made anew is another one."""
        return self.queue, self.generation

    @property
    def place(self) -> tuple[Queue, int, int]:
        """Where it is in its queue."""
        return (*self.queue_read, self.offset)

    @property
    def row(self) -> tuple[bytes, str | None, dict[str, str]]:
        """What a reader has to find."""
        properties = decode(self.properties)
        return self.body, properties.get("TAGS"), properties


class Warnings(logging.Handler):
    """Counts what readers say of messages that are missing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.said += any(text in record.getMessage() for text in SAYS_SO)


class Killed(Exception):
    """Ends a job in the middle, as a kill of its process does."""


class Reader:
    """What one reader has read, and how often it has said that messages are missing. Messages are
    named by their physical offsets."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.begun: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.before: set[int] = set()
        self.unread: set[int] = set()
        self.given_up: set[int] = set()
        self.said = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count what is said meanwhile."""
        handler = Warnings()
        log = logging.getLogger("pocketmq")
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)
            self.said += handler.said

    def give_up(self, messages: Set[int]) -> None:
        """Do without these for good, and say so: they were in the batch that is done again, but
        their queue was away, though it may come back. The end of such a batch is given."""
        assert self.said or not messages, f"nobody says so: {sorted(messages)}"
        self.given_up |= messages

    def check(
        self,
        sent: dict[int, Sent],
        present: set[int],
        begin: int,
        damaged: Set[int] = frozenset(),
        forgotten: Set[int] = frozenset(),
    ) -> None:
        """Check what was read, when all that is `present` has been."""
        read = set(self.read)
        assert len(read) == len(self.read), "a message was read twice"
        assert read <= sent.keys(), f"read from nowhere: {sorted(read - sent.keys())}"
        unsaid = present - read - self.given_up
        assert not unsaid, f"passed over in silence: {sorted(unsaid)}"
        # Of a queue that is gone it is not known that it had other messages if what was read of it
        # would have expired, or nothing was: all may have.
        kept = {sent[message].queue_read for message in present}
        begun = {
            sent[message].queue_read
            for message in self.before
            if sent[message].queue_read in kept or sent[message].physical >= begin
        }
        # A new queue may have begun before a reader that has read nothing. Only a repair can name
        # its first messages if they are lost.
        grown = kept if self.before else set()
        # The offset of a message that a repair cut off is given to the next one. If a repair
        # finds that lost, too, only the repair can name it to one who had read the first.
        twice = {sent[message].place for message in self.before & forgotten}
        # A reader that has said that a queue is empty again knows no more of it than before.
        self.before = read - forgotten
        missing = sent.keys() - read
        new = {
            message
            for message in missing - self.unread
            if sent[message].queue_read in (begun if message in damaged else begun | grown)
            and not (message in damaged and sent[message].place in twice)
        }
        assert self.said or not new, f"nobody says so: {sorted(new)}"
        self.unread |= missing
        self.said = 0


class KeptFiles(GrowingStore):
    """Writes only the files that have changed, which are few."""

    def __init__(self, root: Path) -> None:
        self.kept: dict[Path, bytes] = {}
        super().__init__(root, segment_size=SEGMENT)

    def write_file(self, path: Path, content: bytes) -> None:
        if self.kept.get(path) != content:
            write(path, content)
            self.kept[path] = content


@cache
def servers_loop() -> LoopThread:
    """The event loop of the brokers."""
    return LoopThread("reader machine")


class Readers:
    """A stream over files, one over an archive, an export into a table, and perhaps a stream from a
    broker, which takes as long as all the others."""

    def __init__(self, *, has_broker: bool) -> None:
        self.has_broker = has_broker
        self.directory = tempfile.TemporaryDirectory(prefix="readers-")
        root = Path(self.directory.name)
        self.store = KeptFiles(root / "store")
        self.archives = root / "archives"
        self.archives.mkdir()
        self.table = root / "table"
        self.sent: dict[int, Sent] = {}
        self.generations = dict.fromkeys(TOPICS, 0)
        self.archived: set[int] = set()
        self.queues = dict.fromkeys(TOPICS, 2)
        self.deleted: dict[str, int] = {}
        self.empty: set[str] = set()
        self.damaged: set[int] = set()
        self.forgotten: set[int] = set()
        self.expired = self.flushed = 0
        self.crashed = False
        self.files, self.archive, self.exported, self.live = (Reader() for _ in range(4))
        self.positions: dict[str, dict[str, Any]] = {}
        # Where no queue at all is left, readers look for messages in the log.
        self.store.put("rmq_sys_kept")
        self.recover()

    def close(self) -> None:
        """Remove all files."""
        self.directory.cleanup()

    # --- what happens to the store ------------------------------------------------------------

    def send(self, topic: str, queue_id: int, count: int, size: int, kind: int) -> None:
        """Send messages; their bodies have `size` bytes, and `kind` says which properties."""
        self.recover()
        queue_id = min(queue_id, self.queues[topic] - 1)
        for _ in range(count):
            body = (b"%d" % len(self.sent)).ljust(size, b".") if size else b""
            raw = PROPERTIES[kind]
            offset = self.store.next_offsets[topic, queue_id]
            physical = self.store.put(topic, queue_id, body, raw)
            generation = self.generations[topic]
            self.sent[physical] = Sent((topic, queue_id), generation, offset, physical, body, raw)
        self._write()

    def delete(self, topic: str, again: bool = False) -> None:
        """Delete a topic, and perhaps create it `again`: then it has queues, but no message."""
        self.recover()
        self.store.delete(topic)
        self.store.kept.clear()
        self.generations[topic] += 1
        self.deleted[topic] = len(self.store.log)
        # It was written before the topic was deleted, when the store was repaired.
        (self.store.root / "queuebounds").unlink(missing_ok=True)
        (self.empty.add if again else self.empty.discard)(topic)
        self.recover()

    def _newest_of(self, topic: str, queue_id: int) -> int:
        """Return the newest message of a queue that is not forgotten."""
        generation = self.generations[topic]
        return max(
            physical
            for physical, message in self.sent.items()
            if message.queue_read == ((topic, queue_id), generation)
            and physical not in self.forgotten
        )

    def resize(self, topic: str, queues: int) -> None:
        """Take a queue from a topic, or give it back, with its messages."""
        self.queues[topic] = queues
        self.recover()

    def lose(self, number: int, head: bool = False) -> None:
        """Lose one of the messages that are there to the disk, counted from the newest, and repair
        the store. Its `head` is lost, or only its body, if it has one."""
        present = sorted(self.present())
        if not present:
            return
        message = present[-1 - number % len(present)]
        self.recover()
        root, file = self.store.root, message // SEGMENT * SEGMENT
        at = message + 4  # the magic number
        if (body := self.sent[message].body) and not head:
            at = bytes(self.store.log).index(body, message)
        damage(root / "commitlog" / f"{file:020d}", at - file)
        repair = repair_store(self._config())
        assert self._names(repair, self.sent[message]), f"the repair does not name {message}"
        self.store.kept.clear()
        self.damaged.add(message)
        for base in range(self.expired, len(self.store.log), SEGMENT):
            part = slice(base, min(base + SEGMENT, len(self.store.log)))
            content = (root / "commitlog" / f"{base:020d}").read_bytes()
            self.store.log[part] = content[: part.stop - base]
        for (topic, queue_id), entries in self.store.entries.items():
            files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
            entries[:] = b"".join(map(Path.read_bytes, files))[: len(entries)]
            while entries.endswith(bytes(ENTRY.size)):  # only the repair says that there was more
                del entries[-ENTRY.size :]
                self.store.next_offsets[topic, queue_id] -= 1
                self.forgotten.add(self._newest_of(topic, queue_id))
        self._clean()

    @staticmethod
    def _names(repair: Repair, lost: Sent) -> bool:
        return any(
            (each.topic, each.queue_id) == lost.queue and each.begin <= lost.offset < each.end
            for each in repair.lost
        )

    def _config(self) -> StoreConfig:
        return StoreConfig(
            store_path_root_dir=str(self.store.root),
            mapped_file_size_commit_log=FILES["mappedFileSizeCommitLog"],
            mapped_file_size_consume_queue=FILES["mappedFileSizeConsumeQueue"],
        )

    def expire(self, files: int) -> None:
        """Remove files of the log, but not the last two."""
        self.recover()
        most = max(len(self.store.log) - 1, 0) // SEGMENT * SEGMENT - SEGMENT
        self.expired = max(self.expired, min(self.expired + files * SEGMENT, most))
        self._remove_expired()

    def kill(self, lost: int) -> None:
        """The last entries of the queues are not on the disk; the log has their records. Entries
        that the checkpoint knows of are on the disk whatever happens."""
        whole = {key: bytes(entries) for key, entries in self.store.entries.items()}
        for entries in self.store.entries.values():
            kept = max(len(entries) - lost * ENTRY.size, 0)
            while kept < len(entries) and ENTRY.unpack_from(entries, kept)[0] < self.flushed:
                kept += ENTRY.size
            entries[kept:] = bytes(len(entries) - kept)
        self._write(crashed=True)
        for key, content in whole.items():
            self.store.entries[key][:] = content
        self.crashed = True

    def recover(self) -> None:
        if self.crashed:
            (self.store.root / "abort").unlink()
            self.crashed = False
        self._write()
        self._clean()

    def _write(self, *, crashed: bool = False) -> None:
        topics = {topic: queues for topic, queues in self.queues.items() if self._exists(topic)}
        topics[SYNC_BROKER_MEMBER_PREFIX + "broker-a"] = 1
        table: dict[str, dict[str, Any]] = {
            topic: {"topicName": topic, "readQueueNums": many, "writeQueueNums": many, "perm": 6}
            for topic, many in topics.items()
        }
        for topic in self.deleted.keys() & table.keys():
            table[topic]["attributes"] = {CREATED_OFFSET: str(self.deleted[topic])}
        document = {"topicConfigTable": table, DELETED_TOPICS: self.deleted}
        path = self.store.root / "config" / "topics.json"
        self.store.write_file(path, json.dumps(document).encode())
        self.store.write(crashed=crashed, entries_per_file=ENTRIES)
        self._remove_expired()

    def _exists(self, topic: str) -> bool:
        return topic in self.empty or any(key[0] == topic for key in self.store.entries)

    def _clean(self) -> None:
        self.store.write_checkpoint()  # as a broker that has closed the store
        self.flushed = len(self.store.log)
        self._remove_expired()

    def _remove_expired(self) -> None:
        for base in range(0, self.expired, SEGMENT):
            (self.store.root / "commitlog" / f"{base:020d}").unlink(missing_ok=True)

    def present(self) -> set[int]:
        """The messages that the store has."""
        return {
            physical
            for physical, message in self.sent.items()
            if physical >= self.expired
            and physical not in self.damaged
            and message.generation == self.generations[message.queue[0]]
        }

    # --- readers ------------------------------------------------------------------------------

    def read_files(self, killed: bool = False) -> None:
        if self._stream("files", self.files, {"path": str(self.store.root)}, killed):
            self._check(self.files)

    def read_broker(self, killed: bool = False) -> None:
        """Read a broker that has just begun with a copy of the files."""
        copy = Path(self.directory.name) / "copy"
        shutil.copytree(self.store.root, copy)
        server = EmbeddedServer(
            store=copy, properties={name: str(size) for name, size in FILES.items()}
        )
        servers_loop().run(server.start())
        away = {message for message in self._in_batch(self.live) if not self._is_readable(message)}
        try:
            options = {"namesrv": server.namesrv, "timeout": "20"}
            is_done = self._stream("live", self.live, options, killed)
        finally:
            servers_loop().run(server.stop())
            shutil.rmtree(copy)
        if is_done:
            self.live.give_up(away & self.present())
            self._check(self.live, {each for each in self.present() if self._is_readable(each)})

    def _in_batch(self, reader: Reader) -> set[int]:
        """The messages of the batch that a killed query leaves."""
        if reader.begun is None:
            return set()
        start, end = map(offsets_of, reader.begun)
        broker = "broker-a"
        return {
            physical
            for physical, message in self.sent.items()
            if (queue := StreamQueue(message.queue[0], broker, message.queue[1])) in start
            and start[queue] <= message.offset < end.get(queue, 0)
        }

    def _check(self, reader: Reader, present: set[int] | None = None) -> None:
        known = {
            physical: message
            for physical, message in self.sent.items()
            if physical not in self.forgotten or physical in reader.read
        }
        present = self.present() if present is None else present
        reader.check(known, present, self.expired, self.damaged, self.forgotten)

    def _is_readable(self, message: int) -> bool:
        topic, queue_id = self.sent[message].queue
        return queue_id < self.queues[topic]

    def _as_sent(self, row: dict[str, Any]) -> int:
        """Return the name of a message, which must be as it was sent."""
        physical = int(row["physicalOffset"])
        found = bytes(row["body"]), row["tags"], dict(row["properties"])
        assert found == self.sent[physical].row, f"not as it was sent: {found}"
        return physical

    def export(self, killed: str = "") -> None:
        with (
            suppress(Killed),
            self.exported.reading(),
            closing(open_table(self.table, "parquet")) as table,
        ):
            kill_at_commit(table, killed)
            columns = ("queueOffset", *COLUMNS)
            export(table, [self.store.root], columns=columns, skip_lost=True)
            killed = ""
        self.exported.read = [self._as_sent(row) for row in rows_in(self.table, "parquet")]
        if not killed:
            self._check(self.exported)

    def sync(self, prune: bool = False, killed: bool = False) -> None:
        def advanced(_: int) -> None:
            if killed:
                raise Killed

        objects = Location(str(self.archives)).open()
        try:
            sync(
                self.store.root,
                objects,
                everything=True,
                prune=prune,
                parallel=1,
                advanced=advanced,
                clock=lambda: 1,
            )
        except Killed:
            return
        except OtherStore:  # what was archived last has changed since; it says so
            assert self.damaged
            return
        self.archived |= self.present()

    def read_archive(self, killed: bool = False) -> None:
        if not self.archived:
            return
        if not self._stream("archive", self.archive, {"path": str(self.archives)}, killed):
            return
        # A message that was archived before a repair cut it off; another one has its offset now.
        places = Counter(self.sent[message].place for message in self.archived)
        retaken = {
            message
            for message in self.archived & self.damaged
            if places[self.sent[message].place] > 1
        }
        newest: dict[Queue, int] = {}
        for physical in self.archived:
            message = self.sent[physical]
            newest[message.queue] = max(newest.get(message.queue, 0), message.generation)
        self.archive.check(
            {physical: self.sent[physical] for physical in self.archived},
            {
                physical
                for physical in self.archived
                if physical >= self.expired  # others may be pruned
                and physical not in retaken
                and self.sent[physical].generation == newest[self.sent[physical].queue]
            },
            self.expired,
        )

    def _stream(self, name: str, reader: Reader, place: dict[str, str], killed: bool) -> bool:
        """Go on as a query that begins with its checkpoint, until there is nothing new. A query
        that is `killed` in a batch leaves this batch to the next one. Return whether it was not."""
        options = {"startingOffsets": "earliest", "failOnDataLoss": "false", **place}
        source = RocketMQDataSource(options)
        with reader.reading():
            stream = source.streamReader(SCHEMA)
            if name not in self.positions:
                self.positions[name] = stream.initialOffset()
            while True:
                start = self.positions[name]
                if reader.begun is None:
                    end = stream.latestOffset(start, stream.getDefaultReadLimit())
                    if end == start:
                        return True
                    reader.begun = start, end
                arrived: list[int] = []
                for part in stream.partitions(*reader.begun):
                    rows: Any  # Arrow batches; Spark allows tuples, too
                    for rows in stream.read(part):
                        arrived += map(self._as_sent, rows.to_pylist())
                if killed:
                    return False
                reader.read += arrived
                self.positions[name] = reader.begun[1]
                reader.begun = None


def kill_at_commit(table: Table, when: str) -> None:
    """Let the next commit be the end of the process, `before` or `after` it is made."""
    make = table.commit

    def killed(commit: Commit) -> None:
        if when == "after":
            make(commit)
        raise Killed

    if when:
        table.commit = killed  # type: ignore[method-assign]


# --- runs -------------------------------------------------------------------------------------


class Step(NamedTuple):
    """What is done next: a method of `Readers`, and its arguments."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({given})"


CHOICES: dict[str, tuple[int, Callable[[Random], dict[str, Any]]]] = {
    "send": (
        8,
        lambda chance: {
            "topic": chance.choice(TOPICS),
            "queue_id": chance.randrange(2),
            "count": chance.randrange(1, 13),
            "size": chance.choice((0, 5, 5, 200)),
            "kind": chance.randrange(len(PROPERTIES)),
        },
    ),
    "delete": (
        2,
        lambda chance: {"topic": chance.choice(TOPICS), "again": chance.random() < 0.3},
    ),
    "resize": (
        3,
        lambda chance: {"topic": chance.choice(TOPICS), "queues": chance.randrange(1, 3)},
    ),
    # Mostly one of the newest: the readers have not read it yet.
    "lose": (
        1,
        lambda chance: {
            "number": min(chance.randrange(60), chance.randrange(20)),
            "head": chance.random() < 0.5,
        },
    ),
    "expire": (2, lambda chance: {"files": chance.choice((1, 1, 9))}),
    "kill": (2, lambda chance: {"lost": chance.randrange(1, 6)}),
    "recover": (1, lambda _: {}),
    "read_files": (4, lambda chance: {"killed": chance.random() < 0.3}),
    "export": (3, lambda chance: {"killed": chance.choice(("", "", "", "before", "after"))}),
    "sync": (3, lambda chance: {"prune": chance.random() < 0.5, "killed": chance.random() < 0.3}),
    "read_archive": (2, lambda chance: {"killed": chance.random() < 0.3}),
    "read_broker": (3, lambda chance: {"killed": chance.random() < 0.3}),
}
"""How often each step is done, and what chooses its arguments."""


def steps_of(seed: int, count: int, *, has_broker: bool) -> list[Step]:
    """The steps of a run."""
    chance = Random(seed)
    names = [name for name in CHOICES if has_broker or name != "read_broker"]
    chosen = chance.choices(names, [CHOICES[name][0] for name in names], k=count)
    return [Step(name, CHOICES[name][1](chance)) for name in chosen]


def fault_of(steps: list[Step], *, has_broker: bool) -> Exception | None:
    """Take the steps; return what goes wrong."""
    readers = Readers(has_broker=has_broker)
    try:
        for name, arguments in steps:
            getattr(readers, name)(**arguments)
    except Exception as error:
        return error
    finally:
        readers.close()
    return None


class Fault(Exception):
    """A run that went wrong, with the steps that matter."""


def run(runs: int, first: int = 0, steps: int = STEPS, *, seconds: float | None = None) -> int:
    """Take the runs of so many seeds, but begin none after so many seconds; return how many were
    taken. One of eight has a broker.

    Raises Fault.
    """
    end = None if seconds is None else time.monotonic() + seconds
    for number, seed in enumerate(range(first, first + runs)):
        if end is not None and time.monotonic() > end:
            return number
        has_broker = seed % 8 == 0
        taken = steps_of(seed, steps, has_broker=has_broker)
        error = fault_of(taken, has_broker=has_broker)
        if error is not None:
            taken, error = shortest(taken, error, has_broker=has_broker)
            listed = "\n".join(f"    readers.{step}" for step in taken)
            raise Fault(f"seed {seed}: {error!r} after\n{listed}") from error
    return runs


def shortest(
    steps: list[Step], error: Exception, *, has_broker: bool
) -> tuple[list[Step], Exception]:
    """Leave out the steps without which the same kind of fault is there."""
    at = len(steps) - 1
    while at >= 0:
        fewer = steps[:at] + steps[at + 1 :]
        found = fault_of(fewer, has_broker=has_broker)
        if type(found) is type(error):
            steps, error = fewer, found
        at -= 1
    return steps, error


# --- planted mistakes -------------------------------------------------------------------------


@contextmanager
def unsaid(logger: str, text: str) -> Iterator[None]:
    """Nobody says what has `text` in it."""

    def says(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    log = logging.getLogger(logger)
    log.addFilter(says)
    try:
        yield
    finally:
        log.removeFilter(says)


@contextmanager
def replaced(owner: Any, name: str, by: Callable[..., Any]) -> Iterator[None]:
    """A function or method is another one, which gets the first one before its arguments."""
    with patch.object(owner, name, partialmethod_of(getattr(owner, name), by)):
        yield


def partialmethod_of(first: Callable[..., Any], by: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, which a class can have as a method, that calls `by` with `first`."""

    def called(*arguments: Any) -> Any:
        return by(first, *arguments)

    return called


def reads_on(
    partitions: Callable[..., Any], stream: RocketMQStreamReader, start: Any, end: Any
) -> Any:
    """Read what came after the end of a batch, too."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    return partitions(stream, start, end)


def stands_still(make: Callable[..., None], table: ParquetTable, commit: Commit) -> None:
    """Commit rows, and forget how far the queues were read for them."""
    make(table, msgspec.structs.replace(commit, offsets=table.last.offsets))


def forgets_queues(
    find: Callable[..., Any], brokers: StreamBrokers, marks: Mapping[StreamQueue, Mark]
) -> Any:
    """Take a queue that a topic has lost for one that never comes back."""
    found = find(brokers, marks)
    return {queue: other._replace(may_return=False) for queue, other in found.items()}


class Plant(NamedTuple):
    """A mistake, the seed of a short run that finds it, and whether it is one of the readers of a
    broker."""

    mistake: Callable[[], list[AbstractContextManager[None]]]
    seed: int
    needs_broker: bool = False


def nothing(*_: Any) -> None:
    """Do nothing."""


PLANTS = {
    # A topic that was deleted and created again is taken for the old one.
    "marks": Plant(
        lambda: [
            replaced(StoreSnapshot, "mark", nothing),
            replaced(ArchivedStore, "mark", nothing),
        ],
        22,
    ),
    # Nobody says that some offsets have no message.
    "holes": Plant(lambda: [unsaid("pocketmq.store.scan.reader", "have no message")], 37),
    # Nobody says that messages expired before they were read.
    "expired": Plant(
        lambda: [
            unsaid("pocketmq.spark.streams.stream_reader", "left out"),
            unsaid("pocketmq.tables.message_source", "left out"),
        ],
        46,
    ),
    # Nobody says that a topic began anew before all of it was read.
    "anew": Plant(
        lambda: [
            unsaid("pocketmq.spark.streams.stream_reader", "others may be missing"),
            unsaid("pocketmq.tables.message_source", "others may be missing"),
        ],
        72,
    ),
    "archive-anew": Plant(lambda: [replaced(ArchivedStore, "replaced", nothing)], 75),
    # A batch that is done again has what came since.
    "ends": Plant(lambda: [replaced(RocketMQStreamReader, "partitions", reads_on)], 9),
    # The rows of a commit are there, but not how far it has read.
    "place": Plant(lambda: [replaced(ParquetTable, "commit", stands_still)], 10),
    # What only the log has after a kill is not read, ...
    "tail": Plant(lambda: [replaced(tail.TailSearch, "run", nothing)], 88),
    # ... or is read although its topic was deleted.
    "deleted": Plant(lambda: [replaced(tail, "read_deleted_topics", lambda *_: {})], 47),
    "broker-marks": Plant(
        lambda: [replaced(StreamBrokers, "marks", lambda *_: {})], 14, needs_broker=True
    ),
    "broker-holes": Plant(
        lambda: [unsaid("pocketmq.spark.live.reading", "have no message")], 477, needs_broker=True
    ),
    "resized": Plant(
        lambda: [replaced(StreamBrokers, "replaced", forgets_queues)], 22, needs_broker=True
    ),
}


def seed_that_finds(plant: str, first: int, runs: int) -> int | None:
    """Make a mistake; return the first of so many seeds whose run finds it, or None."""
    mistake, _, needs_broker = PLANTS[plant]
    with ExitStack() as made:
        for each in mistake():
            made.enter_context(each)
        for seed in range(first, first + runs):
            steps = steps_of(seed, STEPS, has_broker=needs_broker)
            error = fault_of(steps, has_broker=needs_broker)
            if isinstance(error, AssertionError):
                return seed
            if error is not None:
                raise error
    return None


def main() -> int:
    """Take runs, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tables.reader_machine", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=2000, help="with how many seeds (2000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each run ({STEPS})")
    parser.add_argument("--seconds", type=float, help="begin no run after so many")
    parser.add_argument("--plant", choices=[*PLANTS, "all"], help="look for a planted mistake")
    chosen = parser.parse_args()
    logging.getLogger("pocketmq").addHandler(logging.NullHandler())
    if chosen.plant is None:
        done = run(chosen.runs, chosen.first, chosen.steps, seconds=chosen.seconds)
        print(f"{done} runs, seeds {chosen.first} to {chosen.first + done - 1}: no fault")
        return 0
    is_missed = False
    for plant in PLANTS if chosen.plant == "all" else [chosen.plant]:
        found = seed_that_finds(plant, chosen.first, chosen.runs)
        is_missed |= found is None
        print(f"{plant}: {'not found' if found is None else f'seed {found}'}", flush=True)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
