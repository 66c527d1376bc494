"""`pocketmq send` and `pocketmq pull` as processes against `pocketmq serve`."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from pocketmq.remoting.serving.service import ExitCode
from tests.cli.conftest import Run
from tests.cli.running import Running, command, environment


def lines(output: bytes) -> list[bytes]:
    return sorted(output.splitlines())


@pytest.mark.parametrize("batch", ["1", "7"])
def test_what_is_sent_is_pulled(run: Run, batch: str, tmp_path: Path) -> None:
    topic = f"round_trip_{batch}"
    numbers = [b"%d" % i for i in range(500)]
    file = tmp_path / "numbers"
    file.write_bytes(b"\n".join(numbers[:250]) + b"\n\n")
    sent = run(
        "send",
        topic,
        "--batch",
        batch,
        "-f",
        str(file),
        "-f",
        "-",
        stdin=b"\r\n".join(numbers[250:]),
    )
    assert sent.returncode == ExitCode.OK, sent.stderr
    assert b"sent 500 messages in " in sent.stderr
    assert b"1 empty line skipped" in sent.stderr
    assert b"\x1b[" not in sent.stderr  # a bar belongs on a terminal
    pulled = run("pull", topic)
    assert pulled.returncode == ExitCode.OK, pulled.stderr
    assert lines(pulled.stdout) == sorted(numbers)


def test_tag_key_and_json(run: Run) -> None:
    sent = run("send", "tagged", "--tag", "paid", "--key", "k1", "--key", "k2", stdin=b"\xff\n")
    assert sent.returncode == ExitCode.OK, sent.stderr
    pulled = run("pull", "tagged", "--json")
    (message,) = [json.loads(line) for line in pulled.stdout.splitlines()]
    assert message["tags"] == "paid"
    assert message["keys"] == ["k1", "k2"]
    assert message["topic"] == "tagged"
    assert message["queueOffset"] == 0
    assert message["bodyBase64"] == "/w=="


def test_a_group_goes_on_where_it_stopped(run: Run) -> None:
    run("send", "groups", stdin=b"one\ntwo\n")
    assert lines(run("pull", "groups", "-g", "readers").stdout) == [b"one", b"two"]
    assert run("pull", "groups", "-g", "readers").stdout == b""
    run("send", "groups", stdin=b"three\n")
    assert run("pull", "groups", "-g", "readers").stdout == b"three\n"
    assert len(lines(run("pull", "groups", "-g", "readers", "--from", "begin").stdout)) == 3
    assert len(lines(run("pull", "groups").stdout)) == 3


def test_from_a_time_and_from_the_end(run: Run) -> None:
    run("send", "times", stdin=b"old\n")
    stored = json.loads(run("pull", "times", "--json").stdout)["storeTimestamp"]
    while time.time_ns() // 1_000_000 <= stored:
        time.sleep(0.001)  # a clock has to tick, nothing tells when
    border = time.time_ns() // 1_000_000
    run("send", "times", stdin=b"new\n")
    assert run("pull", "times", "--from", str(border)).stdout == b"new\n"
    assert lines(run("pull", "times", "--from", str(stored)).stdout) == [b"new", b"old"]
    assert run("pull", "times", "--from", "end").stdout == b""


def test_follow_prints_what_comes_and_ends_by_sigint(run: Run, namesrv: str) -> None:
    run("send", "followed", stdin=b"before\n")
    with Running("pull", "followed", "--follow", "-n", namesrv) as follower:
        follower.wait_for("^before$")
        run("send", "followed", stdin=b"after\n")
        follower.wait_for("^after$")
        assert follower.stop(signal.SIGINT) == ExitCode.OK


def test_a_line_from_a_pipe_is_sent_before_the_next_comes(namesrv: str) -> None:
    with (
        Running("send", "typed", "-n", namesrv) as sender,
        Running("pull", "typed", "--follow", "-n", namesrv) as follower,
    ):
        sender.write("first\n")
        follower.wait_for("^first$")
        sender.write("second\n")
        follower.wait_for("^second$")
        assert sender.end() == ExitCode.OK
        assert sender.err[-1].startswith("sent 2 messages")


def test_sigint_ends_a_send_that_waits_for_input(namesrv: str) -> None:
    with (
        Running("send", "interrupted", "-n", namesrv) as sender,
        Running("pull", "interrupted", "--follow", "-n", namesrv) as follower,
    ):
        sender.write("one\n")
        follower.wait_for("^one$")
        sender.process.send_signal(signal.SIGINT)
        sender.wait_for("^sent 1 message ")
        assert sender.process.wait(10) == 130


def test_a_closed_pipe_is_quiet(run: Run, namesrv: str) -> None:
    body = b"x" * 1000 + b"\n"
    run("send", "piped", "--batch", "100", stdin=body * 1000)
    puller = subprocess.Popen(
        command("pull", "piped", "-n", namesrv),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert puller.stdout is not None
    assert puller.stderr is not None
    with puller.stdout, puller.stderr:
        assert puller.stdout.read(10) == b"x" * 10
        puller.stdout.close()
        assert puller.stderr.read() == b""
        assert puller.wait(30) == ExitCode.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_pull_whose_output_nobody_takes(
    run: Run, namesrv: str, number: signal.Signals
) -> None:
    topic, group = f"untaken-{number.name}", f"slow-{number.name}"
    lines = [b"%04d" % line + b"x" * 1000 for line in range(1000)]  # more than a pipe holds
    run("send", topic, "--batch", "100", stdin=b"\n".join(lines))
    arguments = ("pull", topic, "-n", namesrv, "-g", group)
    puller = subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert puller.stdout is not None
    assert puller.stderr is not None
    with puller.stdout, puller.stderr:
        assert puller.stdout.read(1)  # it writes, and the rest does not fit
        puller.send_signal(number)
        assert puller.wait(30) == 128 + number
        assert puller.stderr.read() == b""
    # What it did not write whole comes again.
    again = run(*arguments)
    assert len(again.stdout.splitlines()) == len(lines)


def test_a_send_waits_for_servers_that_are_about_to_start() -> None:
    with socket.socket() as taken:  # a port that nobody else takes until the servers start
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}"
        with Running("send", "early", "x", "-n", address) as send:
            send.wait_for(f"waiting for name server {address} to name a broker for topic early")
            taken.close()
            ports = ("--listen-port", "0", "--namesrv-port", str(port))
            with Running("serve", "--ephemeral", *ports) as server:
                server.wait_for("name server listening on")
                assert send.end() == ExitCode.OK
    assert "sent 1 message" in send.err


def test_a_directory_is_named(run: Run, tmp_path: Path) -> None:
    sent = run("send", "directories", "-f", str(tmp_path))
    assert sent.returncode == ExitCode.FAILURE
    assert str(tmp_path).encode() in sent.stderr


def test_a_topic_that_does_not_exist(run: Run) -> None:
    pulled = run("pull", "missing")
    assert pulled.returncode == ExitCode.UNAVAILABLE
    assert b"missing" in pulled.stderr
    assert b"Traceback" not in pulled.stderr


@pytest.mark.parametrize(
    ("arguments", "waiting"),
    [
        (("send", "a"), b"waiting for name server 127.0.0.1:9 to name a broker for topic a"),
        (("pull", "a"), b"waiting for name server 127.0.0.1:9"),
        (("topics", "list"), b"waiting for name server 127.0.0.1:9"),
    ],
)
def test_no_name_server(run: Run, arguments: tuple[str, ...], waiting: bytes) -> None:
    ended = run(*arguments, "-n", "127.0.0.1:9", "--timeout", "3s", stdin=b"x\n")
    assert ended.returncode == ExitCode.UNAVAILABLE
    *before, line = ended.stderr.splitlines()
    assert before == [waiting]
    assert b"127.0.0.1:9: Connection refused; is it running?" in line
    assert b"`pocketmq serve` starts one" in line


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("send", "not a topic"), ExitCode.USAGE, b"not a topic"),
        (("send", "a", "--file", "/no/such/file"), ExitCode.FAILURE, b"/no/such/file"),
        (("pull", "a", "-n", "nowhere"), ExitCode.USAGE, b"nowhere"),
    ],
)
def test_bad_arguments(
    run: Run, arguments: tuple[str, ...], code: ExitCode, complaint: bytes
) -> None:
    ended = run(*arguments, stdin=b"x\n")
    assert ended.returncode == code, ended.stderr
    assert complaint in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_line_that_no_message_can_hold_is_named_and_the_others_are_sent(run: Run) -> None:
    too_long = b"x" * (4 * 1024 * 1024 + 1)
    sent = run("send", "big", stdin=b"small\n" * 3 + too_long + b"\nnext\n")
    assert sent.returncode == ExitCode.FAILURE
    assert b"not sent: line 4 of stdin: it is longer than a message may be\n" in sent.stderr
    assert sorted(run("pull", "big").stdout.splitlines()) == [b"next", *[b"small"] * 3]


def test_refused_lines_are_named_and_make_the_exit_code(run: Run) -> None:
    # One of the topics that clients may not send to.
    sent = run("send", "TRANS_CHECK_MAX_TIME_TOPIC", "--batch", "2", stdin=b"a\nb\nc\n")
    assert sent.returncode == ExitCode.FAILURE
    assert b"not sent: 2 lines from line 1 of stdin: " in sent.stderr
    assert b"not sent: line 3 of stdin: " in sent.stderr
    assert b"sent 0 messages in " in sent.stderr
    assert b", 3 failed" in sent.stderr


def test_a_terminal_gets_a_progress_bar(run: Run, namesrv: str, tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    file.write_bytes(b"\n".join(b"%d" % i for i in range(2000)) + b"\n")
    mine, theirs = pty.openpty()
    output: list[bytes] = []

    def read() -> None:
        while True:
            try:
                output.append(os.read(mine, 65536))
            except OSError:  # the other side is closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    sender = subprocess.Popen(
        command("send", "bar", "-n", namesrv, "-f", str(file)),
        env=environment(TERM="xterm", COLUMNS="80"),
        stderr=theirs,
    )
    os.close(theirs)
    assert sender.wait(30) == ExitCode.OK
    reader.join(10)
    os.close(mine)
    text = b"".join(output).decode()
    assert re.search(r"\d+ sent, 0 failed", text)
    # The bar is gone at the end: cursor up, line erased.
    assert text.rstrip().splitlines()[-1].startswith("\x1b[1A\x1b[2Ksent 2000 messages")
