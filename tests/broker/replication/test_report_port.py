"""How often a slave's reports are read."""

from __future__ import annotations

import asyncio

from pocketmq.broker.replication.log_sender import LogSender
from pocketmq.broker.replication.report_port import MOST_READS, PAUSE_SECONDS, ReportProtocol
from tests.client.waiting import until


class Reading(asyncio.Transport):
    """Counts pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = 0
        self.reading = True

    def pause_reading(self) -> None:
        self.pauses += 1
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Slave(ReportProtocol):
    def __init__(self) -> None:
        super().__init__(LogSender(lambda: None))
        self._transport = self.wire = Reading()
        self.seen = 0

    def received(self, data: bytes) -> None:
        self.seen += len(data)

    def send(self, size: int = 8) -> None:
        self.get_buffer(-1)
        self.buffer_updated(size)


async def test_reports_for_nothing_are_read_less_often() -> None:
    slave = Slave()
    for _ in range(MOST_READS):
        assert slave.wire.reading
        slave.send()
    assert not slave.wire.reading
    assert slave.seen == 8 * MOST_READS  # none is lost
    read = 0
    for _ in range(3):
        await until(lambda: slave.wire.reading)
        while slave.wire.reading:
            slave.send()
            read += 1
    assert read < 10
    slave.connection_lost(None)


async def test_a_slave_may_report_each_frame() -> None:
    slave = Slave()
    for _ in range(10 * MOST_READS):
        slave.may_report(100)
        slave.send()
    for _ in range(10):
        slave.may_report(32 * 1024 * MOST_READS)
        for _ in range(MOST_READS - 1):
            slave.send()
    assert slave.wire.pauses == 0


async def test_a_full_buffer_is_followed_by_a_pause() -> None:
    slave = Slave()
    slave.send(len(slave.get_buffer(-1)))
    assert not slave.wire.reading
    assert PAUSE_SECONDS < 0.1
    await until(lambda: slave.wire.reading)
