"""What may happen to a store, in any order, and readers that keep their places meanwhile.

Every message is read exactly once by each reader, or the reader says that messages are missing. Run
many examples with `python -m tests.tables.reader_machine [EXAMPLES]`.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pocketmq.archive.errors import OtherStore
from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.limits import SYNC_BROKER_MEMBER_PREFIX
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.store.config import StoreConfig
from pocketmq.store.deletions import DELETED_TOPICS
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.sync_client import LoopThread
from pocketmq.tables.commit import Commit
from pocketmq.tables.exports import export
from pocketmq.tables.table import Table, open_table
from tests.spark.stream_store import GrowingStore
from tests.store.made_store import ENTRY, damage, write
from tests.tables.rows_in import rows_in

TOPICS = st.sampled_from(["T", "U"])
ENTRIES = 60
"""In a file of a queue."""
FILES = {"mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": ENTRIES * ENTRY.size}
SAYS_SO = ("left out ", "others may be missing")
Queue = tuple[str, int]


class Sent(NamedTuple):
    """A message: which of its topic, since when that was created, and where it lies."""

    body: bytes
    queue: Queue
    generation: int
    physical: int


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
    """What one reader has read, and how often it has said that messages are missing."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.begun: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.before: set[bytes] = set()
        self.unread: set[bytes] = set()
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

    def check(self, sent: dict[bytes, Sent], present: set[bytes], begin: int) -> None:
        """Check what was read, when all that is `present` has been."""
        read = set(self.read)
        assert len(read) == len(self.read), "a message was read twice"
        assert present <= read, f"passed over in silence: {sorted(present - read)}"
        # Of a queue that was never read before it is not known that it had other messages.
        # Nor of one that is gone, if what was read of it would have expired: all may have.
        begun = {
            (sent[body].queue, sent[body].generation)
            for body in self.before
            if sent[body].physical >= begin
        }
        self.before = read
        missing = sent.keys() - read
        new = {
            body
            for body in missing - self.unread
            if (sent[body].queue, sent[body].generation) in begun
        }
        assert self.said or not new, f"nobody says so: {sorted(new)}"
        self.unread |= missing
        self.said = 0


@cache
def servers_loop() -> LoopThread:
    """The event loop of the brokers."""
    return LoopThread("reader machine")


class Readers(RuleBasedStateMachine):
    """A stream over files, one over an archive, an export into a table, and in one of eight runs a
    stream from a broker, which takes as long as all the others."""

    @initialize(live=st.integers(0, 7))
    def begin(self, live: int) -> None:
        self.has_broker = live == 0
        self.directory = tempfile.TemporaryDirectory(prefix="readers-")
        root = Path(self.directory.name)
        self.store = GrowingStore(root / "store", segment_size=2048)
        self.archives = root / "archives"
        self.archives.mkdir()
        self.table = root / "table"
        self.sent: dict[bytes, Sent] = {}
        self.generations: dict[str, int] = {"T": 0, "U": 0}
        self.archived: set[bytes] = set()
        self.queues = {"T": 2, "U": 2}
        self.deleted: dict[str, int] = {}
        self.damaged: set[bytes] = set()
        self.forgotten: set[bytes] = set()
        self.expired = 0
        self.crashed = False
        self.files, self.archive, self.exported, self.live = (Reader() for _ in range(4))
        self.positions: dict[str, dict[str, Any]] = {}
        # Where no queue at all is left, readers look for messages in the log.
        self.store.put("rmq_sys_kept")
        self._recover()

    def teardown(self) -> None:
        self.directory.cleanup()

    # --- what happens to the store ------------------------------------------------------------

    @rule(topic=TOPICS, queue_id=st.integers(0, 1), count=st.integers(1, 12), far=st.booleans())
    def send(self, topic: str, queue_id: int, count: int, far: bool) -> None:
        self._recover()
        queue_id = min(queue_id, self.queues[topic] - 1)
        for _ in range(count):
            body = b"%d" % len(self.sent) + b"." * (200 if far else 0)
            physical = self.store.put(topic, queue_id, body)
            generation = self.generations[topic]
            self.sent[body] = Sent(body, (topic, queue_id), generation, physical)
        self._write()

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self._recover()
        self.store.delete(topic)
        self.generations[topic] += 1
        self.deleted[topic] = len(self.store.log)
        self._clean()

    @rule(topic=TOPICS, queues=st.integers(1, 2))
    def resize(self, topic: str, queues: int) -> None:
        """Take a queue from a topic, or give it back, with its messages."""
        self.queues[topic] = queues
        self._recover()

    @precondition(lambda self: self._present())
    @rule(data=st.data())
    def damage_and_repair(self, data: st.DataObject) -> None:
        self.lose(data.draw(st.sampled_from(sorted(self._present()))))

    def lose(self, body: bytes) -> None:
        """Lose a message to the disk, and repair the store."""
        self._recover()
        message = self.sent[body]
        root, file = self.store.root, message.physical // 2048 * 2048
        at = bytes(self.store.log).index(message.body, message.physical)
        damage(root / "commitlog" / f"{file:020d}", at - file)
        repair_store(self._config())
        self.damaged.add(message.body)
        for base in range(self.expired, len(self.store.log), 2048):
            part = slice(base, min(base + 2048, len(self.store.log)))
            content = (root / "commitlog" / f"{base:020d}").read_bytes()
            self.store.log[part] = content[: part.stop - base]
        for (topic, queue_id), entries in self.store.entries.items():
            files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
            entries[:] = b"".join(map(Path.read_bytes, files))[: len(entries)]
            if entries.endswith(bytes(ENTRY.size)):  # only the repair says that there was one more
                del entries[-ENTRY.size :]
                self.store.next_offsets[topic, queue_id] -= 1
                self.forgotten.add(message.body)
        self._clean()

    def _config(self) -> StoreConfig:
        return StoreConfig(
            store_path_root_dir=str(self.store.root),
            mapped_file_size_commit_log=FILES["mappedFileSizeCommitLog"],
            mapped_file_size_consume_queue=FILES["mappedFileSizeConsumeQueue"],
        )

    @rule()
    def expire(self) -> None:
        self._recover()
        if len(self.store.log) - self.expired > 2 * 2048:
            self.expired += 2048
        self._remove_expired()

    @rule(lost=st.integers(1, 5))
    def kill(self, lost: int) -> None:
        """The last entries of the queues are not on the disk; the log has their records."""
        whole = {key: bytes(entries) for key, entries in self.store.entries.items()}
        for entries in self.store.entries.values():
            kept = max(len(entries) - lost * ENTRY.size, 0)
            entries[kept:] = bytes(len(entries) - kept)
        self._write(crashed=True)
        for key, content in whole.items():
            self.store.entries[key][:] = content
        self.crashed = True

    @rule()
    def recover(self) -> None:
        self._recover()

    def _recover(self) -> None:
        if self.crashed:
            (self.store.root / "abort").unlink()
            self.crashed = False
        self._write()
        self._clean()

    def _write(self, *, crashed: bool = False) -> None:
        topics = {topic: queues for topic, queues in self.queues.items() if self._exists(topic)}
        topics[SYNC_BROKER_MEMBER_PREFIX + "broker-a"] = 1
        table = {
            topic: {"topicName": topic, "readQueueNums": many, "writeQueueNums": many, "perm": 6}
            for topic, many in topics.items()
        }
        document = {"topicConfigTable": table, DELETED_TOPICS: self.deleted}
        write(self.store.root / "config" / "topics.json", json.dumps(document).encode())
        self.store.write(crashed=crashed, entries_per_file=ENTRIES)
        self._remove_expired()

    def _exists(self, topic: str) -> bool:
        return any(key[0] == topic for key in self.store.entries)

    def _clean(self) -> None:
        self.store.write_checkpoint()  # as a broker that has closed the store
        self._remove_expired()

    def _remove_expired(self) -> None:
        for base in range(0, self.expired, 2048):
            (self.store.root / "commitlog" / f"{base:020d}").unlink(missing_ok=True)

    def _present(self) -> set[bytes]:
        return {
            body
            for body, message in self.sent.items()
            if message.physical >= self.expired
            and body not in self.damaged
            and message.generation == self.generations[message.queue[0]]
        }

    # --- readers ------------------------------------------------------------------------------

    @rule(killed=st.booleans())
    def read_files(self, killed: bool) -> None:
        if self._stream("files", self.files, {"path": str(self.store.root)}, killed):
            self._check(self.files)

    @precondition(lambda self: self.has_broker)
    @rule(killed=st.booleans())
    def read_broker(self, killed: bool) -> None:
        """Read a broker that has just begun with a copy of the files."""
        copy = Path(self.directory.name) / "copy"
        shutil.copytree(self.store.root, copy)
        server = EmbeddedServer(
            store=copy, properties={name: str(size) for name, size in FILES.items()}
        )
        servers_loop().run(server.start())
        try:
            options = {"namesrv": server.namesrv, "timeout": "20"}
            is_done = self._stream("live", self.live, options, killed)
        finally:
            servers_loop().run(server.stop())
            shutil.rmtree(copy)
        if is_done:
            self._check(self.live, {body for body in self._present() if self._is_readable(body)})

    def _check(self, reader: Reader, present: set[bytes] | None = None) -> None:
        known = {
            body: message
            for body, message in self.sent.items()
            if body not in self.forgotten or body in reader.read
        }
        reader.check(known, self._present() if present is None else present, self.expired)

    def _is_readable(self, body: bytes) -> bool:
        topic, queue_id = self.sent[body].queue
        return queue_id < self.queues[topic]

    @rule(killed=st.sampled_from(["", "", "before", "after"]))
    def export(self, killed: str) -> None:
        with (
            suppress(Killed),
            self.exported.reading(),
            closing(open_table(self.table, "parquet")) as table,
        ):
            kill_at_commit(table, killed)
            export(table, [self.store.root], columns=("queueOffset", "body"), skip_lost=True)
            killed = ""
        self.exported.read = [row["body"] for row in rows_in(self.table, "parquet")]
        if not killed:
            self._check(self.exported)

    @rule(prune=st.booleans(), killed=st.booleans())
    def sync(self, prune: bool, killed: bool) -> None:
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
        self.archived |= self._present()

    @precondition(lambda self: self.archived)
    @rule(killed=st.booleans())
    def read_archive(self, killed: bool) -> None:
        if not self._stream("archive", self.archive, {"path": str(self.archives)}, killed):
            return
        newest: dict[Queue, int] = {}
        for body in self.archived:
            message = self.sent[body]
            newest[message.queue] = max(newest.get(message.queue, 0), message.generation)
        self.archive.check(
            {body: self.sent[body] for body in self.archived},
            {
                body
                for body in self.archived & self._not_pruned()
                if self.sent[body].generation == newest[self.sent[body].queue]
            },
            self.expired,
        )

    def _not_pruned(self) -> set[bytes]:
        """Messages that are in the archive whatever was pruned: those that the store has."""
        begin = self.expired
        return {body for body, message in self.sent.items() if message.physical >= begin}

    def _stream(self, name: str, reader: Reader, place: dict[str, str], killed: bool) -> bool:
        """Go on as a query that begins with its checkpoint, until there is nothing new. A query
        that is `killed` in a batch leaves this batch to the next one. Return whether it was not."""
        options = {"startingOffsets": "earliest", "failOnDataLoss": "false", **place}
        source = RocketMQDataSource(options)
        with reader.reading():
            stream = source.streamReader(_BODY)
            if name not in self.positions:
                self.positions[name] = stream.initialOffset()
            while True:
                start = self.positions[name]
                if reader.begun is None:
                    end = stream.latestOffset(start, stream.getDefaultReadLimit())
                    if end == start:
                        return True
                    reader.begun = start, end
                arrived: list[bytes] = []
                for part in stream.partitions(*reader.begun):
                    rows: Any  # Arrow batches; Spark allows tuples, too
                    for rows in stream.read(part):
                        arrived += rows.column("body").to_pylist()
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


def _body_schema() -> Any:
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField("body", BinaryType())])


_BODY = _body_schema()


def run(examples: int, steps: int = 30, *, quick: bool = False) -> None:
    """Try a number of histories; a `quick` run does not look for the shortest that fails."""
    run_state_machine_as_test(
        Readers,
        settings=settings(
            max_examples=examples,
            phases=[Phase.generate] if quick else list(Phase),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
