from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST, OffsetBounds
from pocketmq.store.scan.queues.selection import Range
from tests.store.made_store import write

pytest.importorskip("pyspark")

from pocketmq.spark.by_broker import BrokerBounds
from pocketmq.spark.options.options import NAMES, OptionError, Options, Use


def parse(**options: str) -> Options:
    return Options.parse({"path": "/store", **options}, Use.BATCH)


def test_defaults() -> None:
    options = parse()
    assert options.roots == (Path("/store"),)
    assert (options.topics, options.topic_pattern, options.queues) == (None, None, None)
    assert options.starting == BrokerBounds(EARLIEST)
    assert options.ending == BrokerBounds(LATEST)
    assert options.stored == Range()
    assert (options.min_partitions, options.max_records_per_partition) == (1, None)
    assert options.fail_on_data_loss
    assert options.decompress
    assert not options.include_system_topics
    assert not options.include_metadata
    assert options.push_filters is None


def test_names_do_not_mind_case() -> None:
    options = Options.parse({"PATH": "/s", "failondataloss": "FALSE", "INCLUDEMETADATA": "true"})
    assert not options.fail_on_data_loss
    assert options.include_metadata


def test_which_queues_are_wanted() -> None:
    assert parse().wants("a", "T", 0)
    assert not parse().wants("a", "SCHEDULE_TOPIC_XXXX", 0)
    assert parse(includeSystemTopics="true").wants("a", "SCHEDULE_TOPIC_XXXX", 0)
    named = parse(subscribe="A, %RETRY%g ,")
    assert named.named_topics() == {"A", "%RETRY%g"}
    assert named.wants("a", "%RETRY%g", 3)
    assert not named.wants("a", "B", 0)
    pattern = parse(subscribePattern="order.*|%RETRY%.*")
    assert pattern.wants("a", "orders", 0)
    assert not pattern.wants("a", "reorders", 0)
    assert not pattern.wants("a", "%RETRY%g", 0)
    assert parse(subscribePattern=".*", includeSystemTopics="true").wants("a", "%RETRY%g", 0)
    assigned = parse(assign='{"A":[0,2]}')
    assert [assigned.wants("a", "A", number) for number in range(3)] == [True, False, True]
    assert not assigned.wants("a", "B", 0)


def test_offsets() -> None:
    options = parse(
        startingOffsets='{"A":{"0":23,"1":-2}}', endingOffsets='{"A":{"0":30,"1":-1},"B":{"3":7}}'
    )
    for broker in ("a", "b"):
        starting = OffsetBounds(EARLIEST, {"A": {0: 23, 1: EARLIEST}})
        assert options.starting.of(broker) == starting
        ending = OffsetBounds(LATEST, {"A": {0: 30, 1: LATEST}, "B": {3: 7}})
        assert options.ending.of(broker) == ending
    options = parse(startingOffsets=" Earliest", endingOffsets="LATEST ")
    assert options.starting == BrokerBounds(EARLIEST)
    assert options.ending == BrokerBounds(LATEST)


def test_offsets_and_queues_of_brokers() -> None:
    """The form of the older RocketMQ connector, topic by topic; a broker may be called 0."""
    options = parse(startingOffsets='{"A":{"0":{"0":23},"b":{"0":42}},"B":{"1":5}}')
    assert options.starting.of("0").by_queue == {"A": {0: 23}, "B": {1: 5}}
    assert options.starting.of("b").by_queue == {"A": {0: 42}, "B": {1: 5}}
    assert options.starting.of("c").by_queue == {"B": {1: 5}}
    assigned = parse(assign='{"A":{"a":[0],"b":[1]},"B":[2]}')
    wanted = [
        (broker, topic, number)
        for broker in "abc" for topic in "ABC" for number in range(3)
        if assigned.wants(broker, topic, number)
    ]  # fmt: skip
    assert wanted == [("a", "A", 0), ("a", "B", 2), ("b", "A", 1), ("b", "B", 2), ("c", "B", 2)]
    assert assigned.named_topics() == {"A", "B"}


def test_times_win_over_offsets() -> None:
    options = parse(
        startingOffsets='{"A":{"0":5}}',
        endingOffsets='{"A":{"0":9}}',
        startingTimestamp="1795240640388",
        endingTimestamp="2026-11-21T05:58:00.5+01:00",
    )
    assert (options.starting, options.ending) == (BrokerBounds(EARLIEST), BrokerBounds(LATEST))
    assert options.stored == Range(1795240640388, 1795237080500)


def test_a_time_without_a_zone_is_local(in_shanghai: None) -> None:
    assert parse(startingTimestamp="2026-11-21T08:00").stored.start == 1795219200000
    assert parse(startingTimestamp="2026-11-21T00:00Z").stored.start == 1795219200000


def test_several_stores(tmp_path: Path) -> None:
    for name in ("a", "b", "with,comma"):
        (tmp_path / name).mkdir()
    a, b = tmp_path / "a", tmp_path / "b"
    assert parse(path=f"{a}, file://{b}").roots == (a, b)
    assert parse(path=f"{tmp_path}/[ab]").roots == (a, b)
    as_json = Options.parse({"paths": f'["{a}","{tmp_path}/with,comma"]'})
    assert as_json.roots == (a, tmp_path / "with,comma")
    assert parse(path="~/store").roots == (Path.home() / "store",)
    assert parse(path="store").roots == (Path.cwd() / "store",)


def test_a_store_is_read_once_by_whatever_names(tmp_path: Path) -> None:
    a, b, link = (tmp_path / name for name in ("a", "b", "link"))
    a.mkdir()
    b.mkdir()
    link.symlink_to(a)
    assert parse(path=f"{a},{b},{a}/").roots == (a, b)
    assert parse(path=f"{link},{a}").roots == (link,)
    assert parse(path=f"{tmp_path}/*").roots == (a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.bootstrap.servers": "x"}, "there is no such option; known: path, paths"),
        ({"subscribe": "A", "assign": '{"A":[0]}'}, "cannot go with option subscribe"),
        ({"subscribe": " , "}, "at least one topic"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "A"}, "queue ids by topic"),
        ({"assign": '{"A":["0"]}'}, "queue ids by topic"),
        ({"startingOffsets": "latest"}, "need earliest, or offsets"),
        ({"endingOffsets": "earliest"}, "need latest, or offsets"),
        ({"startingOffsets": "5"}, "need earliest, or offsets"),
        ({"startingOffsets": '{"A":5}'}, "need earliest, or offsets"),
        ({"startingOffsets": '{"A":{"x":5}}'}, "need earliest, or offsets"),
        ({"startingOffsets": '{"A":{"0":-3}}'}, "need earliest, or offsets"),
        ({"startingOffsets": '{"A":{"0":-1}}'}, "need earliest, or offsets"),
        ({"startingOffsets": '{"A":{"b":{"0":5},"1":3}}'}, "by topic, broker and queue"),
        ({"startingOffsets": '{"A":{"":{"0":5}}}'}, "one of the brokers has no name"),
        ({"assign": '{"A":{"":[0]}}'}, "one of the brokers has no name"),
        ({"assign": '{"A":{"b":0}}'}, "by topic and broker"),
        ({"endingOffsets": '{"A":{"0":-2}}'}, "need latest, or offsets"),
        ({"endingOffsets": '{"A":{"0":true}}'}, "need latest, or offsets"),
        ({"startingTimestamp": "yesterday"}, "ISO 8601"),
        ({"startingTimestamp": "0001-01-01"}, "ISO 8601"),
        ({"minPartitions": "0"}, "a number above 0"),
        ({"maxRecordsPerPartition": "many"}, "a number above 0"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"pushFilters": "maybe"}, "auto, oneQuery or false"),
        ({"pushFilters": "true"}, "any other use of it would lack rows"),
        ({"path": "/none/*/here"}, "nothing matches"),
        ({"path": ""}, "the directory of a store is needed"),
        ({"path": "/a,"}, "one of the directories has no name"),
        ({"path": "/a, ,/b"}, "one of the directories has no name"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse(**options)
    name = list(options)[-1]
    assert f"option {name} = {options[name]!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("[]", "the directory of a store is needed"),
        ('["/a",""]', "one of the directories has no name"),
        ('["/none/*/here"]', "nothing matches"),
        ("/a", "a JSON list of paths"),
    ],
)
def test_lists_of_paths_that_cannot_be_meant(paths: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        Options.parse({"paths": paths})
    assert f"option paths = {paths!r}" in str(caught.value)


def test_every_option_is_told_of_where_users_look() -> None:
    from pocketmq.spark.source import RocketMQDataSource

    text = str(RocketMQDataSource.__doc__)
    missing: list[Any] = [name for name in NAMES if name not in text and name != "paths"]
    assert not missing


def test_a_directory_with_a_wildcard_in_its_name(tmp_path: Path) -> None:
    store = tmp_path / "store[1]"
    store.mkdir()
    (tmp_path / "store1").mkdir()
    assert Options.parse({"path": str(store)}).roots == (store,)
    assert Options.parse({"paths": json.dumps([str(store)])}).roots == (store,)
    assert Options.parse({"path": f"{tmp_path}/store[0-9]"}).roots == (tmp_path / "store1",)


def test_urls_name_archives() -> None:
    options = parse(path="s3a://bucket/a, /store, S3A://bucket/a/")
    assert options.roots == (Path("/store"),)
    assert [str(archive) for archive in options.archives] == ["s3a://bucket/a"]
    with pytest.raises(OptionError, match="names no bucket") as raised:
        parse(path="s3:///a?secret=hush")
    assert "hush" not in str(raised.value)


def streamed(**options: str) -> Options:
    return Options.parse({"path": "/store", **options}, Use.STREAM)


def test_options_of_streams() -> None:
    assert streamed().starting == BrokerBounds(LATEST)
    assert streamed(startingOffsets="earliest").starting == BrokerBounds(EARLIEST)
    some = streamed(startingOffsets='{"A":{"0":-1,"1":7}}').starting.of("a")
    assert some == OffsetBounds(EARLIEST, {"A": {0: LATEST, 1: 7}})
    assert (streamed().max_offsets_per_trigger, streamed().min_offsets_per_trigger) == (None, None)
    assert streamed(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").min_offsets_per_trigger == 5
    assert not streamed().read_unflushed
    delays = {"": 900, "1500": 1.5, "90s": 90, "2 min": 120, "1H": 3_600, "1d": 86_400}
    for text, seconds in delays.items():
        given = {"maxTriggerDelay": text} if text else {}
        assert streamed(**given).max_trigger_delay == seconds


@pytest.mark.parametrize(
    ("use", "option"),
    [
        *((Use.STREAM, name) for name in ("endingOffsets", "endingTimestamp", "pushFilters")),
        *((Use.BATCH, name) for name in ("maxOffsetsPerTrigger", "maxTriggerDelay")),
        *((Use.BATCH, name) for name in ("minOffsetsPerTrigger", "readUnflushed")),
    ],
)
def test_options_without_a_meaning(use: Use, option: str) -> None:
    value = {"endingOffsets": "latest", "pushFilters": "oneQuery", "readUnflushed": "true"}
    options = {"path": "/store", option: value.get(option, "100000000000")}
    Options.parse(options)  # for the schema Spark does not say which it is
    with pytest.raises(OptionError, match=f"option {option} = .*(a stream does not|only a stream)"):
        Options.parse(options, use)


@pytest.mark.parametrize(
    "value", ["20261127", "1700000000", "1", "1764230400000000", "20261127080000"]
)
@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
def test_times_that_are_not_in_milliseconds(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} = '{value}': as milliseconds since 1970"):
        parse(**{name: value})
    assert parse(**{name: "0"}).stored != parse().stored


def test_what_a_catalog_adds_is_no_option() -> None:
    added = {"provider": "rocketmq", "owner": "root", "location": "file:/s", "dbt": "1"}
    given = {"path": "file:/s", "subscribe": "a", "option.subscribe": "a"}
    parsed = Options.parse({**added, **given})
    assert parsed.roots == (Path("/s"),)
    assert parsed.topics == frozenset({"a"})
    with pytest.raises(OptionError, match="did you mean subscribe"):
        Options.parse({**added, **given, "subscrib": "a", "option.subscrib": "a"})


def test_only_reply_topics_of_clusters_are_hidden(tmp_path: Path) -> None:
    topics: dict[str, object] = {
        "rmq_sys_REVIVE_LOG_C": {},
        "C_REPLY_TOPIC": {},
        "ORDERS_REPLY_TOPIC": {},
    }
    write(tmp_path / "config" / "topics.json", json.dumps({"topicConfigTable": topics}).encode())
    parsed = Options.parse({"path": str(tmp_path)})
    assert not parsed.wants_topic("C_REPLY_TOPIC")
    assert parsed.wants_topic("ORDERS_REPLY_TOPIC")
    assert parsed.wants_topic("RMQ_SYS_OF_OURS")
    assert not parsed.wants_topic("RMQ_SYS_TRACE_TOPIC")
