"""Members of a group over real connections: roles, copies, cuts, and what clients see of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.address import reserve_port
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerRole
from pocketmq.broker.controller.group_replication import GroupReplication
from pocketmq.broker.controller.ha_frames import Handshake, encode_handshake, encode_report
from pocketmq.message.record import iter_records
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.controller import EpochEntryCache
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import EndTransactionRequestHeader
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.store.epochs import EpochFile, Epochs
from tests.broker.conftest import Client
from tests.broker.replication.pair import client_of
from tests.client.waiting import until

from .group import FILE, NAME, PATIENCE, Group, running


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with running(tmp_path) as group:
        yield group


async def send(broker: Broker, *bodies: bytes, **options: object) -> list[int]:
    """Send to queue 0 of T; the codes of the answers."""
    async with client_of(broker) as client:
        return [(await client.send("T", body, **options)).code for body in bodies]  # type: ignore[arg-type]


def stored(broker: Broker) -> list[bytes]:
    """The bodies in the log, in its order."""
    log = broker.store.commit_log
    log.write()
    return [
        bytes(record.body)
        for file in log.files.mapped
        for record in iter_records(file.view[: log.end - file.base_offset])
    ]


async def read(client: Client, topic: str = "T") -> list[bytes]:
    """Everything that queue 0 shows."""
    answer = await client.pull(topic, 0)
    return [bytes(record.body) for record in iter_records(answer.body)]


async def test_an_acknowledged_message_is_on_every_member(group: Group) -> None:
    await group.start("a")
    await group.start("b")
    await group.start("c")
    await group.in_sync(3)
    bodies = [b"%d" % n for n in range(20)]
    async with client_of(group.master) as client:
        for body in bodies:
            assert (await client.send("T", body)).code == 0
            assert all(
                slave.store.commit_log.end == group.master.store.commit_log.end
                for slave in group.slaves
            )
    await group.copied()
    assert [stored(member) for member in group.members.values()] == [bodies] * 3


async def test_a_member_that_checks_signatures_needs_an_ha_port_by_name(group: Group) -> None:
    """What it copies is not signed, so the port must not be open by default."""
    with pytest.raises(ConfigError, match="needs haListenPort"):
        await group.start("a", authentication_enabled=True)
    with reserve_port("127.0.0.1") as reserved:
        port = reserved.getsockname()[1]
    member = await group.start("b", authentication_enabled=True, ha_listen_port=port)
    assert isinstance(member.components.replication, GroupReplication)
    assert member.components.replication.ha_address == f"127.0.0.1:{port}"


async def test_a_member_has_the_tables_of_its_masters(group: Group) -> None:
    """Topics, consumer groups and their offsets, which the next master needs."""
    a = await group.start("a")
    assert await send(a, b"1") == [0]
    a.tables.groups.update([SubscriptionGroupConfig(group_name="G", retry_max_times=3)])
    a.tables.offsets.commit("G", "T", 0, 1)
    b = await group.start("b")
    await group.in_sync(2)
    await until(lambda: b.tables.offsets.query("G", "T", 0) == 1, PATIENCE)
    await until(lambda: "G" in b.tables.groups.table, PATIENCE)
    assert b.tables.groups.table["G"].retry_max_times == 3
    assert b.tables.topics.table["T"] == a.tables.topics.table["T"]
    await group.stop("a")
    group.elect()
    assert await group.leads("b") is b
    assert b.tables.offsets.query("G", "T", 0) == 1
    # The new master's tables count now.
    b.tables.offsets.commit("G", "T", 0, 2)
    a = await group.start("a")
    await until(lambda: a.tables.offsets.query("G", "T", 0) == 2, PATIENCE)


async def test_the_next_master_goes_on(group: Group) -> None:
    await group.start("a")
    await group.start("b")
    await group.in_sync(2)
    assert await send(group.members["a"], b"1", b"2") == [0, 0]
    await group.stop("a")
    group.elect()
    b = await group.leads("b")
    assert await send(b, b"3") == [0]
    await group.start("a")
    await group.in_sync(2)
    assert await send(b, b"4") == [0]
    await group.copied()
    assert [stored(member) for member in group.members.values()] == [[b"1", b"2", b"3", b"4"]] * 2
    for name in ("a", "b"):
        epochs = EpochFile(group.directory / name / "epochFileCheckpoint").load()
        assert [entry.epoch for entry in epochs] == [1, 2]


async def test_the_roles_change_while_all_run(group: Group) -> None:
    await group.start("a")
    await group.start("b")
    names, bodies = ["b", "a"] * 3, []
    for number, name in enumerate(names):
        await group.in_sync(2)
        group.elect(name)
        leader = await group.leads(name)
        await until(lambda: len(group.slaves) == 1, PATIENCE)
        bodies.append(b"%d" % number)
        assert await send(leader, bodies[-1]) == [0]
    await group.in_sync(2)
    await group.copied()
    assert [stored(member) for member in group.members.values()] == [bodies] * 2
    async with client_of(group.master) as client:
        assert await read(client) == bodies


@pytest.mark.parametrize("change", ["to lead", "to follow"])
async def test_a_role_that_the_disk_does_not_allow_is_taken_later(
    group: Group, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    await group.start("a")
    await group.start("b")
    await group.in_sync(2)
    assert await send(group.members["a"], b"before") == [0]
    await group.copied()
    changing = group.members["b" if change == "to lead" else "a"]
    mark = changing.store.config.copied_file
    mark.unlink(missing_ok=True)
    (mark / "in the way").mkdir(parents=True)
    group.elect("b")
    await until(lambda: "role from the controller cannot be taken" in caplog.text, PATIENCE)
    shutil.rmtree(mark)
    await group.leads("b")
    await until(lambda: len(group.slaves) == 1, PATIENCE)
    await group.in_sync(2)
    assert await send(group.members["b"], b"since") == [0]
    await group.copied()
    assert [stored(member) for member in group.members.values()] == [[b"before", b"since"]] * 2


async def test_what_was_not_copied_is_cut_when_its_master_comes_back(group: Group) -> None:
    """10 and one without acknowledgement, then 10 by the other one (AutoSwitchHATest)."""
    await group.start("a", slave_timeout=1_000)
    await group.start("b")
    await group.in_sync(2)
    first = [b"a%d" % n for n in range(10)]
    assert await send(group.members["a"], *first) == [0] * 10
    await group.copied()
    group.controller.keeps_set = True
    await group.stop("b")
    assert await send(group.members["a"], b"dirty") == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    await group.stop("a")
    group.controller.keeps_set = False
    await group.start("b", wait=False)
    await until(lambda: 2 in group.controller.decides.alive(group.controller.now), PATIENCE)
    group.elect()
    b = await group.leads("b")
    second = [b"b%d" % n for n in range(10)]
    assert await send(b, *second) == [0] * 10
    a = await group.start("a")
    await group.in_sync(2)
    await group.copied()
    assert stored(a) == stored(b) == first + second
    [queue] = a.store.queues["T"].values()
    assert (queue.max_offset, queue.next_offset) == (20, 20)
    async with client_of(a) as client:
        assert await read(client) == first + second


async def test_consumers_see_nothing_that_is_not_confirmed(group: Group) -> None:
    await group.start("a", slave_timeout=50)
    await group.start("b")
    await group.in_sync(2)
    assert await send(group.members["a"], b"seen") == [0]
    group.controller.keeps_set = True
    await group.stop("b")
    assert await send(group.members["a"], b"hidden") == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    async with client_of(group.members["a"]) as client:
        assert await read(client) == [b"seen"]
        group.controller.keeps_set = False
        await group.in_sync(1)
        assert await read(client) == [b"seen", b"hidden"]


async def test_a_member_that_starts_shows_nothing_that_is_not_confirmed(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while there is no master: the next one may not have it."""
    await group.start("a", slave_timeout=50)
    await group.start("b")
    await group.in_sync(2)
    assert await send(group.members["a"], b"seen") == [0]
    await group.copied()
    group.controller.keeps_set = True
    await group.stop("b")
    assert await send(group.members["a"], b"hidden") == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    await group.stop("a")
    a = await group.start("a", wait=False)
    async with client_of(a) as client:
        assert (await client.pull("T", 0)).code == ResponseCode.SYSTEM_BUSY
        await until(lambda: "a restart ended" in caplog.text, PATIENCE)
        assert (await client.pull("T", 0)).code == ResponseCode.SYSTEM_BUSY
        group.controller.keeps_set = False
        await group.start("b", wait=False)
        await until(lambda: 2 in group.controller.decides.alive(group.controller.now), PATIENCE)
        group.elect("b")
        await group.leads("b")
        await group.in_sync(2)
        await group.copied()
        assert await read(client) == [b"seen"]


async def test_with_too_few_members_sends_are_refused_before_they_are_stored(group: Group) -> None:
    await group.start("a", min_in_sync_replicas=2)
    end = group.members["a"].store.commit_log.end
    assert await send(group.members["a"], b"no") == [ResponseCode.SYSTEM_ERROR]
    assert group.members["a"].store.commit_log.end == end
    await group.start("b", min_in_sync_replicas=2)
    await group.in_sync(2)
    await until(lambda: not group.members["a"].store.refusal, PATIENCE)
    assert await send(group.members["a"], b"yes") == [0]


async def test_all_members_are_away_and_only_one_of_the_set_comes_back_as_master(
    group: Group,
) -> None:
    for name in ("a", "b"):
        await group.start(name)
    await group.in_sync(2)
    assert await send(group.master, b"1") == [0]
    await group.stop("b")
    await group.in_sync(1)
    assert await send(group.master, b"2") == [0]
    await group.stop("a")
    group.elect()
    assert group.controller.decides.master == 0
    b = await group.start("b", wait=False)
    await until(lambda: 2 in group.controller.decides.alive(group.controller.now), PATIENCE)
    group.controller.asked.clear()
    await group.controller.until(
        lambda: group.controller.asked.count(RequestCode.CONTROLLER_ELECT_MASTER) > 1
    )
    assert await send(b, b"no") == [ResponseCode.SYSTEM_BUSY]
    await group.start("a")
    await group.leads("a")
    await group.in_sync(2)
    await group.copied()
    assert stored(group.members["a"]) == stored(b) == [b"1", b"2"]


async def test_a_new_member_gets_what_the_first_files_left(group: Group) -> None:
    """The first epoch has expired with its file; the new member's log begins where the master's
    does."""
    large = b"x" * 100_000  # two in a file
    for reign, count in ((1, 3), (2, 4)):
        a = await group.start("a", file_reserved_time=0)
        await group.leads("a")
        assert await send(a, *[large] * count) == [0] * count
        if reign == 1:
            await group.stop("a")
            group.elect()
    assert await a.store.all_flushed()
    a.store.cleanup.order()
    while (begin := a.store.commit_log.min_offset) < 3 * FILE:
        assert await a.store.cleanup.round() > 0
    b = await group.start("b")
    await group.in_sync(2)
    await group.copied()
    assert b.store.commit_log.min_offset == begin
    assert stored(a) == stored(b) == [large]
    [epoch] = EpochFile(group.directory / "b" / "epochFileCheckpoint").load()
    assert epoch.epoch > 1


async def test_without_a_role_nothing_is_taken(group: Group) -> None:
    group.controller.leads = False
    broker = await group.start("a", wait=False)
    await group.controller.until(lambda: len(group.controller.asked) > 2)
    assert broker.config.broker_id == -1
    assert await send(broker, b"no") == [ResponseCode.SYSTEM_BUSY]
    group.controller.leads = True
    await group.leads("a")
    assert await send(broker, b"yes") == [0]


async def test_a_single_store_becomes_a_group(group: Group, tmp_path: Path) -> None:
    """All bytes of before the first controller are of epoch 0, so that they can be copied."""
    single = await group.start_single("a")
    bodies = [b"old%d" % n for n in range(2_000)]
    for at in range(0, len(bodies), 500):
        assert await send(single, *bodies[at : at + 500]) == [0] * 500
    await group.stop("a")
    a = await group.start("a")
    assert await send(a, b"new") == [0]
    await group.start("b")
    await group.in_sync(2)
    await group.copied()
    [b] = group.slaves
    assert stored(a) == stored(b) == [*bodies, b"new"]
    assert b.store.queues["T"][0].max_offset == 2_001
    epochs = EpochFile(tmp_path / "b" / "epochFileCheckpoint").load()
    assert [entry.epoch for entry in epochs] == [0, 1]


async def test_a_store_of_somebody_else_is_not_continued(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    single = await group.start_single("b")
    assert await send(single, b"foreign") == [0]
    await group.stop("b")
    await group.start("a")
    assert await send(group.members["a"], b"ours") == [0]
    b = await group.start("b")
    await until(lambda: "none from a member of this group" in caplog.text, PATIENCE)
    assert stored(b) == [b"foreign"]


@pytest.mark.parametrize("what", ["the identity", "an older epoch", "this epoch"])
async def test_a_copy_of_the_master_does_not_become_a_second_one(
    what: str, group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await group.start("a")
    assert await send(group.members["a"], b"m") == [0]
    await group.stop("a")
    if what == "the identity":
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / "a" / "brokerIdentity", tmp_path / "copy")
    elif what == "an older epoch":
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
    else:
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        copy = EpochFile(tmp_path / "copy" / "epochFileCheckpoint")
        copy.save(copy.load().begun(2, 1_000))
    group.controller.decides.master = 0
    a = await group.start("a")
    copy_of_a = await group.start("copy", wait=False)
    line = f"the broker at {a.address} has this broker's id 1 in the group {NAME}"
    await until(lambda: line in caplog.text, PATIENCE)
    assert "a restart ended" not in caplog.text
    assert group.controller.addresses == {1: a.address}
    assert await send(copy_of_a, b"no") == [ResponseCode.SYSTEM_BUSY]
    assert await send(a, b"yes") == [0]


async def test_two_slaves_with_one_id_are_told_apart_in_the_log(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    master = await group.start("a")
    host, _, port = master.components.replication.ha_address.rpartition(":")
    said = "two slaves with the id 7 connect in turn"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            assert said not in caplog.text
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(encode_handshake(Handshake(7)))
            async with asyncio.timeout(PATIENCE):
                await reader.readexactly(20)  # the answer
    await until(lambda: said in caplog.text, PATIENCE)


async def test_what_a_slave_says_may_come_in_pieces(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    master = await group.start("a")
    host, _, port = master.components.replication.ha_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for byte in encode_handshake(Handshake(7)):
        writer.write(bytes([byte]))
        for _ in range(3):  # the master reads it
            await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await reader.readexactly(20)  # the answer
    writer.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_master_whose_identity_another_broker_has_taken_says_so(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """An official broker with a copied identity registers without a look at the other one."""
    a = await group.start("a")
    group.controller.addresses[1] = "copy:1"
    await until(lambda: "the broker at copy:1 has this broker's id 1" in caplog.text, PATIENCE)
    group.elect()  # the copy
    await until(lambda: "role from the controller is not accepted" in caplog.text, PATIENCE)
    assert a.components.group is not None
    assert a.components.group.master_epoch == 1


# --- what operators ask -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "closes the connection"),
        (encode_handshake(Handshake(1)), "its store was copied from here"),
        (encode_handshake(Handshake(9)) + encode_report(10**6), "not from this group"),
        (bytes(8), "enableControllerMode must be the same"),
    ],
    ids=["http", "copied store", "ahead", "classic slave"],
)
async def test_a_stranger_at_the_ha_port(
    said: bytes, told: str, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    master = await group.start("a")
    await send(master, b"m0")
    end = master.store.commit_log.end
    caplog.clear()
    host, _, port = master.components.replication.ha_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
    writer.close()
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert told in record.getMessage()
    assert not record.exc_info
    assert master.store.commit_log.end == end
    assert await send(master, b"m1") == [0]


async def test_epochs_and_ha_status_are_told(group: Group) -> None:
    await group.start("a")
    await group.start("b")
    await group.in_sync(2)
    assert await send(group.members["a"], b"1") == [0]
    await group.copied()
    async with client_of(group.members["a"]) as client:
        answer = await client.request(RequestCode.GET_BROKER_EPOCH_CACHE)
        told = EpochEntryCache.decode(answer.body)
        assert (told.broker_id, told.broker_name) == (0, "group")
        assert [(entry.epoch, entry.start_offset) for entry in told.epoch_list] == [(1, 0)]
        answer = await client.request(RequestCode.GET_BROKER_HA_STATUS)
        status = HARuntimeInfo.decode(answer.body)
        assert (status.master, status.in_sync_slave_nums) == (True, 1)
        [connection] = status.ha_connection_info
        assert (connection.diff, connection.in_sync) == (0, True)
    async with client_of(group.members["b"]) as client:
        answer = await client.request(RequestCode.GET_BROKER_HA_STATUS)
        status = HARuntimeInfo.decode(answer.body)
        assert status.master is False
        assert status.ha_client_runtime_info is not None
        assert status.ha_client_runtime_info.max_offset == told.max_offset


async def test_the_routes_follow_the_master(group: Group) -> None:
    await group.start("a")
    await group.start("b")
    await group.in_sync(2)
    group.elect("b")
    b = await group.leads("b")
    assert b.config.broker_role is BrokerRole.SYNC_MASTER
    assert group.members["a"].config.broker_id == 1
    async with client_of(b) as client:
        answer = await client.request(RequestCode.GET_BROKER_EPOCH_CACHE)
    assert len(EpochEntryCache.decode(answer.body).epoch_list) == 1  # nothing was sent before
    assert EpochFile(group.directory / "b" / "epochFileCheckpoint").load() == Epochs([(2, 0)])


# --- what a master does besides ---------------------------------------------------------------


async def changed_master(group: Group) -> Broker:
    """Have b lead in place of a, both of which run."""
    await group.in_sync(2)
    await group.copied()
    group.elect("b")
    b = await group.leads("b")
    await until(lambda: len(group.slaves) == 1, PATIENCE)
    return b


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}])
async def test_the_next_master_delivers_what_waits(
    group: Group, properties: dict[str, str]
) -> None:
    a = await group.start("a", message_delay_level="1s")
    await group.start("b", message_delay_level="1s")
    await group.in_sync(2)
    assert await send(a, b"later", properties=properties) == [0]
    b = await changed_master(group)
    await until(lambda: "T" in b.store.queues and b.store.max_offset("T", 0) > 0, PATIENCE)
    async with client_of(b) as client:
        # The old master may have delivered it just before, too.
        assert set(await read(client)) == {b"later"}
    # And again, the other way round.
    assert await send(b, b"later still", properties=properties) == [0]
    await group.in_sync(2)
    await group.copied()
    group.elect("a")
    await group.leads("a")
    await until(lambda: b"later still" in stored(a)[-2:], PATIENCE)


async def test_a_transaction_ends_at_the_next_master(group: Group) -> None:
    a = await group.start("a")
    await group.start("b")
    await group.in_sync(2)
    assert await send(a, b"plain") == [0]
    properties = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "u"}
    async with client_of(a) as client:
        half = await client.send("T", b"half", sys_flag=4, properties=properties)
    assert half.code == 0
    b = await changed_master(group)
    async with client_of(b) as client:
        answer = await client.request(
            RequestCode.END_TRANSACTION,
            EndTransactionRequestHeader(
                producer_group="PG",
                tran_state_table_offset=int(half.ext_fields["queueOffset"]),
                commit_log_offset=int(half.ext_fields["msgId"][-16:], 16),
                commit_or_rollback=8,
                msg_id=half.ext_fields["msgId"],
                transaction_id="u",
            ),
        )
        assert answer.code == 0
        assert await read(client) == [b"plain", b"half"]
