"""A store against a model of it: whatever happens in whatever order, what was put is there."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import iter_records
from pocketmq.message.tags import tag_hash
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from tests.fast_files import FastFiles

FILE_SIZE = 4096
QUEUE_FILE_SIZE = 200
TOPICS = st.sampled_from(["A", "B", "%RETRY%g"])
QUEUES = st.integers(0, 1)
BODIES = st.binary(max_size=40).map(lambda seed: seed * 20)
TAGS = st.sampled_from(["", "one", "two"])


def properties_of(tag: str) -> str:
    return f"TAGS\x01{tag}\x02" if tag else ""


class StoreMachine(RuleBasedStateMachine):
    """The model: for each queue the (body, tag) pairs in order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.lives = 0
        self.root = self.directory / "0"
        self.now = 1_700_000_000_000
        self.model: dict[tuple[str, int], list[tuple[bytes, str]]] = {}
        self.deleted: set[str] = set()
        self.store = self.open()

    def open(self) -> MessageStore:
        config = StoreConfig(
            store_path_root_dir=str(self.root),
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
        )
        store = MessageStore(config, store_host=bytes(8), files=FastFiles(), clock=self.clock)
        store.open()
        return store

    def clock(self) -> int:
        self.now += 1
        return self.now

    @rule(topic=TOPICS, queue_id=QUEUES, body=BODIES, tag=TAGS)
    def put(self, topic: str, queue_id: int, body: bytes, tag: str) -> None:
        messages = self.model.setdefault((topic, queue_id), [])
        result = self.store.put(
            topic, queue_id, body, properties_of(tag), born_timestamp=1, born_host=bytes(8),
            tags_code=tag_hash(tag),
        )  # fmt: skip
        assert result.queue_offset == len(messages)
        messages.append((body, tag))

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        batch=st.lists(st.tuples(st.binary(max_size=200), TAGS), min_size=1, max_size=9),
    )
    def put_batch(self, topic: str, queue_id: int, batch: list[tuple[bytes, str]]) -> None:
        messages = self.model.setdefault((topic, queue_id), [])
        body = encode_batch([(0, body, properties_of(tag).encode()) for body, tag in batch])
        result = self.store.put_batch(
            topic, queue_id, body, "", born_timestamp=1, born_host=bytes(8)
        )
        assert result.queue_offset == len(messages)
        assert len(result.physical_offsets) == len(batch)
        messages += batch

    @rule(topic=TOPICS)
    def begin_anew(self, topic: str) -> None:
        """Delete a topic and put a first message into each of its queues again.

        (One that is only deleted comes back after a crash, as with the reference: the log does not
        tell that it was.)
        """
        self.store.delete_topic(topic)
        self.deleted.add(topic)
        for key in [key for key in self.model if key[0] == topic]:
            self.model[key] = []
            self.put(topic, key[1], b"anew", "")

    @rule()
    def reopen(self) -> None:
        asyncio.run(self.store.close())
        self.store = self.open()

    @rule(lost=st.sampled_from(["nothing", "queues", "checkpoint"]))
    def crash(self, lost: str) -> None:
        """Go on with a copy of the directory, as a killed process would leave it."""
        self.lives += 1
        target = self.directory / str(self.lives)
        shutil.copytree(self.root, target)
        if lost == "queues":
            shutil.rmtree(target / "consumequeue", ignore_errors=True)
        if lost == "checkpoint":
            (target / "checkpoint").unlink()
        asyncio.run(self.store.close())
        self.root = target
        self.store = self.open()

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data())
    def torn_tail(self, data: Any) -> None:
        """A crash in the middle of the last message: that one is gone, and nothing else."""
        records = list(self.last_file_records())
        if not records:
            return
        last = records[-1]
        key = (last.topic, last.queue_id)
        if last.physical_offset < self.store.flushed_offset:
            return  # that would be damage
        if last.topic in self.deleted and last.queue_offset == 0:
            return  # without it the queue's earlier life comes back
        # At most up to the topic's length. (What follows has no checksum, but a process that is
        # killed there has not written the size yet.)
        most = last.size - len(last.properties_bytes) - 2 - len(last.topic) - 1
        keep = data.draw(st.integers(0, most), label="bytes that were written")
        rest = data.draw(st.sampled_from([b"\0", b"\xff"]), label="junk") * (last.size - keep)
        base = last.physical_offset // FILE_SIZE * FILE_SIZE
        self.lives += 1
        target = self.directory / str(self.lives)
        shutil.copytree(self.root, target)
        with (target / "commitlog" / f"{base:020d}").open("r+b") as file:
            file.seek(last.physical_offset - base + keep)
            file.write(rest)
        asyncio.run(self.store.close())
        self.root = target
        self.store = self.open()
        assert self.store.commit_log.end == last.physical_offset
        self.model[key].pop()

    def last_file_records(self) -> list[Any]:
        log = self.store.commit_log
        file = log.files.find(log.end - 1) if log.end else None
        if file is None:
            return []
        return list(iter_records(bytes(file.view[: log.end - file.base_offset])))

    @invariant()
    def everything_is_served(self) -> None:
        for (topic, queue_id), messages in self.model.items():
            assert self.store.max_offset(topic, queue_id) == len(messages)
            served: list[tuple[bytes, str]] = []
            offset = 0
            while offset < len(messages):
                result = self.store.get(topic, queue_id, offset, 5)
                for buffer in result.buffers:
                    for record in iter_records(bytes(buffer), strict=True):
                        assert record.queue_offset == len(served)
                        served.append((bytes(record.body), record.properties.get("TAGS", "")))
                offset = result.next_begin_offset
            assert served == messages

    @precondition(lambda self: any(self.model.values()))
    @rule(tag=TAGS)
    def filtered(self, tag: str) -> None:
        for (topic, queue_id), messages in self.model.items():
            wanted = [n for n, message in enumerate(messages) if message[1] == tag]
            found = []
            offset = 0
            while offset < len(messages):
                result = self.store.get(
                    topic, queue_id, offset, 3, codes=frozenset({tag_hash(tag)})
                )
                for buffer in result.buffers:
                    found += [r.queue_offset for r in iter_records(bytes(buffer), strict=True)]
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
            assert found == wanted

    def teardown(self) -> None:
        asyncio.run(self.store.close())
        shutil.rmtree(self.directory)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.too_slow],
)
