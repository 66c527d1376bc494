"""Lets a broker work, and keeps what it acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from pocketmq.remoting.headers.topic import DeleteTopicRequestHeader
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.store.config import FlushDiskType
from pocketmq.store.timer import timer_index, timer_wheel

QUEUES: Final = 3
LOG_FILE: Final = 16 * 1024
COMMIT, ROLLBACK = 8, 12
LIGHT_QUEUES: Final = ("%LMQ%a", "%LMQ%$T$b", "%LMQ%c")
HALF: Final = "TRAN_MSG\x01true\x02PGROUP\x01power\x02"


#: Slots of the timer wheel of `small_wheel`, of 100 ms each.
RING: Final = 256


def configuration(root: Path, *, sync: bool, timed: bool = False) -> BrokerConfig:
    """A broker whose files are so small that every kind of them is rolled. With `timed` it takes
    timed messages."""
    return BrokerConfig(
        store_path_root_dir=str(root),
        listen_port=0,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH,
        mapped_file_size_commit_log=LOG_FILE,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=50,
        max_index_num=20,
        flush_interval_commit_log=20,
        flush_interval_consume_queue=30,
        flush_consume_queue_thorough_interval=30,
        flush_consumer_offset_interval=100,
        transaction_op_batch_interval=100,
        file_reserved_time=0,
        delete_commit_log_files_interval=1,
        timer_wheel_enable=timed,
        timer_precision_ms=100,
        mapped_file_size_timer_log=1024,
        timer_flush_interval_ms=50,
        message_delay_level="1s 2s 1h",
        enable_lmq=True,
        enable_multi_dispatch=True,
    )


@contextlib.contextmanager
def small_wheel() -> Iterator[None]:
    """Let the timer wheel have 8 KiB instead of 37 MiB, which are too much to look at for each
    write; it then goes around within a campaign."""
    with (
        mock.patch.object(timer_wheel, "RING", RING),
        mock.patch.object(timer_wheel, "SIZE", RING * 32),
        mock.patch.object(timer_index, "SLOTS", RING // 2),
        mock.patch.object(timer_index, "BLANK_SLOTS", 10),
    ):
        yield


class Acknowledged(NamedTuple):
    """A message that the broker said it has stored, and where.

    plain: whether that is a queue of its topic; one that is delayed or timed, or a half message, is
    in another topic's. key: what it can be found by. timed: whether it waits for its time.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    plain: bool
    key: str
    timed: bool = False


@dataclass
class Ledger:
    """What a broker has promised.

    deleted: topics whose queues need not be there. expired: physical offset below which the log
    need not be there.
    """

    messages: list[Acknowledged] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    expired: int = 0

    def copy(self) -> Ledger:
        return Ledger(self.messages.copy(), self.deleted.copy(), self.expired)


class Traffic:
    """Requests of every kind that writes, several at a time, in an order that `random` gives."""

    def __init__(
        self,
        ledger: Ledger,
        random: random.Random,
        life: int,
        delays: Sequence[int] = (300, 1_000, 60_000, 3_600_000),
    ) -> None:
        """`delays` are those of timed messages, ms."""
        self.ledger = ledger
        self._random = random
        self._life = life
        self._delays = delays
        self._count = 0
        self._topics = 0
        self._half: list[EndTransactionRequestHeader] = []
        #: Code and remark of each request that was refused.
        self.refused: list[tuple[int, str | None]] = []

    async def run(self, broker: Broker, steps: int) -> None:
        """Work until all `steps` are done; the broker must be in this process."""
        kinds = {
            self._send: 10, self._send_batch: 4, self._send_delayed: 2, self._send_half: 2,
            self._end_half: 2, self._commit_offset: 1, self._delete_topic: 0.2, self._clean: 0.3,
        }  # fmt: skip
        if broker.config.timer_wheel_enable:
            kinds[self._send_timed] = 4
        connection = await Connection.open(broker.address)
        try:
            for _ in range(steps):
                drawn = self._random.choices(
                    list(kinds), list(kinds.values()), k=self._random.choice((1, 1, 2, 6))
                )
                await asyncio.gather(*(step(connection, broker) for step in drawn))
        finally:
            await connection.close()

    def _topic(self) -> str:
        if self._random.random() < 0.05:
            self._topics += 1
        return f"T{self._life}_{self._topics}"

    def _zeros(self) -> str:
        """Return a property with a zero, now and then: lost bytes are read as zeros, too."""
        return "zero\x01\x00\x02" if self._random.random() < 0.1 else ""

    def _light(self) -> str:
        """Return a property that dispatches a message to light queues, now and then."""
        names = self._random.sample(LIGHT_QUEUES, self._random.choice((0, 0, 1, 2)))
        return f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02" if names else ""

    def _body(self) -> bytes:
        self._count += 1
        filler = b"." * self._random.choice((0, 10, 300, 1_500))
        return b"%d-%d-%s" % (self._life, self._count, filler)

    async def probe(self, connection: Connection) -> bool:
        """Send one message; return whether it was acknowledged."""
        before = len(self.ledger.messages)
        await self._put(connection, "", [self._body()])
        return len(self.ledger.messages) > before

    async def _send(self, connection: Connection, broker: Broker, properties: str = "") -> None:
        key = f"k{self._random.randrange(20)}"
        more = f"KEYS\x01{key}\x02{self._zeros()}{self._light()}"
        await self._put(connection, properties + more, [self._body()], key)

    async def _send_batch(self, connection: Connection, broker: Broker) -> None:
        await self._put(connection, "", [self._body() for _ in range(self._random.randint(2, 5))])

    async def _send_delayed(self, connection: Connection, broker: Broker) -> None:
        await self._send(connection, broker, f"DELAY\x01{self._random.randint(1, 3)}\x02")

    async def _send_timed(self, connection: Connection, broker: Broker) -> None:
        delay = self._random.choice(self._delays)
        await self._send(connection, broker, f"TIMER_DELAY_MS\x01{delay}\x02")

    async def _send_half(self, connection: Connection, broker: Broker) -> None:
        stored = await self._put(connection, HALF, [self._body()])
        if stored is None:
            return
        answer, physical = stored
        self._half.append(
            EndTransactionRequestHeader(
                producer_group="power",
                tran_state_table_offset=answer.queue_offset or 0,
                commit_log_offset=physical,
                commit_or_rollback=self._random.choice((COMMIT, ROLLBACK)),
                msg_id="",
            )
        )

    async def _end_half(self, connection: Connection, broker: Broker) -> None:
        if self._half:
            header = self._half.pop(self._random.randrange(len(self._half)))
            await connection.request(RequestCode.END_TRANSACTION, header, timeout=30.0)

    async def _commit_offset(self, connection: Connection, broker: Broker) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="G", topic=f"T{self._life}_{self._topics}", queue_id=0, commit_offset=1
        )
        await connection.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout=30.0)

    async def _delete_topic(self, connection: Connection, broker: Broker) -> None:
        topic = f"T{self._life}_{self._topics}"
        self._topics += 1
        self.ledger.deleted.add(topic)
        header = DeleteTopicRequestHeader(topic=topic)
        await connection.request(RequestCode.DELETE_TOPIC_IN_BROKER, header, timeout=30.0)

    async def _clean(self, connection: Connection, broker: Broker) -> None:
        await connection.request(RequestCode.DELETE_EXPIRED_COMMITLOG, timeout=30.0)

    async def _put(
        self, connection: Connection, properties: str, bodies: list[bytes], key: str = ""
    ) -> tuple[SendMessageResponseHeader, int] | None:
        topic, batch = self._topic(), len(bodies) > 1
        header = SendMessageRequestHeaderV2(
            producer_group="power",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=self._random.randrange(QUEUES),
            sys_flag=4 if properties.startswith(HALF) else 0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties=properties,
            batch=batch,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        body = bodies[0]
        if batch:
            body = encode_batch((0, body, self._zeros().encode()) for body in bodies)
        command = await connection.request(code, header, body, timeout=60.0)
        if command.code != ResponseCode.SUCCESS:
            self.refused.append((command.code, command.remark))
            return None
        answer = SendMessageResponseHeader.from_ext(command.ext_fields)
        assert answer.msg_id is not None
        assert answer.queue_id is not None
        assert answer.queue_offset is not None
        places = [decode_offset_msg_id(one).physical_offset for one in answer.msg_id.split(",")]
        timed = properties.startswith("TIMER")
        plain = not timed and not properties.startswith(("DELAY", HALF))
        for offset, (place, sent) in enumerate(
            zip(places, bodies, strict=True), answer.queue_offset
        ):
            self.ledger.messages.append(
                Acknowledged(topic, answer.queue_id, offset, place, sent, plain, key, timed)
            )
        return answer, places[0]
