"""The table of SQL92 expressions: versions, death, its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.bloom import BloomFilter, murmur3_64
from pocketmq.broker.tables.consumer_filter import NEW_CHARACTERS, ConsumerFilters, NewExpressions
from pocketmq.message.sql_filter import compile_sql
from pocketmq.remoting.bodies.heartbeat import SubscriptionData

DAY = 24 * 3600 * 1000


class World:
    """The table, its clock and its file."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_700_000_000_000
        self.path = directory / "consumerFilter.json"
        self.filters = self.open()

    def open(self, **options: int) -> ConsumerFilters:
        config = BrokerConfig(broker_name="b")
        filters = ConsumerFilters(config, self.path, lambda: self.now, **options)
        filters.load()
        return filters

    def register(self, *expressions: tuple[str, str, int], group: str = "G") -> None:
        """Topic, expression and version of each subscription."""
        subscriptions = [
            SubscriptionData(
                topic=topic, sub_string=text, expression_type="SQL92", sub_version=version
            )
            for topic, text, version in expressions
        ]
        new = NewExpressions()
        self.filters.find_new(group, subscriptions, new)
        self.filters.register(group, subscriptions, new)

    def known(self, topic: str = "T", group: str = "G") -> tuple[str, int, bool] | None:
        data = self.filters.get(group, topic)
        return None if data is None else (data.expression, data.client_version, data.dead)

    async def written(self) -> dict[str, dict[str, object]]:
        await self.filters.save()
        by_topic = json.loads(self.path.read_text())["filterDataByTopic"]
        return {topic: entry["groupFilterData"] for topic, entry in by_topic.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_higher_version_stays(world: World) -> None:
    world.register(("T", "a > 1", 5))
    world.register(("T", "a > 2", 4))
    world.register(("T", "a > 3", 5))
    assert world.known() == ("a > 1", 5, False)

    world.register(("T", "a > 4", 6))
    assert world.known() == ("a > 4", 6, False)
    world.register(("T", "a > 4", 7))
    assert world.known() == ("a > 4", 7, False)


def test_a_bad_expression_is_not_kept_and_takes_the_old_one_away(world: World) -> None:
    world.register(("T", "a >", 5))
    assert world.known() is None

    world.register(("T", "a > 1", 5))
    world.register(("T", "a >", 6))
    assert world.known() is None


def test_what_is_not_subscribed_to_any_more_dies_and_comes_back(world: World) -> None:
    world.register(("T", "a > 1", 5), ("U", "b > 1", 5))
    world.register(("U", "b > 1", 5))
    assert (world.known("T"), world.known("U")) == (("a > 1", 5, True), ("b > 1", 5, False))

    world.register(("T", "a > 1", 5), ("U", "b > 1", 5))
    assert world.known("T") == ("a > 1", 5, False)

    world.filters.unregister("G")
    assert (world.known("T"), world.known("U")) == (("a > 1", 5, True), ("b > 1", 5, True))


async def test_the_dead_are_forgotten_after_a_day(world: World) -> None:
    world.register(("T", "a > 1", 5))
    world.filters.unregister("G")
    world.now += DAY - 1
    assert set(await world.written()) == {"T"}

    world.now += 1
    assert await world.written() == {}
    assert world.known() is None


def test_there_is_an_end_to_what_is_kept(world: World) -> None:
    world.filters = world.open(max_bytes=10_000)
    world.register(*[(f"T{n}", "a > 1", 1) for n in range(20)])
    assert sum(world.known(f"T{n}") is not None for n in range(20)) == 9

    # The dead make room, and what changes takes no more.
    for n in range(100):
        world.register((f"U{n}", "a > 1", 1))
        world.register((f"U{n}", "a > 2", 2))
        assert world.known(f"U{n}") == ("a > 2", 2, False)
    assert world.known("T0") is None


def test_what_is_kept_counts_as_the_memory_that_it_takes(world: World) -> None:
    world.filters = world.open(max_bytes=100_000)
    wide = "\U0001f600" * 10_000  # of four bytes each
    world.register(("T1", f"a = '{wide}'", 1), ("T2", f"b = '{wide}'", 1))
    assert [world.known(topic) is not None for topic in ("T1", "T2")] == [True, False]
    assert world.filters.unsaved() is not None  # written as UTF-8, a text takes more
    for n in range(20):
        world.register((f"U{n}", f"a = '{n}{wide}'", 1))
    assert world.known("U19") is not None
    assert world.known("T1") is None
    assert sum(world.known(f"U{n}") is not None for n in range(20)) == 1


def test_a_heartbeat_has_so_much_compiled_and_the_next_one_the_rest(world: World) -> None:
    expressions = [
        (f"T{topic}", " OR ".join(f"a{topic} = {n}" for n in range(400)), 1) for topic in range(20)
    ]
    size = len(expressions[-1][1])
    known = 0
    while known < len(expressions):
        world.register(*expressions)
        before, known = known, sum(world.known(topic) is not None for topic, _, _ in expressions)
        assert 0 < known - before <= NEW_CHARACTERS // size + 2


def test_the_cost_of_a_group_s_expressions(world: World) -> None:
    assert world.filters.cost_of("G") == 1
    for terms in (1, 10, 500):
        text = " OR ".join(["a=1"] * terms)
        world.register(("T", text, terms))
        assert world.filters.cost_of("G") >= compile_sql(text).cost


async def test_a_restart_finds_everybody_dead(world: World) -> None:
    world.register(("T", "a > 1", 5), ("U", "b = '值'", 5))
    await world.filters.save()
    world.now += DAY

    world.filters = world.open()

    assert world.known("U") == ("b = '值'", 5, True)
    data = world.filters.get("G", "T")
    assert data is not None
    assert data.dead_time == world.now - 30_000


async def test_what_others_keep_in_the_file_stays(world: World) -> None:
    world.register(("T", "a > 1", 5))
    await world.filters.save()
    document = json.loads(world.path.read_text())
    document["later"] = 1
    document["filterDataByTopic"]["T"]["groupFilterData"]["G"]["alsoLater"] = [2]
    world.path.write_text(json.dumps(document))

    world.filters = world.open()
    world.register(("T", "a > 1", 6))
    await world.filters.save()

    document = json.loads(world.path.read_text())
    data = document["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert (document["later"], data["alsoLater"], data["clientVersion"]) == (1, [2], 6)


async def test_nothing_is_written_when_nothing_changed(world: World) -> None:
    assert world.filters.unsaved() is not None, "there is no file yet"
    assert world.filters.unsaved() is None

    world.register(("T", "a > 1", 5))
    assert world.filters.unsaved() is not None
    world.register(("T", "a > 1", 5))
    assert world.filters.unsaved() is None


# As the official broker wrote it, down to the tabs.
OFFICIAL = """{
	"filterDataByTopic":{
		"Interop_1":{
			"groupFilterData":{
				"sql_Interop_1":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[21,5,111]
					},
					"bornTime":1795259178270,
					"clientVersion":1795259178956,
					"consumerGroup":"sql_Interop_1",
					"dead":false,
					"deadTime":0,
					"expression":"age > 18 OR city IN ('Rome', 'Köln')",
					"expressionType":"SQL92",
					"topic":"Interop_1"
				}
			},
			"topic":"Interop_1"
		}
	}
}"""


async def test_what_the_official_broker_wrote(world: World) -> None:
    world.path.write_text(OFFICIAL)
    world.now = 1795259178956 + DAY

    world.filters = world.open()
    assert world.known("Interop_1", "sql_Interop_1") == (
        "age > 18 OR city IN ('Rome', 'Köln')",
        1795259178956,
        True,
    )
    world.register(("T", "a > 1", 1))

    theirs = json.loads(OFFICIAL)["filterDataByTopic"]["Interop_1"]["groupFilterData"]
    dead = {"dead": True, "deadTime": world.now - 30_000}
    assert (await world.written())["Interop_1"] == {
        "sql_Interop_1": {**theirs["sql_Interop_1"], **dead}
    }


def test_bloom_positions_are_the_official_ones() -> None:
    bloom = BloomFilter(20, 32)
    assert (bloom.bit_count, bloom.hash_count) == (112, 3)
    # As the official broker wrote them, with its defaults.
    assert bloom.generate("sql_Interop_1#Interop_1").bit_pos == [21, 5, 111]
    assert bloom.generate("go_Interop_5#Interop_5").bit_pos == [23, 48, 88]
    assert murmur3_64(b"hello, world") == 0x342FAC623A5EBC8E
    assert murmur3_64(b"") == 0
