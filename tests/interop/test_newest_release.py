"""A sample of what meets servers and tools of the newest official release, whichever release the
other tests run against: brokers as masters and slaves of ours, their name server and mqadmin, and a
store that goes back and forth."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.message.fastjson import decode
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

from .harness import official, ours, replicas, wire
from .harness.official import NEWEST, JavaPeer, Server
from .harness.reading import bodies_in
from .harness.replicas import Group
from .harness.sending import send

#: Of topics and groups, of 5.5; some have no meaning for older readers.
TOPIC_ATTRIBUTES = {"message.type": "LITE", "lite.topic.expiration": "5"}
GROUP_ATTRIBUTES = {"priority.factor": "50", "lite.sub.client.quota": "7"}


@pytest.fixture(scope="module")
def newest_namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        official.jars(NEWEST)
    except official.Unavailable as missing:
        pytest.skip(str(missing))
    server = official.start_name_server(tmp_path_factory.mktemp("newest"), version=NEWEST)
    yield server
    server.process.kill()


def ask(server: Server, code: Code, body: Any = None, **fields: str) -> wire.Answer:
    data = b"" if body is None else json.dumps(body).encode()
    answer = wire.call(server.address, code, fields, data, timeout=30)
    assert answer.code == 0, answer
    return answer


def create_topic(server: Server, name: str, attributes: dict[str, str]) -> None:
    ask(
        server, Code.UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102",
        readQueueNums="1", writeQueueNums="1", perm="6", topicFilterType="SINGLE_TAG",
        attributes=",".join(f"+{name}={value}" for name, value in attributes.items()),
    )  # fmt: skip


def create_group(server: Server, name: str, attributes: dict[str, str]) -> None:
    changes = {f"+{name}": value for name, value in attributes.items()}
    body = {"groupName": name, "attributes": changes}
    ask(server, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def tables(server: Server) -> dict[str, Any]:
    """The topics and groups of tests with their settings, and what groups may not read. Of that an
    official slave copies nothing."""
    topics = decode(ask(server, Code.GET_ALL_TOPIC_CONFIG).body)
    groups = decode(ask(server, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert isinstance(topics, dict)
    assert isinstance(groups, dict)
    found = topics["topicConfigTable"] | groups["subscriptionGroupTable"]
    own = {name: entry for name, entry in found.items() if name.startswith("Own")}
    return own | {
        "forbidden": {name: kept for name, kept in groups["forbiddenTable"].items() if kept}
    }


@pytest.mark.parametrize(
    ("master", "slave"),
    [
        # It asks for topics and groups once a minute.
        pytest.param("ours", "newest", marks=pytest.mark.long),
        ("newest", "ours"),
    ],
)
def test_a_slave_of_a_master_of_the_other_make(
    newest_namesrv: Server, tmp_path: Path, master: str, slave: str
) -> None:
    group = Group(tmp_path, newest_namesrv, name=f"{master}-{slave}")
    try:
        # In pages of a few entries.
        a = group.start(master, 0, splitMetadataSize=7, timerWheelEnable=True)
        for number in range(9):
            create_topic(a, f"Own{number}", {"message.type": "FIFO"})
            create_group(a, f"OwnGroup{number}", {})
            assert send(a.address, f"Own{number}", b"%d" % number).code == 0
        if master == "newest":
            create_topic(a, "OwnLite", TOPIC_ATTRIBUTES)
            create_group(a, "OwnPriority", GROUP_ATTRIBUTES)
            forbidden = {"group": "OwnGroup8", "topic": "Own8", "readable": "false"}
            ask(a, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **forbidden)
        wanted = tables(a)
        assert len(wanted) >= 18
        b = group.start(slave, 1, splitMetadataSize=7, timerWheelEnable=True)
        replicas.wait_connected(group)
        wire.until(lambda: tables(b) == wanted, "the slave has all topics and groups", 120, 0.5)
        replicas.assert_equal_files(group)
        if slave == "ours":  # the official one copies once a minute
            ask(a, Code.DELETE_TOPIC_IN_BROKER, topic="Own8")
            ask(a, Code.DELETE_SUBSCRIPTIONGROUP, groupName="OwnGroup8")
            left = tables(a)
            wire.until(lambda: tables(b) == left, "the slave has deleted both", 60, 0.5)
    finally:
        group.kill_all()


@pytest.mark.long
def test_queues_that_a_power_cut_left_empty_are_filled(
    newest_namesrv: Server, tmp_path: Path
) -> None:
    """From an offset in the checkpoint on; before 5.4 from a time."""
    root = tmp_path / "store"
    files = {"mappedFileSizeCommitLog": replicas.MIB, "mappedFileSizeConsumeQueue": 20_000}
    namesrv = newest_namesrv.address
    broker = ours.start_broker(tmp_path, namesrv, name="cut", store=root, settings=files)
    for number in range(5):
        sent = send(broker.address, "Own", b"%d" % number + bytes(400_000))
        assert sent.code == 0
    broker.process.kill()
    assert len([*(root / "commitlog").glob("[0-9]*")]) > 2
    queue = next((root / "consumequeue" / "Own" / "0").iterdir())
    queue.write_bytes(bytes(queue.stat().st_size))
    broker = official.start_broker(
        tmp_path, namesrv, name="cut", store=root, settings=files, version=NEWEST
    )
    try:
        found = [body[:1] for body in bodies_in(broker.address, "Own")]
        assert found == [b"0", b"1", b"2", b"3", b"4"]
    finally:
        broker.process.kill()


def test_mqadmin_at_our_servers(tmp_path: Path) -> None:
    try:
        admin = JavaPeer(tmp_path, version=NEWEST)
    except official.Unavailable as missing:
        pytest.skip(str(missing))
    namesrv = ours.start_name_server(tmp_path)
    broker = ours.start_broker(tmp_path, namesrv.address, settings={"splitMetadataSize": 5})
    at = ("-n", namesrv.address)
    try:
        made = admin.mqadmin("updateTopic", "-b", broker.address, "-t", "Own", *at)
        assert "success" in made
        assert "success" in admin.mqadmin("updateSubGroup", "-b", broker.address, "-g", "G", *at)
        assert "Own" in admin.mqadmin("topicList", *at).split()
        assert broker.broker_name in admin.mqadmin("topicRoute", "-t", "Own", *at)
        assert broker.broker_name in admin.mqadmin("clusterList", *at)
        assert "putTps" in admin.mqadmin("brokerStatus", "-b", broker.address, *at)
        sent = send(broker.address, "Own", b"m", TAGS="a tag", UNIQ_KEY="id")
        assert sent.code == 0
        for kind, count in (("T", 1), ("K", 0)):
            said = admin.mqadmin("queryMsgByKey", "-t", "Own", "-k", "a tag", "-p", kind, *at)
            assert said.count(sent.ext_fields["msgId"]) + said.count("id ") == count, said
        said = admin.mqadmin("switchTimerEngine", "-b", broker.address, "-e", "F", *at)
        assert "success" in said, said
        # These it asks for in pages.
        for table in ("-t", "-g"):
            said = admin.mqadmin(
                "exportMetadata", "-b", broker.address, "-f", str(tmp_path), table, *at
            )
            assert "success" in said, said
        topics = json.loads((tmp_path / "topic.json").read_text())["topicConfigTable"]
        groups = json.loads((tmp_path / "subscriptionGroup.json").read_text())
        assert "Own" in topics
        assert "G" in groups["subscriptionGroupTable"]
    finally:
        admin.close()
        for server in (broker, namesrv):
            server.process.kill()


def rebuilt_index(root: Path, copy: Path, **sizes: int) -> list[bytes]:
    """The index files that we make of the commit log of a store, a copy of which is opened."""
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("index"))
    config = msgspec.convert({"storePathRootDir": str(copy), **sizes}, StoreConfig)
    store = MessageStore(config, store_host=bytes(8))
    store.open()
    asyncio.run(store.close())
    return [path.read_bytes() for path in (copy / "index").iterdir()]


def tagged(broker: Server, tags: str) -> set[bytes]:
    """The bodies of the messages that are found by their tags."""
    span = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    fields = {"topic": "Own", "key": tags, "maxNum": "64", "indexType": "T", **span}
    answer = wire.call(broker.address, Code.QUERY_MESSAGE, fields)
    return set() if answer.code else {bytes(r.body) for r in iter_records(answer.body)}


def notified(broker: Server, tags: str) -> str:
    """Whether a group that has popped nothing is notified of messages with these tags."""
    answer = ask(
        broker, Code.NOTIFICATION, consumerGroup="OwnGroup", topic="Own", queueId="-1",
        pollTime="0", bornTime="0", order="false", expType="TAG", exp=tags,
    )  # fmt: skip
    return answer.ext_fields["hasMsg"]


def test_timers_tags_and_attributes_of_a_store_that_goes_back_and_forth(
    newest_namesrv: Server, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    sizes = {
        "mappedFileSizeCommitLog": replicas.MIB, "mappedFileSizeConsumeQueue": 20_000,
        "maxHashSlotNum": 500, "maxIndexNum": 10_000,
    }  # fmt: skip
    settings = {
        **sizes,
        "recallMessageEnable": True, "appendTopicForTimerDeleteKey": False,
    }  # fmt: skip

    def timed(broker: Server, who: str) -> None:
        """Leave a timed message, and one that is recalled."""
        due = str(time.time_ns() // 1_000_000 + 20_000)
        for what in ("kept", "recalled"):
            body = f"{what} {who}".encode()
            names: dict[str, Any] = {"UNIQ_KEY": f"{who}{what}", "KEYS": f"k {who}", "TAGS": who}
            sent = send(broker.address, "Own", body, TIMER_DELIVER_MS=due, **names)
            assert sent.code == 0, sent
        ask(broker, Code.RECALL_MESSAGE, topic="Own", recallHandle=sent.ext_fields["recallHandle"])

    def delivered(broker: Server, *bodies: bytes) -> None:
        def is_there() -> bool:
            return {*bodies} <= {*bodies_in(broker.address, "Own")}

        wire.until(is_there, f"{bodies} are delivered", 90, 0.5)

    def start_newest(run: str) -> Server:
        return official.start_broker(
            tmp_path / run, newest_namesrv.address, name="shared", store=root, settings=settings,
            version=NEWEST,
        )  # fmt: skip

    broker = start_newest("first")
    try:
        create_topic(broker, "Own", {})
        create_topic(broker, "OwnLite", TOPIC_ATTRIBUTES)
        create_group(broker, "OwnGroup", GROUP_ATTRIBUTES)
        timed(broker, "newest")
        made = tables(broker)
    finally:
        broker.process.terminate()
    [index] = (root / "index").iterdir()
    assert rebuilt_index(root, tmp_path / "rebuilt", **sizes) == [index.read_bytes()]

    broker = ours.start_broker(
        tmp_path / "ours", newest_namesrv.address, name="shared", store=root, settings=settings
    )
    try:
        assert tables(broker) == made
        # An older tool changes the group: its attributes stay.
        create_group(broker, "OwnGroup", {})
        delivered(broker, b"kept newest")
        assert tagged(broker, "newest") == {b"kept newest"}
        assert [notified(broker, tags) for tags in ("ours", "newest")] == ["false", "true"]
        timed(broker, "ours")
    finally:
        assert broker.process.terminate() == 0

    broker = start_newest("second")
    try:
        assert tables(broker) == made
        delivered(broker, b"kept newest", b"kept ours")
        wire.until(lambda: tagged(broker, "ours") == {b"kept ours"}, "indexed")
        assert tagged(broker, "newest") == {b"kept newest"}
        found = [notified(broker, tags) for tags in ("none", "ours || none", "newest")]
        assert found == ["false", "true", "true"]
        send(broker.address, "Own", b"last", TIMER_DELAY_MS="1000")
        delivered(broker, b"last")
        assert sorted(bodies_in(broker.address, "Own")) == [b"kept newest", b"kept ours", b"last"]
    finally:
        broker.process.kill()
