"""topics, groups, clients, lag, reset, message, config, status, cluster: against one `pocketmq
serve`."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from unittest.mock import ANY

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.conftest import Call
from tests.cli.running import TIMEOUT, Running, command, environment

BROKER = "broker-a"


def test_a_topic_is_created_shown_listed_and_deleted(call: Call) -> None:
    created = call("topics", "create", "receipts", "--queues", "2", "--type", "fifo")
    assert created == (ExitCode.OK, f"topic receipts has 2 queues on {BROKER}\n", "")
    assert "receipts" in call("topics", "list").out.splitlines()
    call("send", "receipts", "a", "b", "c")
    [shown] = call("topics", "show", "receipts", "--json").rows
    assert shown["brokers"][BROKER] == {
        "readQueues": 2,
        "writeQueues": 2,
        "permission": "read and write",
        "topicPermission": "read and write",
        "attributes": {"message.type": "FIFO"},
        "created": ANY,
        "createdOffset": ANY,
    }
    assert shown["unreadable"] == []
    assert sum(queue["messages"] for queue in shown["queues"]) == 3
    table = call("topics", "show", "receipts").out
    assert f"{BROKER}: 2 queues, read and write, FIFO, created 2" in table
    assert "groups: none has an offset in this topic" in table
    assert call("topics", "delete", "receipts", "--yes").out == "topic receipts is deleted\n"
    assert "receipts" not in call("topics", "list").out.splitlines()


def test_a_topic_does_not_lose_queues_unasked(call: Call) -> None:
    call("topics", "create", "ledger", "--queues", "2")
    call("send", "ledger", *"abcd")
    refused = call("topics", "create", "ledger", "--queues", "1")
    assert refused.code != ExitCode.OK
    assert "topic ledger has 2 queues to read" in refused.err
    assert "--allow-shrink" in refused.err
    kept = call("topics", "create", "ledger", "--queues", "1", "--if-not-exists")
    assert kept == (ExitCode.OK, "topic ledger exists, unchanged\n", "")
    assert call("topics", "create", "ledger", "--queues", "1", "--allow-shrink").code == ExitCode.OK
    [shown] = call("topics", "show", "ledger", "--json").rows
    [left] = shown["unreadable"]
    assert (left["broker"], left["queue"]) == (BROKER, 1)
    assert "in queue 1, which the topic no longer has" in call("topics", "show", "ledger").out


def test_topics_of_the_broker_are_listed_only_with_all(call: Call) -> None:
    call("send", "own", "x")
    topics = {row["topic"] for row in call("topics", "list", "--json").rows}
    assert "own" in topics
    assert not {"TBW102", BROKER, "DefaultCluster", "DefaultCluster_REPLY_TOPIC"} & topics
    assert "TBW102" in call("topics", "list", "--all").out.splitlines()


def test_a_topic_is_not_deleted_unasked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("topics", "create", "kept")
    refused = call("topics", "delete", "kept")
    assert refused.code == ExitCode.USAGE
    assert "repeat the command with --yes" in refused.err
    assert "kept" in call("topics", "list").out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topics", "show", "recepits"), "topic recepits does not exist"),
        (("topics", "delete", "recepits", "--yes"), "topic recepits does not exist"),
        (("topics", "create", "x", "--broker", "b7"), f"no broker b7; the brokers are: {BROKER}"),
        (("groups", "show", "nobody"), "consumer group nobody does not exist"),
        (("lag", "nobody"), "consumer group nobody does not exist"),
        (("reset", "nobody", "own", "--to", "end"), "consumer group nobody does not exist"),
        (("message", "nowhere", "--key", "k"), "topic nowhere does not exist"),
        (("message", "--offset", f"nowhere/{BROKER}/0/0"), "topic nowhere does not exist"),
        (("pull", "nowhere"), "topic nowhere does not exist"),
        (("config", "show", "--cluster", "c7"), "the clusters are: DefaultCluster"),
        (("topics", "list", "--cluster", "c7"), "the clusters are: DefaultCluster"),
        (("topics", "create", "x", "--cluster", "c7"), "no cluster c7; the clusters are: Defa"),
        (("topics", "delete", "own", "--cluster", "c7"), "no cluster c7; the clusters are: Defa"),
        (("groups", "list", "--cluster", "c7"), "the clusters are: DefaultCluster"),
        (("config", "show", "--broker", "b7"), f"the brokers are: {BROKER}"),
    ],
)
def test_what_does_not_exist_is_said_in_one_line(
    call: Call, arguments: tuple[str, ...], said: str
) -> None:
    call("topics", "create", "own")
    ended = call(*arguments)
    assert ended.code == ExitCode.UNAVAILABLE
    assert ended.out == ""
    [line] = ended.err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_the_nearest_name_is_suggested(call: Call) -> None:
    call("send", "invoices", "x")
    call("pull", "invoices", "-g", "accounting")
    assert "did you mean invoices?" in call("pull", "invoces").err
    assert "did you mean accounting?" in call("groups", "show", "acounting").err


def test_the_lag_of_a_group_that_is_not_online(call: Call) -> None:
    call("topics", "create", "lagging", "--queues", "1")
    call("send", "lagging", "a", "b", "c")
    call("pull", "lagging", "-g", "laggards", "--count", "1")
    [row] = call("lag", "laggards", "lagging", "--json").rows
    assert (row["broker"], row["queue"], row["end"], row["consumed"], row["lag"]) == (
        (BROKER, 0, 3, 1, 2)
    )
    text = call("lag", "laggards").out
    assert "group laggards is 2 messages behind; no client of the group is online" in text
    [shown] = call("groups", "show", "laggards", "--json").rows
    assert (shown["online"], shown["clients"], shown["lag"]) == (False, [], 2)
    assert shown["topics"] == [{"topic": "lagging", "queues": 1, "lag": 2}]
    assert "group laggards: no client is online" in call("groups", "show", "laggards").out
    listed = {row["group"]: row for row in call("groups", "list", "--json").rows}
    assert listed["laggards"] == {"group": "laggards", "clients": 0, "lag": 2}
    assert "TOOLS_CONSUMER" not in listed


async def test_the_clients_of_a_group_are_shown(namesrv: str, call: Call) -> None:
    await asyncio.to_thread(call, "topics", "create", "watched", "--queues", "1")
    async with PullConsumer("watchers", namesrv=namesrv) as consumer:
        await consumer.subscribe("watched", "paid || open")
        [shown] = (await asyncio.to_thread(call, "groups", "show", "watchers", "--json")).rows
        assert [client["client"] for client in shown["clients"]] == [consumer.client_id]
        subscriptions = {each["topic"]: each for each in shown["subscriptions"]}
        assert subscriptions["watched"]["expression"] == "paid || open"
        text = (await asyncio.to_thread(call, "groups", "show", "watchers")).out
        assert "group watchers: 1 client online (pull, clustering)" in text
        refused = await asyncio.to_thread(call, "reset", "watchers", "watched", "--to", "0")
        assert "group watchers has 1 client online" in refused.err


def test_a_group_is_reset(call: Call) -> None:
    call("topics", "create", "again", "--queues", "1")
    call("send", "again", "a", "b", "c")
    assert call("pull", "again", "-g", "resetters").out.split() == ["a", "b", "c"]
    moved = call("reset", "resetters", "again", "--to", "begin")
    assert "group resetters continues there in 1 queue of topic again" in moved.out
    assert call("pull", "again", "-g", "resetters", "--count", "2").out.split() == ["a", "b"]
    assert call("reset", "resetters", "again", "--to", "1", "--json").rows == [
        {"broker": BROKER, "queue": 0, "offset": 1}
    ]
    assert call("pull", "again", "-g", "resetters").out.split() == ["b", "c"]
    call("reset", "resetters", "again", "--to", "-1h")
    assert call("pull", "again", "-g", "resetters").out.split() == ["a", "b", "c"]
    call("reset", "resetters", "again", "--to", "2", "--queue", f"{BROKER}/0")
    assert call("pull", "again", "-g", "resetters").out.split() == ["c"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "9"), f"queue {BROKER}/0 of topic bounded has the offsets 0 to 0, not 9"),
        (("--to", "0", "--queue", f"{BROKER}/7"), f"no queue {BROKER}/7; it has {BROKER}/0"),
    ],
)
def test_an_offset_that_no_queue_has_is_refused(
    call: Call, arguments: tuple[str, ...], said: str
) -> None:
    call("topics", "create", "bounded", "--queues", "1")
    call("pull", "bounded", "-g", "bound")
    refused = call("reset", "bound", "bounded", *arguments)
    assert refused.code == ExitCode.FAILURE
    assert said in refused.err


def test_a_message_is_found_by_its_key_id_and_place(call: Call) -> None:
    sent = call("send", "found", "the body", "--key", "o-1", "--key", "o-2", "--tag", "paid")
    match = re.search(r"stored as (\S+), id (\S+)", sent.err)
    assert match is not None
    place, msg_id = match.groups()
    by_key = call("message", "found", "--key", "o-2", "--json")
    [message] = by_key.rows
    assert (message["msgId"], message["body"], message["tags"]) == (msg_id, "the body", "paid")
    assert call("message", "found", "--id", msg_id, "--json").rows == by_key.rows
    assert call("message", "found", "--tag", "paid", "--json").rows == by_key.rows
    assert call("message", "--offset", place, "--json").rows == by_key.rows
    text = call("message", "--offset", place).out
    assert text.startswith(f"place     {place}\n")
    assert text.endswith("8 bytes\nthe body\n")


def test_a_message_that_is_not_there_is_exit_code_1(call: Call) -> None:
    call("topics", "create", "empty", "--queues", "1")
    for by in (("empty", "--key", "k"), ("empty", "--tag", "t"), ("empty", "--id", "0" * 32)):
        missing = call("message", *by)
        assert missing == (ExitCode.FAILURE, "", "no such message is stored\n")
    assert call("message", "--offset", f"empty/{BROKER}/0/5").code == ExitCode.FAILURE
    assert "name the topic" in call("message", "--id", "0" * 32).err


def test_settings_are_shown_and_changed(call: Call) -> None:
    shown = call("config", "show", "recallMessageEnable", "fileReservedTime", "--json").rows
    assert [row["name"] for row in shown] == ["fileReservedTime", "recallMessageEnable"]
    before = shown[0]["value"]
    changed = call("config", "set", "fileReservedTime=48", "--broker", BROKER)
    assert changed.code == ExitCode.OK
    assert changed.out.split()[-4:] == [BROKER, "fileReservedTime", before, "48"]
    assert call("config", "show", "fileReservedTime", "--json").rows[0]["value"] == "48"
    call("config", "set", f"fileReservedTime={before}")
    names = {row["name"] for row in call("config", "show", "--name-servers", "--json").rows}
    assert "listenPort" in names


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("recallMesageEnable=true", "no setting recallMesageEnable, did you mean recallMess"),
        ("listenPort=1", "listenPort"),
        ("fileReservedTime=soon", "'soon'"),
    ],
)
def test_a_setting_that_is_refused_is_named(call: Call, setting: str, said: str) -> None:
    refused = call("config", "set", setting)
    assert refused.code == ExitCode.CONFIG
    assert said in refused.err


def test_the_status_has_a_row_for_each_broker(call: Call) -> None:
    call("send", "counted", "x")
    [row] = call("status", "--json").rows
    assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", BROKER, 0)
    assert row["version"] == "V5_5_0"
    assert row["today"] >= 1
    assert type(row["runningSeconds"]) is int
    assert 0 <= row["diskPercent"] <= 100
    assert row["problem"] is None
    head, line = call("status").out.splitlines()[:2]
    assert head.split() == [
        "CLUSTER", "BROKER", "ADDRESS", "ROLE", "STATE", "LAG", "IN/S", "OUT/S", "DISK", "RUNNING",
        "VERSION",
    ]  # fmt: skip
    assert BROKER in line


def test_the_lag_has_the_store_time_of_the_message_before_the_offset(call: Call) -> None:
    call("topics", "create", "timed", "--queues", "1")
    call("send", "timed", "a", "b")
    call("pull", "timed", "-g", "timers", "--count", "1")
    [message] = call("message", "--offset", f"timed/{BROKER}/0/0", "--json").rows
    [row] = call("lag", "timers", "timed", "--json").rows
    assert row["storeTimestamp"] == message["storeTimestamp"]
    assert "STORE TIMESTAMP" in call("lag", "timers", "timed").out.splitlines()[0]


def test_a_broker_is_not_taken_for_a_name_server(call: Call) -> None:
    [row] = call("status", "--json").rows
    for words in (("send", "a", "x"), ("pull", "a"), ("topics", "list"), ("status",)):
        ended = call(*words, "-n", row["address"])
        assert ended.code == ExitCode.UNAVAILABLE
        assert f"{row['address']} is a broker, not a name server" in ended.err


def test_a_name_server_without_brokers_is_named(call: Call, tmp_path: object) -> None:
    with Running("namesrv", "--listen-port", "0", "--set", f"kvConfigPath={tmp_path}/kv") as lone:
        address = lone.wait_for(r"name server listening on (\S+),")[1]
        for command in (("send", "a", "x"), ("pull", "a"), ("status",), ("topics", "create", "a")):
            ended = call(*command, "-n", address)
            assert ended.code == ExitCode.UNAVAILABLE
            assert f"no broker is registered with the name server {address}" in ended.err


def test_a_send_says_how_a_topic_comes_to_be(call: Call) -> None:
    call("config", "set", "autoCreateTopicEnable=false")
    try:
        ended = call("send", "uncreated", "x")
    finally:
        call("config", "set", "autoCreateTopicEnable=true")
    assert ended.code == ExitCode.UNAVAILABLE
    assert "topic uncreated does not exist, and no broker creates topics by itself" in ended.err
    assert "`pocketmq topics create uncreated`" in ended.err


def test_a_send_to_a_topic_that_is_only_read_says_where_to_look(call: Call) -> None:
    call("topics", "create", "archive", "--permission", "read")
    ended = call("send", "archive", "x")
    assert ended.code == ExitCode.UNAVAILABLE
    assert ended.err.splitlines()[-1] == (
        "error: topic archive has no queue that can be written to; `pocketmq topics show archive` "
        "shows its permission and queues"
    )


def test_a_condition_names_the_setting_that_allows_it(call: Call) -> None:
    call("send", "filtered", "x")
    ended = call("pull", "filtered", "--sql", "amount > 5")
    assert ended.code == ExitCode.FAILURE
    assert "pocketmq config set enablePropertyFilter=true" in ended.err


def test_a_group_is_created_changed_and_deleted(call: Call) -> None:
    created = call("groups", "create", "makers", "--retries", "3")
    assert created == (ExitCode.OK, f"group makers is created on {BROKER}\n", "")
    changed = call("groups", "create", "makers", "--consume", "off", "--broker", BROKER)
    assert changed.out == f"group makers is changed on {BROKER}\n"
    [shown] = call("groups", "show", "makers", "--json").rows
    assert (shown["retryMaxTimes"], shown["consumeEnable"]) == (3, False)
    refused = call("groups", "delete", "makers")
    assert refused.code == ExitCode.USAGE
    assert "--yes" in refused.err
    deleted = call("groups", "delete", "makers", "--yes")
    assert deleted == (ExitCode.OK, "group makers is deleted\n", "")
    assert call("groups", "show", "makers").code == ExitCode.UNAVAILABLE
    assert call("groups", "delete", "makers", "--yes").code == ExitCode.UNAVAILABLE


def test_topics_and_groups_of_a_list_are_deleted(call: Call) -> None:
    for name in ("batch-1", "batch-2", "batch-3"):
        call("topics", "create", name, "--queues", "1")
        call("groups", "create", name)
    for kind in ("topics", "groups"):
        refused = call(kind, "delete", "batch-1", "batch-2")
        assert refused.code == ExitCode.USAGE
        refused = call(kind, "delete", "batch-1", "never-made", "--yes")
        assert refused.code == ExitCode.UNAVAILABLE
        assert "never-made" in refused.err
        deleted = call(kind, "delete", "batch-1", "batch-2", "batch-1", "--yes")
        assert deleted.code == ExitCode.OK
        word = kind.removesuffix("s")
        assert deleted.out == f"{word} batch-1 is deleted\n{word} batch-2 is deleted\n"
        left = call(kind, "list", "--json").rows
        assert [row[word] for row in left if row[word].startswith("batch-")] == ["batch-3"]


async def test_clients_are_listed_and_keep_their_group(namesrv: str, call: Call) -> None:
    await asyncio.to_thread(call, "topics", "create", "busy", "--queues", "1")
    async with (
        Producer("makers-of-clients", namesrv=namesrv) as producer,
        PullConsumer("readers-of-clients", namesrv=namesrv) as consumer,
    ):
        await producer.send(Message("busy", b"x"))
        await consumer.subscribe("busy")
        rows = (await asyncio.to_thread(call, "clients", "--json")).rows
        found = {(row["group"], row["role"], row["client"]) for row in rows}
        assert ("makers-of-clients", "producer", producer.client_id) in found
        assert ("readers-of-clients", "pull consumer", consumer.client_id) in found
        assert {row["version"] for row in rows} == {"5.5.0"}
        [row] = (await asyncio.to_thread(call, "clients", "readers-of-clients", "--json")).rows
        assert row["client"] == consumer.client_id
        table = (await asyncio.to_thread(call, "clients")).out
        assert table.splitlines()[0].split()[:3] == ["GROUP", "ROLE", "CLIENT"]
        refused = await asyncio.to_thread(call, "groups", "delete", "readers-of-clients", "--yes")
        assert "has 1 client online; stop them first" in refused.err
    nobody = await asyncio.to_thread(call, "clients", "nobody")
    assert nobody.err == "no client of group nobody is connected\n"


def test_the_cluster_in_one_row(call: Call) -> None:
    call("topics", "create", "clustered", "--queues", "1")
    call("send", "clustered", "a", "b", "c")
    call("pull", "clustered", "-g", "clusterers", "--count", "1")
    [row] = call("cluster", "--json").rows
    assert (row["cluster"], row["masters"], row["replicas"], row["silent"]) == (
        "DefaultCluster", 1, 0, 0,
    )  # fmt: skip
    assert row["today"] >= 3
    assert row["log"] > 0
    assert row["topics"] >= 1
    assert row["groups"] >= 1
    assert row["lag"] >= 2
    head = call("cluster").out.splitlines()[0]
    assert head.split()[:3] == ["CLUSTER", "MASTERS", "REPLICAS"]


def test_the_lag_with_rates(call: Call) -> None:
    call("topics", "create", "rated", "--queues", "1")
    call("send", "rated", "a", "b", "c")
    call("pull", "rated", "-g", "raters", "--count", "1")
    [row] = call("lag", "raters", "rated", "--over", "100ms", "--json").rows
    assert (row["lag"], row["inPerSecond"], row["outPerSecond"]) == (2, 0.0, 0.0)
    assert row["secondsToCatchUp"] is None
    text = call("lag", "raters", "rated", "--over", "100ms").out
    for title in ("IN/S", "OUT/S", "CATCH UP"):
        assert title in text.splitlines()[0]
    assert "2 messages behind in topic rated: 0.0 arrive in a second, 0.0 are consumed, " in text
    assert "and the lag does not shrink" in text
    assert "inPerSecond" not in call("lag", "raters", "rated", "--json").rows[0]


@pytest.mark.parametrize(
    ("arguments", "buffering"),
    [
        ("topics list --all", ""),
        ("topics show pipes", ""),
        ("status --json", "1"),
        ("--help", ""),
        ("--version", ""),
    ],
)
def test_a_reader_that_is_gone_is_no_traceback(
    call: Call, namesrv: str, arguments: str, buffering: str
) -> None:
    """As in `pocketmq topics show pipes | head -1`."""
    call("topics", "create", "pipes", "--queues", "16", "--if-not-exists")
    process = subprocess.Popen(
        command(*arguments.split()),
        env=environment(NAMESRV_ADDR=namesrv, PYTHONUNBUFFERED=buffering),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(TIMEOUT) == 128 + signal.SIGPIPE
