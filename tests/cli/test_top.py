"""`pocketmq top`: rates from two looks, and what is shown of them."""

from __future__ import annotations

import signal

from pocketmq.cli.administration.traffic import group_rows, topic_rows
from pocketmq.client.admin.traffic import Look, Progress
from tests.cli.conftest import Call
from tests.cli.running import Running


def test_topics_are_in_the_order_of_their_rates() -> None:
    before = Look(10.0, {"slow": 100, "fast": 0, "idle": 7, "made anew": 50}, {})
    now = Look(12.0, {"slow": 110, "fast": 200, "idle": 7, "made anew": 3, "new": 5}, {})
    rates = [(row["topic"], row["inPerSecond"]) for row in topic_rows(before, now)]
    assert rates == [
        ("fast", 100.0), ("slow", 5.0), ("idle", 0.0), ("made anew", 0.0), ("new", 0.0),
    ]  # fmt: skip


def test_groups_tell_how_long_they_need_to_catch_up() -> None:
    before = Look(0.0, {}, {
        "gains": Progress(1000, 0, 1000), "loses": Progress(100, 50, 50),
        "done": Progress(10, 10, 0),
    })  # fmt: skip
    now = Look(10.0, {}, {
        "gains": Progress(1100, 600, 500), "loses": Progress(300, 60, 240),
        "done": Progress(20, 20, 0), "new": Progress(9, 0, 9),
    })  # fmt: skip
    rows = group_rows(before, now)
    assert [(row["group"], row["lag"], row["secondsToCatchUp"]) for row in rows] == [
        ("gains", 500, 10), ("loses", 240, None), ("new", 9, None), ("done", 0, 0),
    ]  # fmt: skip
    assert (rows[0]["inPerSecond"], rows[0]["outPerSecond"]) == (10.0, 60.0)


def test_one_view_of_a_cluster(call: Call) -> None:
    call("topics", "create", "rushing", "--queues", "1")
    call("send", "rushing", "a", "b", "c")
    call("pull", "rushing", "-g", "strollers", "--count", "1")
    arguments = ("top", "--once", "--interval", "100ms", "--count", "1000")
    [view] = call(*arguments, "--json").rows
    topics = {row["topic"]: row for row in view["topics"]}
    groups = {row["group"]: row for row in view["groups"]}
    assert topics["rushing"]["end"] == 3
    assert groups["strollers"]["lag"] == 2
    assert [broker["broker"] for broker in view["brokers"]] == ["broker-a"]
    assert "TOOLS_CONSUMER" not in groups
    text = call(*arguments).out
    for word in ("BROKER", "TOPIC", "CATCH UP", "rushing", "strollers"):
        assert word in text


def test_it_goes_on_until_a_signal(namesrv: str) -> None:
    arguments = ("top", "--interval", "100ms", "--json", "-n", namesrv)
    with Running(*arguments) as top:
        while len(top.out) < 2:
            top.wait_for("brokers")
        assert top.stop(signal.SIGINT) == 130
    assert top.err == []
