"""A broker without its network over a store, and everything that it serves."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from pocketmq.broker.components import Components
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.tables import Tables
from pocketmq.message.multi_dispatch import light_places
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore
from tests.fake_time import FakeTime

#: Reads of one queue, at most.
MOST_READS = 2_000

#: Topic, queue id, queue offset.
Place = tuple[str, int, int]


class Served(NamedTuple):
    """A message that was read: the physical offsets of its record, and what is in it."""

    begin: int
    end: int
    body: bytes
    stored: int
    properties: dict[str, str]


class Life:
    """One life of a broker.

    Attributes:
        refusal: why the store was refused; None if it was opened.
        bug: the traceback of what must not happen.
        said: warnings and errors in its log.
    """

    broker_store: MessageStore

    def __init__(self) -> None:
        self.refusal: StoreError | OSError | None = None
        self.bug = ""
        self.said: list[str] = []


@contextlib.asynccontextmanager
async def life(config: BrokerConfig, clock: FakeTime) -> AsyncIterator[Life]:
    """Open the store as a broker does, but for its network, and close it behind the block."""
    alive = Life()
    with heard(alive.said):
        async with StopSteps() as stack:
            try:
                await _start(alive, config, clock, stack)
            except (StoreError, OSError) as error:
                alive.refusal = error
            except Exception:
                alive.bug = traceback.format_exc()
            yield alive


async def _start(alive: Life, config: BrokerConfig, clock: FakeTime, stack: StopSteps) -> None:
    store = MessageStore(config, store_host=bytes(8), clock=clock.clock)
    store.open()
    stack.push_async_callback(store.close)
    tables = Tables(config, clock.clock, lambda names: None, lambda group: None)
    tables.load(in_use=store.commit_log.end > 0)
    for _ in store.delete_deleted_queues(tables.topics.deleted):
        pass
    tables.topics.adopt(store.queues, store.commit_log.min_offset, store.commit_log.end)

    async def announced() -> None:
        pass

    components = Components(
        config, tables, store, address="127.0.0.1:10911", store_host=bytes(8), clock=clock.clock,
        work_clock=lambda: 0.0, call_later=clock.call_later, on_settings=lambda keys: None,
        announced=announced,
    )  # fmt: skip
    components.start(stack)
    alive.broker_store = store


@contextlib.contextmanager
def heard(said: list[str]) -> Iterator[None]:
    """Collect what is logged as warnings and errors, instead of logging it."""
    logger = logging.getLogger("pocketmq")
    handler = logging.Handler(logging.WARNING)

    def emit(record: logging.LogRecord) -> None:
        said.append(record.getMessage())
        if record.exc_info:
            said.append("".join(traceback.format_exception(*record.exc_info)))

    handler.emit = emit  # type: ignore[method-assign]
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def served_by(
    store: MessageStore, refused: dict[tuple[str, int], StoreError] | None = None
) -> dict[Place, Served]:
    """Return every message that consumers can read, by the place at which they get it. `refused`
    gets the queues that cannot be opened, by topic and queue id; without it there must be none."""
    found: dict[Place, Served] = {}
    for topic, queues in store.queues.items():
        for queue_id in queues:
            try:
                queue = queues[queue_id]
            except StoreError as error:
                if refused is None:
                    raise
                refused[topic, queue_id] = error
                continue
            offset = queue.min_offset
            for _ in range(MOST_READS):
                if offset >= queue.max_offset:
                    break
                result = store.get(topic, queue_id, offset, 32)
                for buffer in result.buffers:
                    for record in readable(buffer):
                        light = dict(light_places(record.topic, record.properties_text))
                        found[topic, queue_id, light.get(topic, record.queue_offset)] = Served(
                            record.physical_offset, record.physical_offset + record.size,
                            bytes(record.body), record.store_timestamp, record.properties,
                        )  # fmt: skip
                assert result.next_begin_offset > offset, f"{topic}/{queue_id} stays at {offset}"
                offset = result.next_begin_offset
    return found


def readable(buffer: bytes | memoryview) -> Iterator[Record]:
    """Return the records of what a pull gives, without those whose parts are damaged."""
    at = 0
    while at < len(buffer):
        with contextlib.suppress(RecordError):
            yield decode(buffer, at, check_crc=False)
        at += int.from_bytes(buffer[at : at + 4])
