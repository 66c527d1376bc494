"""A pair that is killed: SYNC_MASTER with inSyncReplicas=2, so with SEND_OK the slave has it too.

Each round sends with several senders, kills one of the two processes in the middle (SIGKILL), and
compares the slave's commit log with what was acknowledged: the record is there, at its physical
offset. Then the killed one is started again, and the two go on. At the end everything that was
acknowledged in any round is compared once more, on both, and read from the master's queues.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple

from pocketmq import Message, Producer
from pocketmq.client.errors import RemotingError
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.types import SendStatus
from tests.interop.harness.official import Server
from tests.interop.harness.reading import read_queue
from tests.interop.harness.replicas import MIB, Group, wait_connected, wait_copied

TOPIC = "Kills"
SENDERS = 8


class Acknowledged(NamedTuple):
    """A message that was answered with SEND_OK."""

    physical_offset: int
    queue_id: int
    queue_offset: int
    body: bytes


class Kills:
    """The rounds of one pair of makes."""

    def __init__(self, group: Group, master: str, slave: str, seed: int) -> None:
        self.group = group
        self.acknowledged: list[Acknowledged] = []
        self.unconfirmed = 0
        self.faults: list[str] = []
        self.back: list[float] = []  # seconds from each start to the first SEND_OK
        self._random = random.Random(seed)
        self._number = 0
        group.start(master, 0, brokerRole="SYNC_MASTER", inSyncReplicas=2, slaveTimeout=500)
        group.start(slave, 1)
        wait_connected(group)

    def round(self, seconds: float) -> None:
        """Send, kill, compare, start again."""
        victim = self._random.choice((0, 1))
        kill_after = self._random.uniform(0.2, 0.8) * seconds
        before = len(self.acknowledged)
        asyncio.run(self._send(seconds, victim, kill_after))
        self._compare(self.acknowledged[before:], self.group.slave)
        began = time.monotonic()
        self.group.restart(victim)
        wait_connected(self.group)
        self.back.append(time.monotonic() - began)

    async def _send(self, seconds: float, victim: int, kill_after: float) -> None:
        end = time.monotonic() + seconds
        async with Producer(
            "kills", namesrv=self.group.namesrv.address, timeout=2.0, retries=0, compression=None
        ) as producer:
            senders = [self._sender(producer, end) for _ in range(SENDERS)]
            await asyncio.gather(self._kill(victim, kill_after), *senders)

    async def _kill(self, victim: int, after: float) -> None:
        await asyncio.sleep(after)
        await asyncio.to_thread(self.group.members[victim].process.kill)

    async def _sender(self, producer: Producer, end: float) -> None:
        while time.monotonic() < end:
            self._number += 1
            body = b"%09d" % self._number + self._random.randbytes(self._random.choice((10, 3000)))
            try:
                result = await producer.send(Message(TOPIC, body))
            except RemotingError:
                await asyncio.sleep(0.05)
                continue
            if result.status is SendStatus.SEND_OK:
                place = int(result.offset_msg_id[-16:], 16)
                self.acknowledged.append(
                    Acknowledged(place, result.queue.queue_id, result.queue_offset, body)
                )
            else:
                self.unconfirmed += 1

    def check_all(self) -> None:
        """Compare everything that was acknowledged, in both logs and as a consumer reads it."""
        wait_copied(self.group)
        for server in (self.group.master, self.group.slave):
            self._compare(self.acknowledged, server)
        read = {
            (queue_id, record.queue_offset, record.physical_offset): bytes(record.body)
            for queue_id in {message.queue_id for message in self.acknowledged}
            for record in read_queue(self.group.master.address, TOPIC, queue_id)
        }
        for place, queue_id, queue_offset, body in self.acknowledged:
            if read.get((queue_id, queue_offset, place)) != body:
                self.faults.append(f"not read at {queue_offset} of queue {queue_id}")

    def _compare(self, acknowledged: list[Acknowledged], server: Server) -> None:
        files = LogFiles(server)
        for message in acknowledged:
            why = files.missing(message)
            if why:
                self.faults.append(f"acknowledged at {message.physical_offset}: {why}")


class LogFiles:
    """The commit log of a server, each file of which is read once."""

    def __init__(self, server: Server) -> None:
        assert server.store is not None
        self._directory = server.store / "commitlog"
        self._files: dict[int, bytes] = {}

    def missing(self, message: Acknowledged) -> str:
        """Return why a message is not in the log; the empty text if it is."""
        base = message.physical_offset - message.physical_offset % MIB
        try:
            if base not in self._files:
                self._files[base] = (self._directory / f"{base:020d}").read_bytes()
            record = decode(self._files[base], message.physical_offset - base)
        except (OSError, RecordError) as error:
            return str(error)
        if record.physical_offset != message.physical_offset:
            return f"the record there says that it is at {record.physical_offset}"
        return "" if bytes(record.body) == message.body else "another body"
