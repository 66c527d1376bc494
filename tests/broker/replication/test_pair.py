"""A master and its slave over real connections: what is copied, answered, refused and said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from pocketmq import Message, Producer
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerRole
from pocketmq.broker.controller.ha_frames import Handshake, encode_handshake
from pocketmq.broker.replication.metadata_sync import MetadataSync
from pocketmq.broker.replication.report_port import MOST_FROM_ADDRESS, too_many
from pocketmq.client.errors import SendError
from pocketmq.message.record import iter_records
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.pop import SetMessageRequestModeRequestBody
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import FlushSlaveTimeout, RemotingError
from pocketmq.remoting.headers import (
    EndTransactionRequestHeader,
    PullMessageResponseHeader,
    ResetOffsetRequestHeader,
)
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.store.results import PutStatus
from pocketmq.store.writer import TOO_FEW
from pocketmq.types import SendStatus
from tests.broker.conftest import SUBSCRIPTION, SUSPEND, Client
from tests.broker.replication.pair import FILE, Pair, classic, client_of, reporter, running
from tests.client.waiting import until
from tests.monitoring.pages import scrape
from tests.store.conftest import put


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(tmp_path) as pair:
        yield pair


async def test_an_acknowledged_message_is_on_both(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2)
    await pair.start(1)
    await pair.connected()
    async with Producer("PG", namesrv=pair.namesrv) as producer:
        for number in range(20):
            result = await producer.send(Message("T", b"%d" % number))
            assert result.status is SendStatus.SEND_OK
            place = int(result.offset_msg_id[-16:], 16)
            assert pair.slave.store.commit_log.end > place
        batch = await producer.send_batch([Message("T", b"b%d" % n) for n in range(30)])
        assert {result.status for result in batch} == {SendStatus.SEND_OK}
    await pair.copied()
    for queue_id, queue in pair.master.store.queues["T"].items():
        copied = pair.slave.store.queues["T"][queue_id]
        assert copied.max_offset == queue.max_offset


async def test_without_the_slave_a_send_is_stored_but_not_confirmed(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2, slave_timeout=100)
    async with Producer("PG", namesrv=pair.namesrv) as producer:
        result = await producer.send(Message("T", b"stored"))
    assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    async with Producer("PG", namesrv=pair.namesrv, require_send_ok=True, retries=0) as producer:
        with pytest.raises(SendError) as failed:
            await producer.send(Message("T", b"stored too"))
    assert isinstance(failed.value.tries[-1].error, FlushSlaveTimeout)
    assert sum(queue.max_offset for queue in pair.master.store.queues["T"].values()) == 2


async def test_one_copy_is_enough_by_default(pair: Pair) -> None:
    await pair.start(0)
    async with client_of(pair.master) as client:
        assert (await client.send("T")).code == 0


async def test_every_kind_of_put_waits_for_the_slave(pair: Pair) -> None:
    """A prepared transaction and its commit, and sends that do not wait (WAIT=false)."""
    await pair.start(0, in_sync_replicas=2, slave_timeout=50)
    async with client_of(pair.master) as client:
        assert (await client.send("T")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        half = await client.send(
            "T", sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "u"}
        )
        assert half.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        header = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=int(half.ext_fields["queueOffset"]),
            commit_log_offset=int(half.ext_fields["msgId"][-16:], 16),
            commit_or_rollback=8,
            msg_id="",
        )
        ended = await client.request(RequestCode.END_TRANSACTION, header)
        assert ended.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await client.send("T", properties={"WAIT": "false"})).code == 0


async def test_too_few_in_sync_replicas(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2, enable_slave_acting_master=True, slave_timeout=100)
    async with client_of(pair.master) as client:
        refused = await client.send("T")
        assert (refused.code, refused.remark) == (1, "in-sync replicas not enough")
        # For the lines of what puts again later, such as delayed messages.
        assert put(pair.master.store).remark == TOO_FEW
        assert (await client.send("T", properties={"WAIT": "false"})).code == 0
        await pair.start(1)
        await pair.connected()
        assert (await client.send("T")).code == 0
        await pair.stop(1)
        await until(lambda: bool(pair.master.store.refusal))
        assert (await client.send("T")).code == 1


async def test_replicas_that_are_away_do_not_count_with_auto_in_sync(pair: Pair) -> None:
    await pair.start(
        0, in_sync_replicas=2, enable_slave_acting_master=True, enable_auto_in_sync_replicas=True
    )
    async with client_of(pair.master) as client:
        assert (await client.send("T")).code == 0


async def test_what_a_slave_refuses(pair: Pair) -> None:
    await pair.start(1, slave_read_enable=False)
    async with client_of(pair.slave) as client:
        for code in (
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        ):
            answer = await client.send("T", code=code)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "REJECTREQUEST" in (answer.remark or "")
        assert (await client.pull("T")).code == ResponseCode.SYSTEM_BUSY
        end = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id="",
        )
        ended = await client.request(RequestCode.END_TRANSACTION, end)
        assert ended.code == ResponseCode.SLAVE_NOT_AVAILABLE
        reset = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True)
        answer = await client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


async def test_reading_from_a_slave(pair: Pair) -> None:
    """While there is a master, readers that keep up are sent there; without one they stay."""
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        await client.send("T", b"one")
    await pair.copied()
    metadata = classic(pair.slave).metadata
    assert metadata is not None
    await metadata.copy_all()
    async with client_of(pair.slave) as client:
        found = await client.pull("T", 0)
        assert found.code == 0
        assert [bytes(record.body) for record in iter_records(found.body)] == [b"one"]
        assert PullMessageResponseHeader.from_ext(found.ext_fields).suggest_which_broker_id == 0
        flags = SUBSCRIPTION | SUSPEND
        nothing = await client.pull("T", 1, sys_flag=flags)
        assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        ahead = await client.pull("T", 100)
        assert ahead.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert PullMessageResponseHeader.from_ext(ahead.ext_fields).next_begin_offset == 100
        await pair.stop(0)
        await until(lambda: pair.slave.components.replication.lacks_master)
        held = await client.pull("T", 1, sys_flag=flags, suspend_timeout_millis=50)
        assert held.code == ResponseCode.PULL_NOT_FOUND
        assert PullMessageResponseHeader.from_ext(held.ext_fields).suggest_which_broker_id == 1


PAGES = {"split_metadata_size": 3}


@pytest.mark.parametrize("master_has", [{}, {"enable_split_metadata": False}, PAGES], ids=str)
async def test_the_tables_of_the_master_are_copied(
    pair: Pair, master_has: Mapping[str, Any]
) -> None:
    await pair.start(0, **master_has)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        await client.send("Kept", b"x")
        await client.send("Deleted", b"x")
    master, slave = pair.master.tables, pair.slave.tables
    master.groups.update([SubscriptionGroupConfig(group_name="G", retry_max_times=3)])
    master.groups.forbid_reading("G", "Kept", forbidden=True)
    master.offsets.commit("G", "Kept", 0, 1)
    metadata = classic(pair.slave).metadata
    assert metadata is not None
    await pair.copied()
    await metadata.copy_all()
    assert slave.topics.table["Kept"] == master.topics.table["Kept"]
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.table["G"].retry_max_times == 3
    assert not slave.groups.may_read("G", "Kept")
    assert slave.offsets.query("G", "Kept", 0) == 1
    # Deleted at the master, with its messages.
    master.topics.delete("Deleted", pair.master.store.commit_log.end)
    pair.master.store.delete_topic("Deleted")
    master.groups.delete("G")
    await metadata.copy_all()
    assert "Deleted" not in slave.topics.table
    assert "Deleted" not in pair.slave.store.queues
    assert "G" not in slave.groups.table
    # What it holds is the same after a restart.
    await pair.stop(1)
    await pair.start(1)
    assert "Deleted" not in pair.slave.tables.topics.table
    assert pair.slave.tables.topics.table["Kept"] == master.topics.table["Kept"]


async def metadata_of(slave: Broker) -> MetadataSync:
    """What copies the tables, once it has."""
    metadata = classic(slave).metadata
    assert metadata is not None
    await until(lambda: metadata.rounds)
    return metadata


async def test_a_topic_outlives_a_master_that_is_lost_right_after_its_first_message(
    pair: Pair,
) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    slave = pair.slave.tables.topics
    metadata = await metadata_of(pair.slave)
    async with client_of(pair.master) as client:
        for number in range(5):  # all tables may just be copied, the new topic's too
            topic = f"T{number}"
            assert (await client.send(topic, b"young")).code == 0
            await until(lambda topic=topic: topic in slave.table)  # type: ignore[misc]
            if metadata.topic_rounds:
                break
    assert metadata.topic_rounds
    await pair.copied()
    await pair.stop(0)
    await until(lambda: pair.slave.components.replication.lacks_master)
    async with client_of(pair.slave) as client:
        found = await client.pull(topic, 0)
    assert [bytes(record.body) for record in iter_records(found.body)] == [b"young"]


async def test_queues_that_a_topic_was_given_are_asked_for_like_a_topic(pair: Pair) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    slave = pair.slave.tables.topics
    metadata = await metadata_of(pair.slave)
    async with client_of(pair.master) as client:
        for queues in range(1, 6):
            more = TopicConfig(topic_name="T", read_queue_nums=queues, write_queue_nums=queues)
            pair.master.tables.topics.update([more])
            before = metadata.topic_rounds
            assert (await client.send("T", queue_id=queues - 1)).code == 0
            await until(
                lambda queues=queues: (  # type: ignore[misc]
                    (copied := slave.get("T")) is not None and copied.read_queue_nums == queues
                )
            )
            if queues > 1 and metadata.topic_rounds > before:
                break
    assert metadata.topic_rounds > before


async def test_topics_that_nobody_has_are_asked_for_once_and_not_often(pair: Pair) -> None:
    """A slave that copies an old log meets many that were deleted."""
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    loop = asyncio.get_running_loop()
    master, slave = pair.master.store, pair.slave
    metadata = await metadata_of(slave)
    begin, rounds = loop.time(), metadata.topic_rounds + metadata.rounds
    for number in range(50):
        assert put(master, f"Gone{number}").status is PutStatus.PUT_OK
        await pair.copied()
    await until(lambda: not metadata.lacking)
    assert metadata.topic_rounds + metadata.rounds > rounds
    assert metadata.topic_rounds <= 1 + (loop.time() - begin)
    assert "Gone0" not in slave.tables.topics.table
    assert all(slave.store.max_offset(f"Gone{number}", 0) == 1 for number in range(50))
    put(master, "Gone0")
    await pair.copied()
    assert not metadata.lacking
    # Made anew, it is looked for again: its first message has the queue offset 0.
    rounds = metadata.topic_rounds
    for _ in range(5):  # all tables may just be copied
        master.delete_topic("Gone0")
        put(master, "Gone0")
        await pair.copied()
        await until(lambda: not metadata.lacking)
        if metadata.topic_rounds > rounds:
            break
    assert metadata.topic_rounds > rounds


async def test_messages_of_a_topic_that_the_master_does_not_name_stay(pair: Pair) -> None:
    """An official broker that has just become the master may have a new topic's messages only."""
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        assert (await client.send("T", b"x")).code == 0
    metadata = classic(pair.slave).metadata
    assert metadata is not None
    await pair.copied()
    await metadata.copy_all()
    pair.master.tables.topics.delete("T", pair.master.store.commit_log.end)
    pair.master.tables.topics.deleted = cast(Any, None)  # as an official broker answers
    await metadata.copy_all()
    assert "T" in pair.slave.tables.topics.table
    assert pair.slave.store.max_offset("T", 0) == 1
    pair.master.store.delete_topic("T")
    await metadata.copy_all()
    assert "T" not in pair.slave.tables.topics.table
    assert "T" not in pair.slave.store.queues


async def test_a_slave_that_becomes_the_master_has_nothing_left_of_deleted_topics(
    pair: Pair,
) -> None:
    """Their queues go one by one; a new message must not come after those of the old topic."""
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    for queue_id in range(50):
        assert put(pair.master.store, "T", queue_id).ok
    await pair.copied()
    metadata, queues = await metadata_of(pair.slave), pair.slave.store.queues
    await metadata.copy_all()
    pair.master.tables.topics.create_if_absent("T", 50)
    pair.master.tables.topics.delete("T", pair.master.store.commit_log.end)
    copying = asyncio.ensure_future(metadata.copy_all())
    for _ in range(10_000):
        if len(queues["T"]) < 50:
            break
        await asyncio.sleep(0)
    assert 1 < len(queues["T"]) < 50
    metadata.use("")
    assert "T" not in queues
    await copying


async def test_a_master_that_has_lost_its_disk_takes_nothing_from_its_slave(
    pair: Pair,
) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    pair.master.tables.groups.update([SubscriptionGroupConfig(group_name="G")])
    async with client_of(pair.master) as client:
        assert (await client.send("T", b"x")).code == 0
    pair.master.tables.offsets.commit("G", "T", 0, 1)
    await pair.copied()
    metadata, slave = await metadata_of(pair.slave), pair.slave
    assert await metadata.copy_all()
    await pair.stop(0)
    shutil.rmtree(pair.directory / "0")
    await pair.start(0)
    await until(lambda: metadata.master == pair.master.address)
    assert not await metadata.copy_all()
    assert slave.tables.groups.table["G"]
    assert slave.tables.offsets.query("G", "T", 0) == 1
    # Its new log may become longer than the lost one.
    while pair.master.store.commit_log.end <= slave.store.commit_log.end:
        assert put(pair.master.store, "New").ok
        pair.master.store.settle()
    await metadata.copy_all()
    assert "T" in slave.tables.topics.table
    assert slave.store.max_offset("T", 0) == 1


async def test_a_slave_is_not_taken_for_the_master(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    await pair.start(2)
    metadata = await metadata_of(pair.brokers[2])
    metadata.use(pair.slave.address)
    assert not await metadata.copy_all()
    assert "it is a slave" in caplog.text


async def test_consumer_offsets_wait_for_the_log_by_which_they_go(pair: Pair) -> None:
    """A group that pops is behind messages whose checkpoint is in the log: a slave without that
    would not deliver them as a master."""
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    slave = classic(pair.slave)
    client, metadata = slave.client, slave.metadata
    assert client is not None
    assert metadata is not None
    master, copy = pair.master.tables.offsets, pair.slave.tables.offsets
    await client.stop()
    async with client_of(pair.master) as sender:
        await sender.send("T", b"x")
    master.commit("G", "T", 0, 1)
    await metadata.copy_all()
    assert copy.query("G", "T", 0) == -1
    master.commit("G", "T", 0, 2)
    await metadata.copy_all()
    assert copy.query("G", "T", 0) == -1
    client.start()
    await until(lambda: copy.query("G", "T", 0) == 2)


async def test_the_progress_of_delay_levels_waits_for_the_log(pair: Pair) -> None:
    """Where the copy that was delivered is missing, the message has not been delivered."""
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    slave = classic(pair.slave)
    client, metadata = slave.client, slave.metadata
    assert client is not None
    assert metadata is not None
    await client.stop()
    async with client_of(pair.master) as sender, client_of(pair.slave) as copy:
        await sender.send("T", properties={"DELAY": "1"})
        await until(lambda: pair.master.store.max_offset("T", 0) == 1)
        await metadata.copy_all()
        answer = await copy.request(RequestCode.GET_ALL_DELAY_OFFSET)
        assert b"{1:1}" not in answer.body
        client.start()
        while b"{1:1}" not in answer.body:
            await metadata.copy_all()
            answer = await copy.request(RequestCode.GET_ALL_DELAY_OFFSET)
    assert pair.slave.store.max_offset("T", 0) == 1


async def test_the_progress_of_delay_levels_and_the_request_modes_are_copied(pair: Pair) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    mode = SetMessageRequestModeRequestBody(
        topic="T", consumer_group="G", mode="POP", pop_share_queue_num=2
    )
    tables = (RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    async with client_of(pair.master) as client, client_of(pair.slave) as copy:
        await client.send("T", properties={"DELAY": "1"})
        await until(lambda: pair.master.store.max_offset("T", 0) == 1)
        assert (
            await client.request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode.encode())
        ).code == 0
        metadata = classic(pair.slave).metadata
        assert metadata is not None
        await pair.copied()
        await metadata.copy_all()
        for code in tables:
            assert (await copy.request(code)).body == (await client.request(code)).body
        answer = await copy.request(RequestCode.GET_ALL_DELAY_OFFSET)
        assert b"{1:1}" in answer.body


async def test_what_waits_when_an_empty_slave_comes_is_confirmed_if_the_slave_gets_it(
    pair: Pair,
) -> None:
    master = await pair.start(0, in_sync_replicas=2, slave_timeout=60_000)
    log = master.store.commit_log
    large = b"x" * 100_000  # two in a file
    async with client_of(master) as client, reporter(master) as slave:
        before, between, after = [asyncio.ensure_future(client.send("T", large)) for _ in range(3)]
        await until(lambda: len(classic(master).service) == 3)
        await slave.report(0)
        await slave.report(log.end)
        assert (await after).code == ResponseCode.SUCCESS
        assert not before.done()
        assert not between.done()


async def test_what_a_slave_that_came_empty_lacks_is_not_confirmed_when_it_connects_again(
    pair: Pair,
) -> None:
    """Nobody tells the master then that it is the same one."""
    master = await pair.start(0, in_sync_replicas=2, slave_timeout=60_000)
    log = master.store.commit_log
    large = b"x" * 100_000  # two in a file
    async with client_of(master) as client:
        before, between, after = [asyncio.ensure_future(client.send("T", large)) for _ in range(3)]
        await until(lambda: len(classic(master).service) == 3)
        async with reporter(master) as slave:
            await slave.report(0)
            await slave.report(log.end)
        assert (await after).code == ResponseCode.SUCCESS
        last = asyncio.ensure_future(client.send("T", b"last"))
        await until(lambda: len(classic(master).service) == 3)
        async with reporter(master) as slave:
            await slave.report(log.end)
            assert (await last).code == ResponseCode.SUCCESS
        assert not before.done()
        assert not between.done()


async def test_an_empty_slave_gets_the_newest_file(pair: Pair) -> None:
    """Of several files, none of the older ones; the offsets are the master's."""
    await pair.start(0)
    large = b"x" * 100_000  # two in a file
    async with client_of(pair.master) as client:
        for _ in range(7):
            assert (await client.send("T", large)).code == 0
    end = pair.master.store.commit_log.end
    assert (newest := end - end % FILE) == 3 * FILE
    await pair.start(1)
    await pair.connected()
    await pair.copied()
    assert pair.slave.store.commit_log.min_offset == newest
    async with client_of(pair.master) as client, client_of(pair.slave) as copy:
        assert (await client.send("T", b"last")).code == 0
        await pair.copied()
        metadata = classic(pair.slave).metadata
        assert metadata is not None
        await metadata.copy_all()
        original = [(r.physical_offset, r.body) for r in await client.pulled("T", 6)]
        assert [(r.physical_offset, r.body) for r in await copy.pulled("T", 6)] == original
        assert [len(body) for _, body in original] == [len(large), len(b"last")]
        expired = PullMessageResponseHeader.from_ext((await copy.pull("T", 0)).ext_fields)
        assert (expired.min_offset, expired.max_offset) == (6, 8)
    # It goes on with its file after a restart.
    await pair.stop(1)
    await pair.start(1)
    await pair.connected()
    assert pair.slave.store.commit_log.min_offset == newest
    assert pair.slave.store.commit_log.end == pair.master.store.commit_log.end


async def test_a_new_slave_knows_where_queues_end_whose_messages_it_lacks(pair: Pair) -> None:
    """As the master, it does not give their offsets again."""
    await pair.start(0)
    async with client_of(pair.master) as client:
        for body in (b"1", b"2"):
            assert (await client.send("Old", body, queue_id=1)).code == 0
        for _ in range(3):
            assert (await client.send("T", b"x" * 100_000)).code == 0
    await pair.start(1)
    await pair.connected()
    await pair.copied()
    assert pair.slave.store.commit_log.min_offset > 0
    await until(lambda: pair.slave.store.max_offset("Old", 1) == 2)
    await pair.stop(0)
    root = pair.slave.config.store_path_root_dir
    await pair.stop(1)
    (Path(root) / "abort").touch()  # as after a kill
    await pair.start(0, store_path_root_dir=root)
    async with client_of(pair.master) as client:
        answer = await client.send("Old", b"3", queue_id=1)
        assert answer.ext_fields["queueOffset"] == "2"
        assert [record.body for record in await client.pulled("Old", 2, queue_id=1)] == [b"3"]


async def test_ends_of_queues_are_requested_again_after_a_failure(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is asked whether it is still that, and does not answer that once."""
    await pair.start(0)
    async with client_of(pair.master) as client:
        assert (await client.send("Old", b"1", queue_id=1)).code == 0
        for _ in range(3):
            assert (await client.send("T", b"x" * 100_000)).code == 0
    request, before, failed = ConnectionPool.request, 0, 0

    async def failing(
        pool: ConnectionPool, address: str, code: int, *more: Any, **named: Any
    ) -> Any:
        nonlocal before, failed
        asked_for_ends = before == RequestCode.GET_TOPIC_STATS_INFO
        before = code
        if code == RequestCode.GET_BROKER_HA_STATUS and asked_for_ends and not failed:
            failed += 1
            raise RemotingError(ResponseCode.SYSTEM_BUSY)
        return await request(pool, address, code, *more, **named)

    monkeypatch.setattr(ConnectionPool, "request", failing)
    await pair.start(1)
    await pair.connected()
    await until(lambda: pair.slave.store.max_offset("Old", 1) == 1)
    assert failed


async def test_ha_status_of_both(pair: Pair) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        await client.send("T", b"x" * 1000)
        await pair.copied()
        await until(lambda: pair.master.components.replication.figures()["haLargestLag"] == 0)
        answer = await client.request(RequestCode.GET_BROKER_HA_STATUS)
    status = HARuntimeInfo.decode(answer.body)
    assert status.master
    assert status.in_sync_slave_nums == 1
    assert [slave.diff for slave in status.ha_connection_info] == [0]
    async with client_of(pair.slave) as client:
        status = HARuntimeInfo.decode((await client.request(RequestCode.GET_BROKER_HA_STATUS)).body)
    assert not status.master
    assert status.ha_client_runtime_info.max_offset == pair.master.store.commit_log.end


async def test_metrics_of_both(pair: Pair) -> None:
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    on = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
    await pair.start(0, in_sync_replicas=2, **on)
    await pair.start(1, **on)
    await pair.connected()

    async def shown(broker: Broker) -> dict[str, float]:
        series = await scrape(broker.monitoring.metrics_port)
        prefix = "pocketmq_replication_"
        return {
            each.name.removeprefix(prefix): each.value
            for each in series.samples
            if each.name.startswith(prefix)
        }

    async with client_of(pair.master) as client:
        await client.send("T", b"x" * 1000)
        await pair.copied()
        await until(lambda: pair.master.components.replication.figures()["haLargestLag"] == 0)
        info = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert json.loads(info.body)["table"]["haLargestLag"] == "0"
    whole = {"slaves": 1, "slaves_in_sync": 1, "lag_bytes": 0, "sends_waiting": 0}
    whole |= {"copies": 2, "copies_needed": 2}
    assert await shown(pair.master) == whole
    slave = {"master_connected": 1, "unchecked_bytes": 0, "behind_bytes": 0}
    assert await shown(pair.slave) == slave
    await pair.stop(1)
    await pair.connected(0)
    assert await shown(pair.master) == whole | {"slaves": 0, "slaves_in_sync": 0, "copies": 1}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "reports the physical offset"),
        (b"\xff" * 8, "reports the physical offset -1"),
        (b"\x16\x03\x01\x02\x00" * 4, "reports the physical offset"),
        (encode_handshake(Handshake(2)), "enableControllerMode must be the same"),
    ],
    ids=["http", "negative", "tls", "member of a group"],
)
async def test_a_stranger_at_the_ha_port(
    said: bytes, told: str, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(0)
    port = classic(pair.master).service.server.port
    caplog.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    [record] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "HA port closes the connection of 127.0.0.1" in record.getMessage()
    assert told in record.getMessage()


async def test_a_slave_that_is_ahead_is_refused(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        await client.send("T", b"x" * 1000)
    await pair.copied()
    await pair.stop(1)
    await pair.stop(0)
    pair.directory = pair.directory / "other"  # a master with an empty log
    await pair.start(0)
    pair.directory = pair.directory.parent
    before = pair.directory / "1" / "commitlog" / f"{0:020d}"
    content = before.read_bytes()
    await pair.start(1)
    await until(lambda: "but this log ends at 0" in caplog.text)
    assert "empty its store (keep a copy)" in caplog.text
    await until(lambda: "closed the connection before it sent anything" in caplog.text)
    assert before.read_bytes() == content


async def test_another_file_size_is_told(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    await pair.start(0)
    async with client_of(pair.master) as client:
        for _ in range(4):
            await client.send("T", b"x" * 100_000)
    assert pair.master.store.commit_log.end > 256 * 1024
    await pair.start(1, mapped_file_size_commit_log=192 * 1024)
    await until(lambda: "mappedFileSizeCommitLog to the master's value" in caplog.text)
    assert pair.slave.store.commit_log.end == 0


async def test_a_slave_follows_through_restarts_of_both(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=2)
    await pair.start(1)
    await pair.connected()
    async with Producer("PG", namesrv=pair.namesrv) as producer:
        await producer.send(Message("T", b"before"))
        await pair.stop(1)
        await pair.start(1)
        await pair.connected()
        await producer.send(Message("T", b"between"))
        await pair.copied()
    end = pair.master.store.commit_log.end
    assert pair.slave.store.commit_log.end == end
    assert pair.slave.config.broker_role is BrokerRole.SLAVE


@pytest.mark.parametrize("copied_between", [True, False])
async def test_a_topic_that_was_created_again_is_another_one_at_the_slave_too(
    pair: Pair, copied_between: bool
) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    metadata = classic(pair.slave).metadata
    assert metadata is not None
    async with client_of(pair.master) as client:
        for queue_id in (0, 0, 0, 1):
            await client.send("T", b"old", queue_id=queue_id)
        await pair.copied()
        await metadata.copy_all()
        pair.slave.tables.offsets.commit("G", "T", 0, 3)
        deleted = await client.request(
            RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "T"}
        )
        assert deleted.code == 0
        if copied_between:
            await metadata.copy_all()
        await client.send("T", b"new")
    await pair.copied()
    await metadata.copy_all()
    slave, master = pair.slave, pair.master
    assert slave.tables.topics.table["T"] == master.tables.topics.table["T"]
    assert slave.tables.topics.created("T") == master.tables.topics.created("T")
    assert slave.tables.offsets.query("G", "T", 0) == -1
    found = slave.store.get("T", 0, 0, 32)
    assert [bytes(r.body) for buffer in found.buffers for r in iter_records(buffer)] == [b"new"]
    assert slave.store.max_offset("T", 0) == 1
    assert slave.store.max_offset("T", 1) == 0


async def test_a_slave_knows_what_was_deleted_before_it_has_the_messages(pair: Pair) -> None:
    """So as a master it does not take them for those of a topic that it must adopt."""
    await pair.start(0)
    async with client_of(pair.master) as client:
        await client.send("T", b"old")
        deleted = await client.request(
            RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "T"}
        )
        assert deleted.code == 0
    await pair.start(1)
    await pair.connected()
    metadata = classic(pair.slave).metadata
    assert metadata is not None
    await pair.copied()
    await metadata.copy_all()
    slave = pair.slave
    assert slave.tables.topics.deleted == pair.master.tables.topics.deleted
    slave.tables.topics.adopt(slave.store.queues, 0, slave.store.commit_log.end)
    assert slave.tables.topics.get("T") is None


async def test_a_slave_has_the_light_queues_of_its_master(pair: Pair) -> None:
    """Whatever its own switches are, since it may become the master."""
    on = {"enable_lmq": True, "enable_multi_dispatch": True}
    names = [f"%LMQ%{number}" for number in range(3)]
    await pair.start(0, **on)
    await pair.start(1)
    await pair.connected()
    metadata = classic(pair.slave).metadata
    assert metadata is not None

    async def send(client: Client) -> None:
        properties = {"INNER_MULTI_DISPATCH": ",".join(names)}
        assert (await client.send("T", properties=properties)).code == 0

    async with client_of(pair.master) as client:
        for _ in range(2):
            await send(client)
        await pair.copied()
        assert {pair.slave.store.max_offset(name, 0) for name in names} == {2}
        await metadata.copy_all()
        assert metadata.lacking == []
        deleted = await client.request(
            RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": names[0]}
        )
        assert deleted.code == 0
        await metadata.copy_all()
        assert {*names} & {*pair.slave.store.queues} == {*names[1:]}
        await send(client)
    await pair.copied()
    await pair.stop(1)
    await pair.start(1, **on)
    async with client_of(pair.slave) as client:
        for name, count in zip(names, (1, 3, 3), strict=True):
            answer = await client.pull(name, consumer_group="%LMQ%g", sys_flag=SUBSCRIPTION)
            assert answer.code == 0
            found = list(iter_records(answer.body))
            assert len(found) == count
            assert found[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == "0,2,2"


async def test_a_flood_of_reports_is_not_read_faster_than_slaves_report(pair: Pair) -> None:
    await pair.start(0)
    server = classic(pair.master).service.server
    writer = (await asyncio.open_connection("127.0.0.1", server.port))[1]
    writer.write(bytes(64 << 20))
    await pair.connected()
    async with client_of(pair.master) as client:
        assert (await client.send("T", b"m0")).code == 0
    # Most of it still waits in the connection.
    assert writer.transport.get_write_buffer_size() > 32 << 20
    writer.transport.abort()


async def test_one_address_leaves_connections_to_slaves_elsewhere(pair: Pair) -> None:
    await pair.start(0)
    server = classic(pair.master).service.server
    streams = [
        await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(MOST_FROM_ADDRESS + 1)
    ]
    refused, own = streams[-1]
    with contextlib.suppress(ConnectionError):
        assert await refused.read() == b""
    own.close()
    assert len(server.connections) == MOST_FROM_ADDRESS
    assert not too_many([one.host for one in server.connections], "192.0.2.1")
    for _, writer in streams:
        writer.transport.abort()
