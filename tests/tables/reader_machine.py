"""What may happen to a store, in any order, and readers that keep their places meanwhile.

Every message is read exactly once by each reader, or the reader says that messages are missing. Run
many examples with `python -m tests.tables.reader_machine [EXAMPLES]`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.tables.exports import export
from pocketmq.tables.table import open_table
from tests.spark.stream_store import GrowingStore
from tests.store.made_store import ENTRY
from tests.tables.rows_in import rows_in

TOPICS = st.sampled_from(["T", "U"])
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
        self.said += 1


class Reader:
    """What one reader has read, and how often it has said that messages are missing."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
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


class Readers(RuleBasedStateMachine):
    """A stream over files, a stream over an archive, and an export into a table."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="readers-")
        root = Path(self.directory.name)
        self.store = GrowingStore(root / "store", segment_size=2048)
        self.archives = root / "archives"
        self.archives.mkdir()
        self.table = root / "table"
        self.sent: dict[bytes, Sent] = {}
        self.generations: dict[str, int] = {"T": 0, "U": 0}
        self.archived: set[bytes] = set()
        self.deleted = False
        self.expired = 0
        self.crashed = False
        self.files, self.archive, self.exported = Reader(), Reader(), Reader()
        self.positions: dict[str, dict[str, Any]] = {}
        # Where no queue at all is left, readers look for messages in the log.
        self.store.put("rmq_sys_kept")
        self.store.write()
        self._clean()

    def teardown(self) -> None:
        self.directory.cleanup()

    # --- what happens to the store ------------------------------------------------------------

    @rule(topic=TOPICS, queue_id=st.integers(0, 1), count=st.integers(1, 12), far=st.booleans())
    def send(self, topic: str, queue_id: int, count: int, far: bool) -> None:
        self._recover()
        for _ in range(count):
            body = b"%d" % len(self.sent) + b"." * (200 if far else 0)
            physical = self.store.put(topic, queue_id, body)
            generation = self.generations[topic]
            self.sent[body] = Sent(body, (topic, queue_id), generation, physical)
        self.store.write()
        self._remove_expired()

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self._recover()
        self.store.delete(topic)
        self.generations[topic] += 1
        self.deleted = True
        self._clean()

    @rule()
    def expire(self) -> None:
        self._recover()
        if len(self.store.log) - self.expired > 2 * 2048:
            self.expired += 2048
        self._remove_expired()

    @precondition(lambda self: not self.deleted)
    @rule(lost=st.integers(1, 5))
    def kill(self, lost: int) -> None:
        """The last entries of the queues are not on the disk; the log has their records."""
        whole = {key: bytes(entries) for key, entries in self.store.entries.items()}
        for entries in self.store.entries.values():
            kept = max(len(entries) - lost * ENTRY.size, 0)
            entries[kept:] = bytes(len(entries) - kept)
        self.store.write(crashed=True)
        self._remove_expired()
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
        self.store.write()
        self._clean()

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
            and message.generation == self.generations[message.queue[0]]
        }

    # --- readers ------------------------------------------------------------------------------

    @rule()
    def read_files(self) -> None:
        self._stream("files", self.files, self.store.root)
        self.files.check(self.sent, self._present(), self.expired)

    @rule()
    def export(self) -> None:
        with self.exported.reading(), closing(open_table(self.table, "parquet")) as table:
            export(table, [self.store.root], columns=("queueOffset", "body"), skip_lost=True)
        self.exported.read = [row["body"] for row in rows_in(self.table, "parquet")]
        self.exported.check(self.sent, self._present(), self.expired)

    @rule(prune=st.booleans())
    def sync(self, prune: bool) -> None:
        objects = Location(str(self.archives)).open()
        try:
            sync(self.store.root, objects, everything=True, prune=prune, clock=lambda: 1)
        except OtherStore:  # the messages behind the archive's end were deleted; it says so
            return
        self.archived |= self._present()

    @precondition(lambda self: self.archived)
    @rule()
    def read_archive(self) -> None:
        self._stream("archive", self.archive, self.archives)
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

    def _stream(self, name: str, reader: Reader, place: Path) -> None:
        """Go on as a query that begins with its checkpoint, until there is nothing new."""
        options = {"path": str(place), "startingOffsets": "earliest", "failOnDataLoss": "false"}
        source = RocketMQDataSource(options)
        with reader.reading():
            stream = source.streamReader(_BODY)
            if name not in self.positions:
                self.positions[name] = stream.initialOffset()
            while True:
                start = self.positions[name]
                end = stream.latestOffset(start, stream.getDefaultReadLimit())
                if end == start:
                    return
                for part in stream.partitions(start, end):
                    rows: Any  # Arrow batches; Spark allows tuples, too
                    for rows in stream.read(part):
                        reader.read += rows.column("body").to_pylist()
                self.positions[name] = end


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
