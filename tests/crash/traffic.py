"""Senders that remember what was acknowledged, and a reader that holds the broker to it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.record import iter_records
from pocketmq.remoting.batch import decode_answers
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingClosed, RemotingConnectError, RemotingTimeout
from pocketmq.remoting.frame import Command, encode_command
from pocketmq.remoting.headers.admin import BatchRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader

QUEUES = 4

# What a kill does to a request that is under way.
CUT_OFF = (RemotingClosed, RemotingConnectError, RemotingTimeout)


@dataclass
class Ledger:
    """Everything sent and everything acknowledged, over all rounds."""

    topic: str
    sent: set[bytes] = field(default_factory=set)
    # (queue id, queue offset) -> (body, physical offset)
    acknowledged: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    # Set by every acknowledgement; a round clears it to wait for its first.
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, queue: int, offset: int, body: bytes, physical_offset: int) -> None:
        place = (queue, offset)
        if place in self.acknowledged:
            raise AssertionError(
                f"queue {queue} offset {offset} was given to {self.acknowledged[place][0][:40]!r} "
                f"and again to {body[:40]!r}"
            )
        self.acknowledged[place] = (body, physical_offset)
        self.progress.set()


class Sender:
    """Sends with several requests in flight until its connection breaks."""

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        *,
        batch: int,
        chance: random.Random,
        parents: bool = False,
    ) -> None:
        """`batch` messages go in one request: a batch, or with `parents` sends of their own, each
        to any queue, in a batch request."""
        self._ledger = ledger
        self._name = name
        self._batch = batch
        self._chance = chance
        self._parents = parents
        self._count = 0

    async def run(self, address: str, in_flight: int = 4) -> None:
        """Returns when the broker is gone."""
        connection = await Connection.open(address)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(in_flight):
                    group.create_task(self._until_cut_off(connection))
        finally:
            await connection.close()

    async def _until_cut_off(self, connection: Connection) -> None:
        try:
            while True:
                await self._send(connection)
        except CUT_OFF:
            return

    def _body(self) -> bytes:
        self._count += 1
        filler = b"x" * self._chance.randrange(3_000)
        return b"%s-%d-%s" % (self._name.encode(), self._count, filler)

    async def _send(self, connection: Connection) -> None:
        bodies = [self._body() for _ in range(self._batch)]
        self._ledger.sent.update(bodies)
        if self._parents:
            await self._send_parent(connection, bodies)
            return
        if self._batch > 1:
            code = RequestCode.SEND_BATCH_MESSAGE
            payload = encode_batch((0, body, b"TAGS\x01TagA\x02") for body in bodies)
        else:
            code = RequestCode.SEND_MESSAGE_V2
            payload = bodies[0]
        answer = await connection.request(code, self._header(), payload, timeout=10.0)
        self._note(answer, bodies)

    async def _send_parent(self, connection: Connection, bodies: Sequence[bytes]) -> None:
        code = RequestCode.SEND_MESSAGE_V2
        payload = b"".join(
            encode_command(code, opaque, header=self._header(), body=body)
            for opaque, body in enumerate(bodies)
        )
        header = BatchRequestHeader(dispatch_code=code)
        parent = await connection.request(
            RequestCode.COMMON_BATCH_REQUEST, header, payload, timeout=10.0
        )
        if parent.code != ResponseCode.SUCCESS:
            raise AssertionError(f"{self._name}: code {parent.code} {parent.remark}")
        answers = decode_answers(parent.body)
        assert sorted(answers) == list(range(len(bodies)))
        for opaque, body in enumerate(bodies):
            self._note(answers[opaque], [body])

    def _header(self) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(
            producer_group="crash",
            topic=self._ledger.topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=self._chance.randrange(QUEUES),
            # Bits that mean nothing to the broker, and those of IPv6 hosts, which it sets itself.
            sys_flag=self._chance.choice((0, 0x2, 0x10, 0x20, 0x700)),
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties="TAGS\x01TagA\x02",
            batch=self._batch > 1 and not self._parents,
        )

    def _note(self, answer: Command, bodies: Sequence[bytes]) -> None:
        if answer.code != ResponseCode.SUCCESS:
            raise AssertionError(f"{self._name}: code {answer.code} {answer.remark}")
        stored = SendMessageResponseHeader.from_ext(answer.ext_fields)
        assert stored.msg_id is not None
        assert stored.queue_id is not None
        assert stored.queue_offset is not None
        for at, (msg_id, body) in enumerate(zip(stored.msg_id.split(","), bodies, strict=True)):
            self._ledger.acknowledge(
                stored.queue_id,
                stored.queue_offset + at,
                body,
                decode_offset_msg_id(msg_id).physical_offset,
            )


async def read_queue(connection: Connection, topic: str, queue: int) -> list[tuple[bytes, int]]:
    """(body, physical offset) of every message of a queue; its index is the queue offset."""
    found: list[tuple[bytes, int]] = []
    while True:
        header = PullMessageRequestHeader(
            consumer_group="crash",
            topic=topic,
            queue_id=queue,
            queue_offset=len(found),
            max_msg_nums=32,
            sys_flag=4,  # No holding: the subscription of this request counts.
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
        )
        answer = await connection.request(RequestCode.PULL_MESSAGE, header, timeout=10.0)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        if answer.code != ResponseCode.SUCCESS:
            raise AssertionError(
                f"queue {queue} at {len(found)}: code {answer.code} {answer.remark}"
            )
        for record in iter_records(answer.body):
            if record.queue_offset != len(found) or record.queue_id != queue:
                raise AssertionError(
                    f"queue {queue} at {len(found)} serves queue offset {record.queue_offset} "
                    f"of queue {record.queue_id}"
                )
            found.append((bytes(record.body), record.physical_offset))
        bounds = PullMessageResponseHeader.from_ext(answer.ext_fields)
        if bounds.next_begin_offset != len(found):
            raise AssertionError(f"queue {queue} jumps to {bounds.next_begin_offset}")


async def check(ledger: Ledger, address: str) -> None:
    """Raise AssertionError unless the broker serves every acknowledged message in its place,
    and nothing that was never sent. While nothing was acknowledged the topic may be missing."""
    if not ledger.acknowledged:
        return
    connection = await Connection.open(address)
    try:
        queues = await asyncio.gather(
            *(read_queue(connection, ledger.topic, queue) for queue in range(QUEUES))
        )
    finally:
        await connection.close()
    for (queue, offset), acknowledged in ledger.acknowledged.items():
        if offset >= len(queues[queue]):
            raise AssertionError(
                f"queue {queue} ends at {len(queues[queue])}; offset {offset} was acknowledged"
            )
        if queues[queue][offset] != acknowledged:
            raise AssertionError(
                f"queue {queue} offset {offset}: acknowledged {_short(acknowledged)}, "
                f"serves {_short(queues[queue][offset])}"
            )
    _no_strangers(ledger, queues)


def _no_strangers(ledger: Ledger, queues: Sequence[Sequence[tuple[bytes, int]]]) -> None:
    for queue, messages in enumerate(queues):
        for offset, (body, _) in enumerate(messages):
            if body not in ledger.sent:
                raise AssertionError(f"queue {queue} offset {offset}: {body[:40]!r} was never sent")


def _short(message: tuple[bytes, int]) -> str:
    body, physical_offset = message
    return f"{body[:40]!r} ({len(body)} bytes) at physical offset {physical_offset}"
