"""What `pocketmq send` and `pocketmq pull` take on the command line."""

from __future__ import annotations

import re
import subprocess

import pytest

from pocketmq.remoting.serving.service import ExitCode
from tests.cli.conftest import Call, Run
from tests.cli.running import TIMEOUT, Running, command, environment


def test_bodies_on_the_command_line_are_sent_in_their_order(call: Call) -> None:
    call("topics", "create", "literal", "--queues", "1")
    sent = call("send", "literal", "one", "two", "--tag", "paid", "--key", "k", "three")
    assert sent.code == ExitCode.OK
    *stored, last = sent.err.splitlines()
    places = [re.fullmatch(r"stored as literal/broker-a/0/(\d), id \S+", line) for line in stored]
    assert [place and place[1] for place in places] == ["0", "1", "2"]
    assert last == "sent 3 messages"
    assert call("pull", "literal").out.split() == ["one", "two", "three"]


def test_a_delayed_message_has_no_place_in_its_topic_yet(call: Call) -> None:
    sent = call("send", "reminders", "later", "--delay", "1h")
    said = r"stored, to be delivered to reminders in 3600 s, id \S+"
    assert re.fullmatch(said, sent.err.splitlines()[0])


def test_a_priority_is_the_queue_of_a_message(call: Call) -> None:
    call("topics", "create", "urgent", "--queues", "4", "--type", "priority")
    for priority in ("0", "2", "9"):
        sent = call("send", "urgent", priority, "--priority", priority)
        queue = min(int(priority), 3)
        assert re.match(rf"stored as urgent/[^/]+/{queue}/", sent.err.splitlines()[0])
    refused = call("send", "urgent", "x", "--priority", "-1")
    assert refused.code == ExitCode.USAGE
    refused = call("send", "urgent", "x", "--priority", "1", "--delay", "1h")
    assert "a message cannot have a priority together with a delay" in refused.err


def test_one_message_is_one_message(call: Call) -> None:
    assert call("send", "single", "x").err.splitlines()[-1] == "sent 1 message"


def test_a_body_may_begin_with_a_dash(call: Call) -> None:
    call("send", "dashes", "--", "-5", "--tag")
    assert sorted(call("pull", "dashes").out.split()) == ["--tag", "-5"]


def test_properties_are_sent_with_the_message(call: Call) -> None:
    call("send", "with_properties", "x", "--property", "amount=7", "--property", "note=a=b")
    [message] = call("pull", "with_properties", "--json").rows
    assert message["properties"]["amount"] == "7"
    assert message["properties"]["note"] == "a=b"


def test_json_lines_are_messages(run: Run, call: Call) -> None:
    lines = b'{"body": "a", "tags": "t", "keys": ["k"]}\n\n{"bdy": "b"}\n{"body": {"id": 1}}\n'
    sent = run("send", "json_lines", "--json", stdin=lines)
    assert sent.returncode == ExitCode.FAILURE
    assert b"not sent: line 3 of stdin: unknown field 'bdy', did you mean body?" in sent.stderr
    assert b"sent 2 messages" in sent.stderr
    assert b"1 failed, 1 empty line skipped" in sent.stderr
    found = {row["body"]: row for row in call("pull", "json_lines", "--json").rows}
    assert found.keys() == {"a", '{"id":1}'}
    assert (found["a"]["tags"], found["a"]["keys"]) == ("t", ["k"])


def test_a_key_may_stand_before_the_body(run: Run, call: Call) -> None:
    run("send", "keyed_lines", "--key-separator", r"\t", stdin=b"k1\tone\nk2\ttwo\n")
    rows = call("pull", "keyed_lines", "--json").rows
    assert {row["body"]: row["keys"] for row in rows} == {"one": ["k1"], "two": ["k2"]}


def test_a_pull_ends_after_its_count_and_the_group_goes_on_there(call: Call) -> None:
    call("topics", "create", "counted_out", "--queues", "1")
    call("send", "counted_out", "a", "b", "c", "d")
    assert call("pull", "counted_out", "-g", "counters", "--count", "3").out.split() == [*"abc"]
    assert call("pull", "counted_out", "-g", "counters", "--count", "3").out.split() == ["d"]
    assert call("pull", "counted_out", "--follow", "--count", "2").out.split() == ["a", "b"]


def test_a_pull_prints_messages_with_the_tags_asked_for(call: Call) -> None:
    for tag in ("paid", "open", "void"):
        call("send", "chosen", tag, "--tag", tag)
    assert sorted(call("pull", "chosen", "--tags", "paid || open").out.split()) == ["open", "paid"]
    assert call("pull", "chosen", "--tags", "none").out == ""


def test_a_pull_may_begin_some_time_ago(call: Call) -> None:
    call("send", "recent", "x")
    assert call("pull", "recent", "--from", "-1h").out == "x\n"
    assert call("pull", "recent", "--from", "end").out == ""


def test_a_pull_that_follows_ends_when_its_reader_does(run: Run, namesrv: str) -> None:
    run("send", "watched_pipe", stdin=b"one\n")
    follower = subprocess.Popen(
        command("pull", "watched_pipe", "--follow", "-n", namesrv),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert follower.stdout is not None
    assert follower.stderr is not None
    with follower.stdout, follower.stderr:
        assert follower.stdout.readline() == b"one\n"
        follower.stdout.close()  # and no further message comes
        assert follower.wait(TIMEOUT) == ExitCode.OK
        assert follower.stderr.read() == b""


def test_serve_takes_settings_of_the_broker(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    with Running(
        "serve", "--ephemeral", "--namesrv-port", "0",
        "--set", "enablePropertyFilter=true", "--set", "listenPort=0",
        "--set", "recallMessageEnable=true",
    ) as server:  # fmt: skip
        address = server.wait_for(r"name server listening on (\S+),")[1]
        monkeypatch.setenv("NAMESRV_ADDR", address)
        for amount in ("3", "7"):
            call("send", "amounts", amount, "--property", f"amount={amount}")
        assert call("pull", "amounts", "--sql", "amount > 5").out == "7\n"
        [row] = call("config", "show", "recallMessageEnable", "--json").rows
        assert row["value"] == "true"
        assert server.stop() == ExitCode.OK
    assert server.err == []
