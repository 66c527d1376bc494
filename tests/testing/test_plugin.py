"""The plugin in somebody else's test suite."""

import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[2]

SUITE = """
import pytest
from pocketmq import Message, Producer

async def test_one(rocketmq):
    await rocketmq.create_topic("orders", queues=1)
    async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message("orders", b"1"))
    assert [message.body for message in await rocketmq.drain("orders")] == [b"1"]

async def test_another_begins_empty(rocketmq):
    assert await rocketmq.drain("orders") == []

class TestOther:
    @pytest.fixture
    def rocketmq_properties(self):
        return {"autoCreateTopicEnable": "false"}

    async def test_properties(self, rocketmq):
        async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            with pytest.raises(Exception, match="No route info"):
                await producer.send(Message("orders", b"1"))
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    pytester.syspathinsert(PROJECT)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_suite_that_names_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["pocketmq.testing.plugin"]')
    run(pytester).assert_outcomes(passed=3)


def test_the_fixtures_are_described(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["pocketmq.testing.plugin"]')
    result = run(pytester, "--fixtures", "-q")
    result.stdout.fnmatch_lines(["rocketmq_properties*", "rocketmq*"])
    result.stdout.fnmatch_lines(["*A running `RocketMQ` with an empty store."])


def test_an_installed_pocketmq_brings_the_plugin_by_itself() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    # The name is the module's, so that naming it in pytest_plugins too does not register it twice.
    assert project["entry-points"]["pytest11"] == {
        "pocketmq.testing.plugin": "pocketmq.testing.plugin"
    }
