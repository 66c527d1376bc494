"""Opens what a power cut left, and compares it with what was acknowledged before it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from pocketmq.broker.delayed.timer import TimerService
from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.tables import Tables
from pocketmq.message import properties as names
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.message.multi_dispatch import light_places
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.store.errors import RecordNotFound, StoreError
from pocketmq.store.files import Files
from pocketmq.store.message_store import MessageStore
from tests.fake_time import FakeTime
from tests.fast_files import FastFiles

from .serving import served_by
from .traffic import Acknowledged, Ledger, configuration

MOST_QUERIES: Final = 8
END_OF_TIME: Final = 2**62
#: When all timed messages of a campaign are due.
LATER_MS: Final = 40_000
TURNS: Final = 8


class Verdict:
    """What is wrong with a store, by the promises in `ledger`; nothing while `faults` is empty."""

    def __init__(
        self,
        root: Path,
        ledger: Ledger,
        *,
        sync: bool,
        timed: bool = False,
        files: Files | None = None,
    ) -> None:
        """With `timed`, time passes after the start, and timed messages must come."""
        self.faults: list[str] = []
        #: Where the log ends; what was acknowledged beyond is lost, as ASYNC_FLUSH allows.
        self.end = 0
        self._config = configuration(root, sync=sync, timed=timed)
        self._time = FakeTime(time.time_ns() // 1_000_000)
        self._ledger = ledger
        self._sync = sync
        self._files = files or FastFiles()

    async def find(self) -> None:
        """Open the store, look, and close it."""
        store = MessageStore(
            self._config, store_host=bytes(8), files=self._files, clock=self._time.clock
        )
        try:
            store.open()
        except (StoreError, OSError) as error:
            self.faults.append(f"the store does not open: {type(error).__name__}: {error}")
            return
        try:
            store.start()
            self.end = store.commit_log.end
            tables = Tables(self._config, lambda: 0, lambda names: None, lambda group: None)
            try:
                tables.load()
            except StoreError as error:
                self.faults.append(f"a table does not load: {error}")
                return
            for message in self._ledger.messages:
                fault = self._fault(store, tables, message)
                if fault is not None:
                    self._note(message, fault)
            self._find_offsets_given_again(store)
            await self._find_by_keys(store)
            if self._config.timer_wheel_enable:
                await self._find_timed(store)
        finally:
            await store.close()

    def _note(self, message: Acknowledged, fault: str) -> None:
        self.faults.append(f"{message._replace(body=message.body[:12])}: {fault}")

    def _stored(self) -> list[Acknowledged]:
        """What is in a queue of its topic, which was not deleted, or has expired there."""
        return [
            message
            for message in self._ledger.messages
            if message.plain
            and message.physical_offset < self.end
            and message.topic not in self._ledger.deleted
        ]

    def _find_offsets_given_again(self, store: MessageStore) -> None:
        """Look whether the next message of a queue would get an offset that was acknowledged."""
        last: dict[tuple[str, int], Acknowledged] = {}
        for message in self._stored():
            queue = message.topic, message.queue_id
            last[queue] = max(message, last.get(queue, message), key=lambda one: one.queue_offset)
        for queue, message in last.items():
            if store.max_offset(*queue) <= message.queue_offset:
                self._note(message, f"its offset is given again: {store.max_offset(*queue)}")

    async def _find_by_keys(self, store: MessageStore) -> None:
        """Query the oldest keys: their index files are the ones that are kept after a crash."""
        wanted: dict[tuple[str, str], list[Acknowledged]] = {}
        for message in self._stored():
            if message.key and message.physical_offset >= self._ledger.expired:
                wanted.setdefault((message.topic, message.key), []).append(message)
        for (topic, key), messages in list(wanted.items())[:MOST_QUERIES]:
            result = await store.index.query(topic, key, len(messages) + 32, 0, END_OF_TIME)
            try:
                found = {decode(record).physical_offset for record in result.records}
            except RecordError as error:
                self.faults.append(f"the key {key} of {topic} finds what is not readable: {error}")
                continue
            for message in messages:
                if message.physical_offset not in found:
                    self._note(message, "not found by its key")

    async def _find_timed(self, store: MessageStore) -> None:
        """Let all timed messages come, and look whether any is missing or early."""
        clock = self._time.clock
        statistics = Statistics("C0", clock)
        timer = TimerService(store, PutHooks(store), statistics, clock, self._time.call_later)
        try:
            timer.start()
        except StoreError as error:
            self.faults.append(f"the timers do not open: {error}")
            return
        # What is stored anew, since it is too far away, is read when it is on the disk.
        for _ in range(TURNS):
            self._time.advance(LATER_MS // TURNS)
            await store.all_flushed()
        await timer.stop()
        await timer.save()
        timer.close()
        delivered = set()
        for (topic, _, _), served in served_by(store).items():
            if topic == TIMER_TOPIC:
                continue
            delivered.add((topic, served.body))
            if served.stored < int(served.properties.get(names.TIMER_OUT_MS, 0)):
                self.faults.append(f"{served} is delivered early")
        for message in self._ledger.messages:
            if (
                message.timed
                and self._ledger.expired <= message.physical_offset < self.end
                and message.topic not in self._ledger.deleted
                and (message.topic, message.body) not in delivered
            ):
                self._note(message, "timed, and not delivered")

    def _fault(self, store: MessageStore, tables: Tables, message: Acknowledged) -> str | None:
        if message.physical_offset < self._ledger.expired:
            return None
        if message.physical_offset >= self.end:
            return f"lost, the log ends at {self.end}" if self._sync else None
        try:
            record = decode(store.record_at(message.physical_offset))
        except (RecordNotFound, RecordError) as error:
            return f"not readable: {error}"
        if record.body != message.body or record.queue_offset != message.queue_offset:
            return "another message is there"
        for name, offset in light_places(record.topic, record.properties_text):
            found = store.get(name, 0, offset, 1)
            if (
                not found.buffers
                or decode(found.buffers[0]).physical_offset != message.physical_offset
            ):
                return f"the light queue {name} does not have it at {offset}"
        wanted, given = names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET
        if message.plain and (wanted in record.properties) != (given in record.properties):
            return "it is in no light queue"
        topic = record.topic
        if message.topic in self._ledger.deleted:
            return None
        if tables.topics.get(message.topic) is None:
            return "the broker does not know the topic"
        found = store.get(topic, record.queue_id, record.queue_offset, 1)
        if not found.buffers:
            return f"its queue does not have it: {found.status.name}, ends at {found.max_offset}"
        if decode(found.buffers[0]).physical_offset != message.physical_offset:
            return "its queue has another message at the offset"
        return None
