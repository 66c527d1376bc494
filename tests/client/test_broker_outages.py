"""What a consumer logs of brokers that fail."""

from __future__ import annotations

import logging

import pytest

from pocketmq.client.consumer.broker_outages import BrokerOutages
from pocketmq.client.errors import RemotingConnectError, RemotingTimeout, SystemBusy
from pocketmq.client.instance import ClientInstance


class Watch:
    """The outages of one consumer, with a clock that a test moves, and what is logged of them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 100.0
        self._caplog = caplog
        caplog.set_level(logging.INFO, "pocketmq.client.consumer")
        instance = ClientInstance("127.0.0.1:1")
        self.outages = BrokerOutages(instance, "G", lambda: self.now)

    @property
    def told(self) -> list[str]:
        return [f"{r.levelname} {r.getMessage()}" for r in self._caplog.records]


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> Watch:
    return Watch(caplog)


def test_a_silent_broker_is_one_outage_whatever_failed(watch: Watch) -> None:
    watch.outages.failed("a", "reading", RemotingTimeout("no answer"), "T")
    watch.outages.failed("a", "committing", RemotingConnectError("refused"), "T")
    watch.outages.failed("a", "reading", RemotingTimeout("no answer"), "T2")
    watch.now += 2.5
    watch.outages.answered("a", "committing", "T")
    watch.outages.answered("a", "reading", "T2")
    warning, end = watch.told
    assert warning.startswith("WARNING group G: broker a fails, trying again: reading topic T: ")
    assert end == "INFO group G: broker a works again after 2.5 s"


def test_an_error_answer_is_of_one_activity(watch: Watch) -> None:
    busy = SystemBusy("no")
    watch.outages.failed("a", "reading", busy, "T")
    watch.outages.failed("a", "reading", busy, "T")
    watch.outages.failed("a", "reading", busy, "T2")
    watch.outages.failed("b", "locking", busy)
    watch.outages.answered("a", "committing", "T")
    assert [line.split(": ")[2] for line in watch.told] == [
        "reading topic T", "reading topic T2", "locking queues",
    ]  # fmt: skip
    watch.outages.answered("a", "reading", "T")
    assert watch.told[3:] == ["INFO group G: broker a works again after 0.0 s: reading topic T"]


def test_the_next_outage_is_told_again(watch: Watch) -> None:
    for _ in range(2):
        watch.outages.failed("a", "locking", RemotingTimeout("no answer"))
        watch.outages.answered("a", "locking")
    assert [line.partition(" ")[0] for line in watch.told] == ["WARNING", "INFO"] * 2


def test_a_topic_that_is_read_anew_has_its_failures_told_again(watch: Watch) -> None:
    for _ in range(2):
        watch.outages.failed("a", "reading", SystemBusy("no"), "T")
        watch.outages.forget("T")
    assert len(watch.told) == 2


def test_a_lost_connection_to_a_name_server_is_no_outage_of_a_broker(watch: Watch) -> None:
    watch.outages.lost("127.0.0.1:9876")
    assert watch.told == []
