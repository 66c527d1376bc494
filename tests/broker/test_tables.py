"""The persisted tables: topics, groups, consumer offsets, in the official broker's files."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.attributes import AttributeChangeError
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import OWN_GROUPS, SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message import fastjson
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.serving.long_requests import at_once
from pocketmq.store.config_file import ConfigFileError

# As fastjson writes them; "later" and "future" stand for keys of other releases.
TOPICS = """{
	"dataVersion":{"counter":10,"stateVersion":0,"timestamp":1795240508713},
	"later":{"a":1},
	"topicConfigTable":{
		"TBW102":{"order":false,"perm":7,"readQueueNums":8,"topicName":"TBW102","writeQueueNums":8},
		"Old":{"attributes":{"message.type":"FIFO"},"future":[1],"order":true,"perm":4,
			"readQueueNums":3,"topicFilterType":"SINGLE_TAG","topicName":"Old","topicSysFlag":1,
			"writeQueueNums":2}
	}
}"""
GROUPS = """{
	"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1795240508703},
	"forbiddenTable":{"Known":{"T":4,"U":2}},
	"subscriptionGroupTable":{
		"Known":{"consumeEnable":false,"future":true,"groupName":"Known","retryMaxTimes":3}
	}
}"""
OFFSETS = """{
	"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1795240457674},
	"groupTopicMap":{"G":["T"]},
	"later":7,
	"offsetTable":{
		"T@G":{0:0,1:12
		},
		"T@G@broadcast":{0:3}
	}
}"""


class Tables:
    """Makes tables over one directory and notes which topics changed.

    Each is what a broker would have after a restart. They write their changes until the end of the
    test.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = BrokerConfig(broker_name="b0", broker_cluster_name="C0")
        self.changed: list[list[str]] = []
        self.now = 5000
        self._started: list[TopicConfigs | SubscriptionGroups] = []

    async def stop(self) -> None:
        for table in self._started:
            await table.stop()

    def _note(self, names: Collection[str]) -> None:
        self.changed.append(list(names))

    def topics(self) -> TopicConfigs:
        path = self.directory / "topics.json"
        table = TopicConfigs(self.config, path, lambda: self.now, self._note)
        table.load()
        table.start()
        self._started.append(table)
        return table

    def groups(self) -> SubscriptionGroups:
        path = self.directory / "subscriptionGroup.json"
        table = SubscriptionGroups(self.config, path, lambda: self.now)
        table.load()
        table.start()
        self._started.append(table)
        return table

    def offsets(self) -> ConsumerOffsets:
        path = self.directory / "consumerOffset.json"
        table = ConsumerOffsets(path, lambda: self.now, version_step=2)
        table.load()
        return table

    def written(self, name: str) -> dict[str, object]:
        text = (self.directory / name).read_text()
        value = fastjson.decode(text)
        assert isinstance(value, dict)
        return value


@pytest.fixture
async def tables(tmp_path: Path) -> AsyncIterator[Tables]:
    tables = Tables(tmp_path)
    yield tables
    await tables.stop()


# --- topics -----------------------------------------------------------------------------------


async def test_a_new_broker_has_its_own_topics(tables: Tables) -> None:
    topics = tables.topics()

    shape = {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        for name, topic in topics.table.items()
    }
    assert shape == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "C0": (16, 16, 7),
        "b0": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "C0_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_C0": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b0": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert all(map(topics.is_system, topics.table))
    assert not topics.is_system("T")
    assert tables.changed == []


async def test_an_official_topics_file_is_read(tables: Tables) -> None:
    (tables.directory / "topics.json").write_text(TOPICS)
    topics = tables.topics()

    assert topics.table["Old"] == TopicConfig(
        topic_name="Old",
        attributes={"message.type": "FIFO"},
        order=True,
        perm=4,
        read_queue_nums=3,
        write_queue_nums=2,
        topic_sys_flag=1,
    )
    assert topics.data_version.counter == 10
    assert "SELF_TEST_TOPIC" in topics.table


async def test_unknown_keys_of_the_file_are_kept(tables: Tables) -> None:
    (tables.directory / "topics.json").write_text(TOPICS)
    topics = tables.topics()
    topics.create_if_absent("New", 4)
    topics.create_if_absent("Another", 4)
    await topics.saved()

    written = tables.written("topics.json")
    assert written["later"] == {"a": 1}
    table = written["topicConfigTable"]
    assert isinstance(table, dict)
    assert table["Old"]["future"] == [1]
    assert table["Old"]["perm"] == 4
    assert table["New"]["readQueueNums"] == 4
    assert written["dataVersion"] == {"counter": 12, "stateVersion": 0, "timestamp": 5000}


async def test_a_deleted_topic_stays_deleted(tables: Tables) -> None:
    (tables.directory / "topics.json").write_text(TOPICS)
    topics = tables.topics()
    assert topics.delete("Old", 0)
    assert not topics.delete("Old", 0)
    await topics.saved()

    assert tables.topics().get("Old") is None
    assert tables.changed == [["Old"]]


async def test_a_spoilt_file_is_replaced_by_its_backup(tables: Tables) -> None:
    topics = tables.topics()
    topics.create_if_absent("First", 4)
    await topics.saved()
    topics.create_if_absent("Second", 4)
    await topics.saved()
    (tables.directory / "topics.json").write_text('{"topicConfigTa')

    assert tables.topics().get("First") is not None


async def test_auto_creation_takes_the_smaller_queue_number(tables: Tables) -> None:
    topics = tables.topics()

    wanted_few = topics.create_for_send("Few", "TBW102", 4)
    wanted_many = topics.create_for_send("Many", "TBW102", 100)

    assert wanted_few is not None
    assert wanted_many is not None
    assert (wanted_few.read_queue_nums, wanted_few.write_queue_nums, wanted_few.perm) == (4, 4, 6)
    assert wanted_many.read_queue_nums == 8
    assert topics.create_for_send("Few", "TBW102", 8) is wanted_few
    assert tables.changed == [["Few"], ["Many"]]
    await topics.saved()
    assert tables.topics().get("Many") == wanted_many


async def test_a_template_must_be_there_and_inheritable(tables: Tables) -> None:
    topics = tables.topics()

    assert topics.create_for_send("T", "NoSuchTopic", 4) is None
    assert topics.create_for_send("T", "BenchmarkTest", 4) is None
    assert topics.create_for_send("T", "b0", 4) is not None


async def test_without_auto_creation_the_template_is_an_ordinary_topic(tables: Tables) -> None:
    (tables.directory / "topics.json").write_text(TOPICS)
    tables.config.auto_create_topic_enable = False
    topics = tables.topics()

    assert topics.create_for_send("T", "TBW102", 4) is None
    assert topics.table["TBW102"].perm == 6


async def test_a_retry_topic_follows_the_order_of_its_group(tables: Tables) -> None:
    topics = tables.topics()
    first = topics.create_if_absent("%RETRY%G", 1)
    assert not first.order
    tables.changed.clear()

    assert topics.create_if_absent("%RETRY%G", 1, order=True).order
    topics.create_if_absent("%RETRY%G", 9, order=True)

    assert tables.changed == [["%RETRY%G"]]
    assert topics.table["%RETRY%G"].read_queue_nums == 1


async def test_updating_merges_attributes_or_changes_nothing(tables: Tables) -> None:
    topics = tables.topics()
    topics.update([TopicConfig(topic_name="T", attributes={"+message.type": "FIFO"})])
    topics.update([TopicConfig(topic_name="T", read_queue_nums=2)])

    assert topics.table["T"].attributes["message.type"] == "FIFO"
    assert topics.table["T"].read_queue_nums == 2

    with pytest.raises(AttributeChangeError):
        topics.update(
            [
                TopicConfig(topic_name="U"),
                TopicConfig(topic_name="T", attributes={"+no.such": "1"}),
            ]
        )
    assert topics.get("U") is None


async def test_ordered_topics_of_the_name_server(tables: Tables) -> None:
    topics = tables.topics()
    topics.create_if_absent("T", 4)
    tables.changed.clear()

    topics.mark_ordered(["T", "unknown"])
    topics.mark_ordered(["T"])

    assert topics.table["T"].order
    assert tables.changed == [["T"]]


# --- groups -----------------------------------------------------------------------------------


async def test_groups_of_rocketmq_are_always_known(tables: Tables) -> None:
    groups = tables.groups()

    assert set(groups.table) == set(OWN_GROUPS)
    assert not groups.known("G")


async def test_an_official_groups_file_is_read_and_kept(tables: Tables) -> None:
    (tables.directory / "subscriptionGroup.json").write_text(GROUPS)
    groups = tables.groups()
    assert groups.table["Known"] == SubscriptionGroupConfig(
        group_name="Known", consume_enable=False, retry_max_times=3
    )
    assert not groups.may_read("Known", "T")
    assert groups.may_read("Known", "U")

    groups.update([SubscriptionGroupConfig(group_name="G", retry_queue_nums=2)])
    await groups.saved()

    written = tables.written("subscriptionGroup.json")
    table = written["subscriptionGroupTable"]
    assert isinstance(table, dict)
    assert table["Known"]["future"] is True
    assert table["G"]["retryQueueNums"] == 2
    assert written["forbiddenTable"] == {"Known": {"T": 4, "U": 2}}
    assert tables.groups().table == groups.table


async def test_groups_are_created_where_that_is_allowed(tables: Tables) -> None:
    groups = tables.groups()
    created = groups.find("G")

    assert created == SubscriptionGroupConfig(group_name="G")
    assert groups.find("G") is created
    assert groups.find("bad name!") is None
    assert groups.find("x" * 256) is None
    await groups.saved()
    assert tables.groups().known("G")

    tables.config.auto_create_subscription_group = False
    assert groups.find("H") is None
    assert groups.find("CID_RMQ_SYS_H") is not None


async def test_a_flush_that_is_cancelled_does_not_meet_the_next_one(tables: Tables) -> None:
    """As a reset does whose request is cancelled when the broker stops."""
    offsets = tables.offsets()
    offsets.commit("G", "T", 0, 1)
    draft = tables.directory / "consumerOffset.json.tmp"
    os.mkfifo(draft)  # the first write waits for a reader, and fails then
    first = asyncio.create_task(offsets.flush())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    offsets.commit("G", "T", 0, 2)
    second = asyncio.create_task(offsets.flush())
    await asyncio.to_thread(draft.read_bytes)
    await second
    assert tables.offsets().query("G", "T", 0) == 2


async def test_a_deleted_group_stays_deleted(tables: Tables) -> None:
    groups = tables.groups()
    groups.find("G")
    assert groups.delete("G")
    assert not groups.delete("G")
    await groups.saved()
    again = tables.groups()
    assert not again.known("G")
    assert again.is_deleted("G", tables.now)
    assert not again.is_deleted("H", 0), "it was never there, or a kill came before the first write"


async def test_a_deleted_group_that_is_made_anew(tables: Tables) -> None:
    groups = tables.groups()
    groups.find("G")
    groups.delete("G")
    deleted = tables.now
    tables.now += 1
    groups.find("G")
    assert groups.is_deleted("G", deleted)
    assert not groups.is_deleted("G", tables.now)


async def test_deleted_groups_in_a_file_that_somebody_edited(tables: Tables) -> None:
    path = tables.directory / "subscriptionGroup.json"
    path.write_text('{"subscriptionGroupTable":{},"pocketmqDeletedGroups":["G"]}')
    assert not tables.groups().is_deleted("G", 0)


# --- consumer offsets -------------------------------------------------------------------------


async def test_official_offsets_are_read_and_kept(tables: Tables) -> None:
    (tables.directory / "consumerOffset.json").write_text(OFFSETS)
    offsets = tables.offsets()
    assert offsets.query("G", "T", 0) == 0
    assert offsets.query("G", "T", 1) == 12
    assert offsets.query("G", "T", 2) == -1
    assert offsets.query("H", "T", 0) == -1
    assert offsets.topics_of("G") == {"T"}
    assert offsets.groups_of("T") == {"G"}

    offsets.commit("H", "T", 3, 8)
    offsets.save()

    assert tables.written("consumerOffset.json") == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1795240457674},
        "groupTopicMap": {"G": ["T"], "H": ["T"]},
        "later": 7,
        "offsetTable": {"T@G": {"0": 0, "1": 12}, "T@G@broadcast": {"0": 3}, "T@H": {"3": 8}},
    }
    # Integer keys stand there bare, as fastjson writes them.
    assert "{3:8}" in (tables.directory / "consumerOffset.json").read_text()
    assert tables.offsets().table == offsets.table


_NAMES = st.sampled_from(["A", "B", "C", "C@broadcast"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["commit", "pulled", "reset", "clone", "follow", "forget_topic", "forget_group"]
            ),
            _NAMES,
            _NAMES,
        )
    )
)
def test_offsets_are_found_by_topic_and_by_group(steps: list[tuple[str, str, str]]) -> None:
    offsets = ConsumerOffsets(Path("unwritten.json"), lambda: 1)
    expected: dict[str, int] = {}
    for step, group, other in steps:
        topic = other.partition("@")[0]
        if step == "clone":
            offsets.clone(group, other, "A")
            if f"A@{group}" in expected:
                expected[f"A@{other}"] = 1
        elif step == "follow":
            offsets.follow({f"{topic}@{group}": {0: 1}}, None)
            expected[f"{topic}@{group}"] = 1
        elif step == "forget_topic":
            offsets.forget_topic(topic)
            expected = {key: 1 for key in expected if key.split("@", 1)[0] != topic}
            assert offsets.query_pulled(group, topic, 0) == -1
            assert not offsets.has_reset(group, topic, 0)
        elif step == "forget_group":
            offsets.forget_group(group)
            expected = {key: 1 for key in expected if key.split("@", 1)[1] != group}
            assert offsets.query_pulled(group, topic, 0) == -1
            assert not offsets.has_reset(group, topic, 0)
        else:
            if step == "reset":
                offsets.reset(group, topic, {0: 1})
            else:
                getattr(offsets, step)(group, topic, 0, 1)
            if step != "pulled":
                expected[f"{topic}@{group}"] = 1
    assert offsets.table == {key: {0: 1} for key in expected}
    pairs = [key.split("@") for key in expected if key.count("@") == 1]
    for name in ("A", "B", "C"):
        assert offsets.groups_of(name) == {group for topic, group in pairs if topic == name}
        assert offsets.topics_of(name) == {topic for topic, group in pairs if group == name}
    document = offsets.document()
    groups = {group: {topic for topic, name in pairs if name == group} for _, group in pairs}
    assert {group: set(topics) for group, topics in document["groupTopicMap"].items()} == groups
    assert fastjson.encode(at_once(offsets.document_steps())) == fastjson.encode(document)


async def test_offsets_are_written_only_when_they_changed(tables: Tables) -> None:
    offsets = tables.offsets()
    offsets.commit("G", "T", 0, 5)
    offsets.save()
    assert tables.offsets().query("G", "T", 0) == 5
    (tables.directory / "consumerOffset.json").unlink()
    offsets.save()
    assert not (tables.directory / "consumerOffset.json").exists()


async def test_a_lower_offset_is_stored_too(tables: Tables) -> None:
    offsets = tables.offsets()
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 0, 2)

    assert offsets.query("G", "T", 0) == 2
    assert offsets.data_version.counter == 1, "rises every second commit here"


async def test_pulled_offsets_are_never_stored(tables: Tables) -> None:
    offsets = tables.offsets()
    assert offsets.query_pulled("G", "T", 0) == -1
    offsets.commit("G", "T", 0, 5)
    assert offsets.query_pulled("G", "T", 0) == 5
    offsets.pulled("G", "T", 0, 9)
    assert offsets.query_pulled("G", "T", 0) == 9

    offsets.save()
    assert tables.offsets().query_pulled("G", "T", 0) == 5


async def test_offsets_go_with_their_topic_or_group(tables: Tables) -> None:
    offsets = tables.offsets()
    for topic in ("T", "U"):
        for group in ("G", "H"):
            offsets.commit(group, topic, 0, 1)
            offsets.pulled(group, topic, 0, 2)

    offsets.forget_topic("T")
    offsets.forget_group("H")

    assert set(offsets.table) == {"U@G"}
    assert offsets.query_pulled("G", "T", 0) == -1
    offsets.save()
    assert set(tables.offsets().table) == {"U@G"}


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json"])
async def test_what_is_written_is_standard_json(tables: Tables, name: str) -> None:
    topics, groups = tables.topics(), tables.groups()
    topics.create_if_absent("T", 1)
    groups.find("G")
    await topics.saved()
    await groups.saved()

    assert json.loads((tables.directory / name).read_text())
    assert msgspec.json.decode((tables.directory / name).read_bytes())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.json", '{"topicConfigTable":{"T":{"perm":"many"}}}'),
        ("topics.json", '{"topicConfigTable":[1]}'),
        ("topics.json", "no json"),
        ("subscriptionGroup.json", '{"forbiddenTable":{"G":{"T":"odd"}}}'),
        ("subscriptionGroup.json", '{"dataVersion":7}'),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{"first":1}}}'),
        ("consumerOffset.json", '{"offsetTable":7}'),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{"0":9223372036854775808}}}'),
    ],
)
async def test_a_file_that_makes_no_sense_is_named(tables: Tables, name: str, text: str) -> None:
    (tables.directory / name).write_text(text)

    with pytest.raises(ConfigFileError, match=name):
        {
            "topics.json": tables.topics,
            "subscriptionGroup.json": tables.groups,
            "consumerOffset.json": tables.offsets,
        }[name]()


# --- offsets of an official broker with light queues -------------------------------------------


def lmq_file(directory: Path, offset: int, timestamp: int) -> Path:
    """Write the offsets as an official broker with enableLmq=true does."""
    path = directory / "lmqConsumerOffset.json"
    path.write_text(
        f'{{"dataVersion":{{"counter":1,"stateVersion":0,"timestamp":{timestamp}}},'
        f'"lmqOffsetTable":{{"%LMQ%x@%LMQ%g":7}},"offsetTable":{{"orders@g":{{0:{offset}}}}}}}'
    )
    return path


def offset_file(directory: Path, offset: int, timestamp: int) -> Path:
    path = directory / "consumerOffset.json"
    path.write_text(
        f'{{"dataVersion":{{"counter":1,"stateVersion":0,"timestamp":{timestamp}}},'
        f'"offsetTable":{{"orders@g":{{0:{offset}}}}}}}'
    )
    return path


def offsets_in(directory: Path, lmq: bool | None) -> ConsumerOffsets:
    table = ConsumerOffsets(directory / "consumerOffset.json", lambda: 5_000, lmq=lmq)
    table.load()
    return table


@pytest.mark.parametrize(
    ("lmq", "plain_is_of", "lmq_is_of", "expected"),
    [
        (True, 3_000, 2_000, 20),
        (False, 2_000, 3_000, 10),
        (None, 2_000, 3_000, 20),
        (None, 3_000, 2_000, 10),
    ],
)
def test_groups_go_on_where_the_official_broker_left_them(
    lmq: bool | None, plain_is_of: int, lmq_is_of: int, expected: int, tmp_path: Path
) -> None:
    offset_file(tmp_path, 10, plain_is_of)
    lmq_file(tmp_path, 20, lmq_is_of)
    assert offsets_in(tmp_path, lmq).query("g", "orders", 0) == expected


@pytest.mark.parametrize("lmq", [True, None])
def test_the_file_of_light_queues_is_enough(lmq: bool | None, tmp_path: Path) -> None:
    lmq_file(tmp_path, 20, 3_000)
    assert offsets_in(tmp_path, lmq).query("g", "orders", 0) == 20


def test_of_files_with_one_version_the_one_written_last_counts(tmp_path: Path) -> None:
    paths = offset_file(tmp_path, 10, 2_000), lmq_file(tmp_path, 20, 2_000)
    for newer, expected in ((0, 10), (1, 20)):
        os.utime(paths[newer], (2_000, 2_000))
        os.utime(paths[1 - newer], (1_000, 1_000))
        assert offsets_in(tmp_path, None).query("g", "orders", 0) == expected


@pytest.mark.parametrize("lmq", [True, False, None])
def test_both_files_are_kept_in_step(lmq: bool | None, tmp_path: Path) -> None:
    offset_file(tmp_path, 10, 2_000)
    lmq_file(tmp_path, 20, 3_000)
    table = offsets_in(tmp_path, lmq)
    table.commit("g", "orders", 0, 30)
    table.commit("%LMQ%h@1", "%LMQ%y@2", 0, 8)
    table.save()
    own = fastjson.decode((tmp_path / "consumerOffset.json").read_text())
    written = fastjson.decode((tmp_path / "lmqConsumerOffset.json").read_text())
    light = {"%LMQ%x@%LMQ%g": 7, "%LMQ%y@2@%LMQ%h@1": 8}
    assert written["offsetTable"] == {"orders@g": {"0": 30}}
    assert written["lmqOffsetTable"] == light
    assert own["offsetTable"] == {
        "orders@g": {"0": 30}, **{key: {"0": offset} for key, offset in light.items()}
    }  # fmt: skip
    for official in (True, False):
        table = offsets_in(tmp_path, official)
        assert table.query("g", "orders", 0) == 30
        assert table.query("%LMQ%g", "%LMQ%x", 0) == 7
        assert table.query("%LMQ%h@1", "%LMQ%y@2", 0) == 8


def test_the_offsets_of_light_queues_are_limited(tmp_path: Path) -> None:
    table = ConsumerOffsets(tmp_path / "consumerOffset.json", lambda: 5_000, most_light=2)
    table.commit("g", "%LMQ%x", 0, 1)
    table.pulled("%LMQ%g", "orders", 0, 1)
    assert table.has_room("g", "%LMQ%x")
    assert table.has_room("g", "orders")
    for group, topic in (("g", "%LMQ%y"), ("h", "%LMQ%x"), ("%LMQ%h", "orders")):
        assert not table.has_room(group, topic)
        table.pulled(group, topic, 0, 1)
        assert table.query_pulled(group, topic, 0) == -1
    table.forget_topic("%LMQ%x")
    assert table.has_room("h", "%LMQ%y")


def test_a_store_without_light_queues_gets_no_file_of_them(tmp_path: Path) -> None:
    table = offsets_in(tmp_path, None)
    table.commit("g", "orders", 0, 1)
    table.save()
    assert not (tmp_path / "lmqConsumerOffset.json").exists()


# --- topics that a kill keeps from being written ----------------------------------------------


async def test_a_topic_that_is_not_written_yet_has_its_queues_after_a_kill(
    tables: Tables,
) -> None:
    topics = tables.topics()
    topics.create_for_send("T", "TBW102", 4)
    topics.create_for_send("Gone", "TBW102", 4)
    topics.delete("Gone", 7)
    topics.create_for_send("Again", "TBW102", 4)
    topics.delete("Again", 7)
    topics.create_for_send("Again", "TBW102", 3)
    # Nothing is written as long as the event loop does not run.
    assert not (tables.directory / "topics.json").exists()

    after = tables.topics()
    assert after.table["T"] == topics.table["T"]
    assert after.table["T"].write_queue_nums == 4
    assert after.table["Again"].write_queue_nums == 3
    assert after.get("Gone") is None
    assert not after.is_saved("T")


async def test_what_is_written_is_not_noted_twice(tables: Tables) -> None:
    notes = tables.directory / "topics.new"
    topics = tables.topics()
    topics.create_for_send("T", "TBW102", 4)
    assert notes.exists()
    await topics.saved()
    topics.delete("T", 7)
    await topics.saved()
    assert not notes.exists()
    assert tables.topics().get("T") is None


@pytest.mark.parametrize(
    "end",
    [b'{"created":{"topicName":"U"', b"\x00\x00\n", b"[]\n", b'{"x":' * 100_000],
    ids=["cut", "zeros", "list", "deep"],
)
async def test_a_note_that_the_kill_cut_off(tables: Tables, end: bytes) -> None:
    tables.topics().create_for_send("T", "TBW102", 4)
    notes = tables.directory / "topics.new"
    notes.write_bytes(notes.read_bytes() + end)
    after = tables.topics()
    assert "T" in after.table
    assert "U" not in after.table


async def test_notes_after_one_that_was_cut_off_count(tables: Tables) -> None:
    tables.topics().create_for_send("T", "TBW102", 4)
    notes = tables.directory / "topics.new"
    notes.write_bytes(notes.read_bytes()[:-20])
    tables.topics().create_for_send("U", "TBW102", 3)
    # The next kill comes before topics.json is written.
    assert tables.topics().table["U"].write_queue_nums == 3


async def test_a_stop_leaves_no_notes(tables: Tables) -> None:
    tables.topics().create_for_send("T", "TBW102", 4)
    await tables.stop()
    assert not (tables.directory / "topics.new").exists()
    assert tables.topics().table["T"].write_queue_nums == 4
