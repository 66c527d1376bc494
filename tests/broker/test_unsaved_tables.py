"""Tables whose files cannot be written, or only slowly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message.batch_body import encode_batch
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.store.files import Files

from .conftest import Client, Connect, StartBroker

REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


class Disk:
    """Lets the writing of one table's file fail, or wait."""

    def __init__(self, path: Path) -> None:
        self._draft = path.with_name(path.name + ".tmp")

    def fail(self) -> None:
        self._draft.mkdir()

    def heal(self) -> None:
        self._draft.rmdir()

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Writing waits within, and fails at the end."""
        # A pipe is not opened for writing before somebody reads it, and cannot be synced.
        os.mkfifo(self._draft)
        try:
            yield
        finally:
            await asyncio.to_thread(self._draft.read_bytes)


@pytest.fixture
def topics_disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "store" / "config" / "topics.json")


@pytest.fixture
def offsets_disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "store" / "config" / "consumerOffset.json")


@pytest.fixture
def groups_disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "store" / "config" / "subscriptionGroup.json")


@pytest.fixture
async def after_kill(tmp_path: Path, connect: Connect) -> AsyncIterator[Callable[..., Any]]:
    """`await after_kill()`: a client of a broker that finds what a kill now would leave.

    `change(config)` may change the files in the directory config before it starts.
    """
    brokers: list[Broker] = []

    async def start(change: Callable[[Path], None] = lambda _: None) -> Client:
        store = tmp_path / f"copy{len(brokers)}"
        shutil.copytree(tmp_path / "store", store)
        change(store / "config")
        broker = Broker(
            BrokerConfig(
                store_path_root_dir=str(store),
                broker_name="b0",
                listen_port=0,
                mapped_file_size_commit_log=1 << 20,
                mapped_file_size_consume_queue=20_000,
            )
        )
        await broker.start()
        brokers.append(broker)
        return await connect(broker)

    yield start
    for broker in brokers:
        await broker.stop()


async def create(client: Client, topic: str, queues: int = 4) -> Command:
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues,
        perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    return await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def delete(client: Client, topic: str) -> Command:
    header = DeleteTopicRequestHeader(topic=topic)
    return await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, header)


async def created(broker: Broker, topic: str) -> None:
    """Wait until the broker has the topic, on the disk or not."""
    async with asyncio.timeout(30):
        while broker.tables.topics.get(topic) is None:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0)


async def update_group(client: Client, group: str) -> Command:
    body = SubscriptionGroupConfig(group_name=group).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return await client.request(code, None, body)


async def test_nothing_is_acknowledged_for_a_topic_that_a_restart_would_not_know(
    client: Client, topics_disk: Disk, after_kill: Callable[..., Any]
) -> None:
    assert (await client.send("Known")).code == 0
    topics_disk.fail()

    for _ in range(3):
        refused = await client.send("New")
        assert refused.code == REFUSED
        assert "topics.json" in (refused.remark or "")
    assert (await client.send("Known")).code == 0, "it is on the disk"

    topics_disk.heal()
    # An admin does not wait for the next attempt, and everything that waits is written with it.
    assert (await create(client, "Another")).code == 0
    assert (await client.send("New", b"acknowledged")).code == 0
    restarted = await after_kill()
    assert b"acknowledged" in [record.body for record in await restarted.pulled("New")]


@pytest.mark.parametrize("kind", ["single", "batch", "dead letter", "reply"])
async def test_a_new_topic_is_not_used_while_it_cannot_be_written(
    client: Client, topics_disk: Disk, kind: str
) -> None:
    await client.send("Known")
    topics_disk.fail()
    if kind == "reply":
        answer = await client.send("New", code=RequestCode.SEND_REPLY_MESSAGE_V2)
    elif kind == "batch":
        body = encode_batch([(0, b"body", b"")])
        answer = await client.send("New", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    elif kind == "dead letter":
        answer = await client.send("%RETRY%G", reconsume_times=17)
    else:
        answer = await client.send("New")
    assert answer.code == REFUSED


async def test_what_an_admin_was_refused_becomes_true_later_or_is_repeated(
    client: Client, topics_disk: Disk, after_kill: Callable[..., Any]
) -> None:
    await create(client, "Old")
    topics_disk.fail()
    for _ in range(2):
        assert (await create(client, "New")).code == REFUSED
    assert (await delete(client, "Old")).code == REFUSED
    assert (await client.send("New")).code == REFUSED

    topics_disk.heal()
    assert (await create(client, "New")).code == 0
    restarted = await after_kill()
    assert (await restarted.pull("New", queue_id=3)).code != ResponseCode.TOPIC_NOT_EXIST
    assert (await restarted.pull("Old")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_group_that_cannot_be_written_is_refused(
    client: Client, groups_disk: Disk, after_kill: Callable[..., Any]
) -> None:
    await update_group(client, "Known")
    groups_disk.fail()
    assert (await update_group(client, "New")).code == REFUSED
    assert (await client.pull("SELF_TEST_TOPIC", consumer_group="Auto")).code != REFUSED

    groups_disk.heal()
    assert (await update_group(client, "New")).code == 0
    copied: list[str] = []
    await after_kill(lambda config: copied.append((config / "subscriptionGroup.json").read_text()))
    assert '"New"' in copied[0]
    assert '"Auto"' in copied[0]


async def test_others_are_served_while_a_table_is_written(
    broker: Broker, client: Client, connect: Connect, topics_disk: Disk
) -> None:
    await client.send("Known")
    async with topics_disk.waiting():
        new = asyncio.create_task((await connect(broker)).send("New"))
        await created(broker, "New")
        async with asyncio.timeout(30):
            for _ in range(20):
                assert (await client.send("Known")).code == 0
        assert not new.done()
    assert (await new).code == REFUSED, "a pipe cannot be synced"


async def test_names_that_wait_share_a_write(
    broker: Broker, client: Client, topics_disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.send("Known")
    written: list[str] = []
    replace = Files.replace

    def noted(self: Files, path: Path, *arguments: Any, **options: Any) -> None:
        written.append(path.name)
        replace(self, path, *arguments, **options)

    monkeypatch.setattr(Files, "replace", noted)
    async with topics_disk.waiting():
        first = asyncio.create_task(client.send("First"))
        await created(broker, "First")
        sends = [asyncio.create_task(client.send(f"New{n}")) for n in range(200)]
        await created(broker, "New199")
    assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
    assert written.count("topics.json") == 2
    assert (await first).code == REFUSED


async def test_one_connection_may_make_only_so_many_groups_at_once(
    client: Client, connect: Connect, broker: Broker, groups_disk: Disk
) -> None:
    await update_group(client, "Known")
    async with groups_disk.waiting():
        update = asyncio.create_task(
            (await connect(broker)).request(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                None,
                SubscriptionGroupConfig(group_name="Waiting").encode(),
            )
        )
        async with asyncio.timeout(30):
            while not broker.tables.groups.known("Waiting"):  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(0)
        pulls = [client.pull("SELF_TEST_TOPIC", consumer_group=f"G{n}") for n in range(1_100)]
        answers = await asyncio.gather(*pulls)
        other = await (await connect(broker)).pull("SELF_TEST_TOPIC", consumer_group="Other")
    codes = [answer.code for answer in answers]
    assert codes.count(ResponseCode.SYSTEM_BUSY) == 1_100 - 1_024
    assert codes[0] == other.code == ResponseCode.PULL_NOT_FOUND
    assert (await update).code == REFUSED

    assert (await update_group(client, "Waiting")).code == 0
    answer = await client.pull("SELF_TEST_TOPIC", consumer_group="G1099")
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_one_connection_may_make_only_so_many_topics_at_once(
    client: Client, broker: Broker, topics_disk: Disk
) -> None:
    await client.send("Known")
    async with topics_disk.waiting():
        first = asyncio.create_task(client.send("First"))
        await created(broker, "First")
        sends = [asyncio.create_task(client.send(f"New{n}")) for n in range(1_100)]
        done, _ = await asyncio.wait(sends, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert {send.result().code for send in done} == {ResponseCode.SYSTEM_BUSY}
    codes = [answer.code for answer in await asyncio.gather(*sends)]
    assert codes.count(ResponseCode.SUCCESS) == 1_023
    assert codes.count(ResponseCode.SYSTEM_BUSY) == 1_100 - 1_023
    assert (await first).code == REFUSED


async def test_sends_that_are_refused_create_only_so_many_topics_either(
    client: Client, broker: Broker, topics_disk: Disk
) -> None:
    await client.send("Known")
    async with topics_disk.waiting():
        first = asyncio.create_task(client.send("First"))
        await created(broker, "First")
        sends = [client.send(f"New{n}", queue_id=99) for n in range(1_100)]
        codes = [answer.code for answer in await asyncio.gather(*sends)]
    assert codes.count(ResponseCode.INVALID_PARAMETER) == 1_024
    assert codes.count(ResponseCode.SYSTEM_BUSY) == 1_100 - 1_024
    assert broker.tables.topics.get("New1099") is None
    assert (await first).code == REFUSED


async def test_topics_that_are_not_created_do_not_count(client: Client) -> None:
    sends = [client.send(f"New{n}", default_topic="NoTemplate") for n in range(1_100)]
    codes = {answer.code for answer in await asyncio.gather(*sends)}
    assert codes == {ResponseCode.TOPIC_NOT_EXIST}


# --- what is found at start -------------------------------------------------------------------


def lose_topics(config: Path) -> None:
    (config / "topics.json").unlink()
    (config / "topics.json.bak").unlink(missing_ok=True)


@pytest.mark.parametrize("delayed", [False, True])
async def test_a_kill_after_a_first_start_is_told_as_loss_only_where_something_is_lost(
    client: Client, after_kill: Callable[..., Any], caplog: pytest.LogCaptureFixture, delayed: bool
) -> None:
    await client.send("T", b"first", properties={"DELAY": "18"} if delayed else {})
    caplog.clear()

    def lose_progress(config: Path) -> None:
        for name in ("delayOffset.json", "consumerFilter.json"):
            (config / name).unlink(missing_ok=True)
            (config / f"{name}.bak").unlink(missing_ok=True)

    await after_kill(lose_progress)
    missing = [each for each in caplog.messages if "and its .bak are missing" in each]
    assert [each for each in missing if "consumerFilter.json" in each] == []
    told = [each for each in missing if "all messages of delay levels" in each]
    assert len(told) == delayed


async def test_topics_that_topics_json_lost_are_adopted(
    client: Client, after_kill: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await client.send("T", b"first", queue_id=2)
    await client.send("%RETRY%G", b"again")
    caplog.clear()
    restarted = await after_kill(lose_topics)

    [line] = [each for each in caplog.messages if "created again" in each]
    assert "not in topics.json: 2 (%RETRY%G, T)." in line
    assert any("topics.json and its .bak are missing" in each for each in caplog.messages)
    [record] = await restarted.pulled("T", queue_id=2)
    assert record.body == b"first"
    assert (await restarted.send("T", b"second", queue_id=2)).code == 0
    assert (await restarted.send("T", queue_id=3)).code == ResponseCode.INVALID_PARAMETER


async def test_an_adopted_topic_is_written(
    client: Client, start_broker: StartBroker, connect: Connect, broker: Broker, tmp_path: Path
) -> None:
    await client.send("T")
    await broker.stop()
    lose_topics(tmp_path / "store" / "config")
    await (await start_broker()).stop()
    assert '"T"' in (tmp_path / "store" / "config" / "topics.json").read_text()


async def test_a_deleted_topic_does_not_come_back_after_a_kill(
    client: Client, after_kill: Callable[..., Any]
) -> None:
    for topic in ("T", "U"):
        assert (await client.send(topic)).code == 0
        assert (await delete(client, topic)).code == 0
    assert (await client.send("U", b"of its second life")).code == 0

    restarted = await after_kill()
    assert (await restarted.pull("T")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await restarted.pull("U")).code != ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_made_anew_has_nothing_of_the_deleted_one_after_a_kill(
    client: Client, after_kill: Callable[..., Any]
) -> None:
    for queue_id in range(2):
        assert (await client.send("T", b"old", queue_id=queue_id)).code == 0
    assert (await delete(client, "T")).code == 0
    assert (await create(client, "T")).code == 0
    assert (await client.send("T", b"new", queue_id=1)).code == 0

    restarted = await after_kill()
    assert (await restarted.pull("T", queue_id=0)).code != 0
    [record] = await restarted.pulled("T", queue_id=1)
    assert (record.body, record.queue_offset) == (b"new", 0)


async def test_a_topic_made_anew_after_a_kill_has_nothing_of_the_deleted_one(
    client: Client, after_kill: Callable[..., Any]
) -> None:
    assert (await client.send("T", b"old")).code == 0
    assert (await delete(client, "T")).code == 0

    restarted = await after_kill()
    assert (await restarted.send("T", b"new")).code == 0
    [record] = await restarted.pulled("T")
    assert (record.body, record.queue_offset) == (b"new", 0)


async def committed(client: Client, group: str, topic: str) -> int | None:
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=0, set_zero_if_not_found=False
    )
    answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return int(answer.ext_fields["offset"]) if answer.code == 0 else None


async def commit(client: Client, group: str, topic: str, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=0, commit_offset=offset
    )
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def test_offsets_that_an_admin_sets_outlast_a_kill(
    client: Client, after_kill: Callable[..., Any]
) -> None:
    for group in ("G", "Clone"):
        await update_group(client, group)
    for _ in range(3):
        assert (await client.send("T")).code == 0
    reset = ResetOffsetRequestHeader(topic="T", group="G", queue_id=0, offset=2)
    answer = await client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert answer.code == 0
    assert await committed(await after_kill(), "G", "T") == 2

    clone = CloneGroupOffsetRequestHeader(src_group="G", dest_group="Clone", topic="T")
    assert (await client.request(RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
    assert await committed(await after_kill(), "Clone", "T") == 2


async def test_offsets_that_an_admin_deletes_stay_deleted_after_a_kill(
    client: Client, broker: Broker, after_kill: Callable[..., Any]
) -> None:
    for group in ("G", "H"):
        await update_group(client, group)
        for topic in ("T", "U"):
            assert (await client.send(topic)).code == 0
            await commit(client, group, topic, 1)
    await broker.tables.offsets.flush()
    assert (await delete(client, "T")).code == 0
    header = DeleteSubscriptionGroupRequestHeader(group_name="H", clean_offset=True)
    assert (await client.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == 0

    restarted = await after_kill()
    assert (await restarted.send("T")).code == 0
    assert await committed(restarted, "G", "T") is None
    assert await committed(restarted, "G", "U") == 1
    assert await committed(restarted, "H", "U") is None


async def test_a_reset_that_cannot_be_written_is_not_acknowledged(
    client: Client, offsets_disk: Disk
) -> None:
    await update_group(client, "G")
    assert (await client.send("T")).code == 0
    offsets_disk.fail()
    reset = ResetOffsetRequestHeader(topic="T", group="G", queue_id=0, offset=1)
    answer = await client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert answer.code == REFUSED
    assert "consumer offsets" in str(answer.remark)
    offsets_disk.heal()
    assert (await client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 0


async def test_a_new_store_misses_no_table(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert not [each for each in caplog.messages if "missing" in each]


@pytest.mark.parametrize(
    "name",
    [
        "topics.json",
        "subscriptionGroup.json",
        "consumerOffset.json",
        "delayOffset.json",
    ],
)
async def test_a_table_that_is_gone_is_named(
    broker: Broker,
    client: Client,
    start_broker: StartBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    await client.send("T", properties={"DELAY": "18"})
    await broker.stop()
    config = tmp_path / "store" / "config"
    (config / name).unlink()
    (config / f"{name}.bak").unlink(missing_ok=True)

    await start_broker()
    missing = [each for each in caplog.messages if "missing" in each]
    assert [each.split(" and its .bak")[0] for each in missing] == [str(config / name)]
