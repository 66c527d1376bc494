"""The plugin in somebody else's test suite."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[2]

SUITE = """
import pytest
from pocketmq import Message, Producer
from pocketmq.errors import TopicNotExist

async def test_one(rocketmq):
    await rocketmq.create_topic("orders", queues=1)
    async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message("orders", b"1"))
    assert [message.body for message in await rocketmq.drain("orders")] == [b"1"]

async def test_another_begins_empty(rocketmq):
    with pytest.raises(TopicNotExist, match="topic orders does not exist: create it"):
        await rocketmq.drain("orders")
    await rocketmq.create_topic("orders")
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


SYNCHRONOUS = """
from concurrent.futures import ThreadPoolExecutor
from pocketmq import Message, sync

def test_one(rocketmq):
    rocketmq.sync.create_topic("orders", queues=1)
    with sync.Producer("shop", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message("orders", b"1"))
        with ThreadPoolExecutor() as threads, rocketmq.hold("SEND_MESSAGE_V2") as held:
            sending = threads.submit(producer.send, Message("orders", b"2"))
            held.wait(timeout=60)
            assert not sending.done()
            held.release()
            sending.result()
    assert [message.body for message in rocketmq.sync.drain("orders")] == [b"1", b"2"]

def test_handlers_and_retries(rocketmq):
    consumer = sync.PushConsumer("billing", namesrv=rocketmq.namesrv, start="begin")
    attempts = []

    @consumer.on("orders")
    def bill(message):
        attempts.append(message.body)
        assert len(attempts) == 3

    with sync.Producer("shop", namesrv=rocketmq.namesrv) as producer, consumer:
        producer.send(Message("orders", b"1"))
        rocketmq.sync.idle("billing", timeout=60)
        assert attempts == [b"1"]
        rocketmq.sync.advance(60, patience=60)
        assert attempts == [b"1"] * 3
    rocketmq.sync.restart_broker()
    assert len(rocketmq.sync.drain("orders")) == 1
"""

SCOPES = """
import pytest
from pocketmq import Message, Producer, sync

@pytest.fixture(scope="session")
def rocketmq_properties():
    return {"brokerName": "mine"}

async def send(rocketmq):
    async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        return await producer.send(Message("orders", b"1"))

@pytest.mark.asyncio(loop_scope="function")
async def test_function(rocketmq, rocketmq_module, rocketmq_session):
    for server in (rocketmq, rocketmq_module, rocketmq_session):
        assert (await send(server)).queue.broker_name == "mine"
        assert len(await server.drain("orders")) == 1

@pytest.mark.asyncio(loop_scope="module")
async def test_module(rocketmq, rocketmq_module, rocketmq_session):
    for server in (rocketmq, rocketmq_module, rocketmq_session):
        await send(server)
        assert len(await server.drain("orders")) == 1
    assert rocketmq.namesrv != rocketmq_module.namesrv != rocketmq_session.namesrv

@pytest.mark.asyncio(loop_scope="session")
async def test_session(rocketmq_module, rocketmq_session):
    for server in (rocketmq_module, rocketmq_session):
        await send(server)
        await server.restart_broker()
        assert len(await server.drain("orders")) == 1

def test_synchronous(rocketmq_session):
    with sync.Producer("shop", namesrv=rocketmq_session.namesrv) as producer:
        producer.send(Message("orders", b"1"))
    assert len(rocketmq_session.sync.drain("orders")) == 1
"""


def run(
    pytester: pytest.Pytester, *arguments: str, suite: str = SUITE, mode: str = "auto"
) -> pytest.RunResult:
    pytester.makepyfile(suite)
    pytester.makeini(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function"
    )
    pytester.syspathinsert(PROJECT)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_suite_that_names_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["pocketmq.testing.plugin"]')
    run(pytester).assert_outcomes(passed=3)


def test_synchronous_tests_without_a_plugin_for_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["pocketmq.testing.plugin"]')
    run(pytester, "-p", "no:asyncio", suite=SYNCHRONOUS).assert_outcomes(passed=2)


def test_every_scope_of_fixtures_and_loops(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["pocketmq.testing.plugin"]')
    run(pytester, suite=SCOPES, mode="strict").assert_outcomes(passed=4)


def test_the_fixtures_are_described(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["pocketmq.testing.plugin"]')
    result = run(pytester, "--fixtures", "-q")
    shown = str(result.stdout)
    for line in (
        "A running `RocketMQ` with an empty store, for one test.",
        "A running `RocketMQ` that the tests of a module share.",
        "A running `RocketMQ` that all tests share.",
    ):
        assert line in shown


def test_an_installed_pocketmq_brings_the_plugin_by_itself() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    # The name is the module's, so that naming it in pytest_plugins too does not register it twice.
    assert project["entry-points"]["pytest11"] == {
        "pocketmq.testing.plugin": "pocketmq.testing.plugin"
    }
