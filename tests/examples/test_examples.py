"""Every file in examples/ runs as it is shown, and says what it should."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq import Message, sync
from pocketmq.auth.users import User
from pocketmq.client.admin import Admin
from pocketmq.client.credentials import Credentials
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.testing import RocketMQ
from tests.cli.running import PROJECT, Running, environment
from tests.interop.harness.secured import ROOT, SETTINGS, create_user_with

EXAMPLES = PROJECT / "examples"

TESTED = {
    "admin.py",
    "ordered.py",
    "pull.py",
    "push.py",
    "push_batch.py",
    "push_failures.py",
    "push_orderly.py",
    "read_store.py",
    "request_reply.py",
    "secure.py",  # tests/interop/test_our_producer.py
    "send.py",
    "serve_embedded.py",
    "spark_query.py",
    "spark_secure.py",
    "sync_push.py",
    "sync_send.py",
    "test_orders.py",
    "transaction.py",
}


def run(
    name: str,
    *arguments: str | Path,
    namesrv: str | None = None,
    cwd: Path,
    timeout: float = 120.0,
) -> str:
    """Run an example and return its output, with `namesrv` in place of the address in its text."""
    text = (EXAMPLES / name).read_text()
    if namesrv is not None:
        assert "127.0.0.1:9876" in text
        text = text.replace("127.0.0.1:9876", namesrv)
    copy = cwd / name
    copy.write_text(text)
    ended = subprocess.run(
        [sys.executable, str(copy), *map(str, arguments)],
        cwd=cwd, env=environment(PYSPARK_PYTHON=sys.executable), capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def namesrv(store: Path) -> Iterator[str]:
    with Running("serve", "--store", store, "--listen-port", "0", "--namesrv-port", "0") as server:
        yield server.wait_for(r"name server listening on (\S+),")[1]


def test_each_example_is_short_and_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TESTED
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 25, path.name


def test_send_then_pull(namesrv: str, tmp_path: Path) -> None:
    sent = run("send.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert sent[0].startswith("SEND_OK ")
    assert sent[1].startswith("1000 more in ")
    (line,) = run("pull.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert line.endswith("('o-1',) two coffees")
    assert run("pull.py", namesrv=namesrv, cwd=tmp_path) == ""


async def test_what_is_not_stored_is_told(tmp_path: Path) -> None:
    async with RocketMQ() as rocketmq:
        with rocketmq.fail(RequestCode.SEND_BATCH_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, "no"):
            sent = await asyncio.to_thread(run, "send.py", namesrv=rocketmq.namesrv, cwd=tmp_path)
    first, failed = sent.splitlines()
    assert first.startswith("SEND_OK ")
    assert failed.startswith("1000 of 1000 messages not stored; ")


def test_push(namesrv: str, tmp_path: Path) -> None:
    run("send.py", namesrv=namesrv, cwd=tmp_path)
    (line,) = run("push.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert line == "('o-1',) two coffees after 1 retry"
    (line,) = run("sync_push.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert line == "('o-1',) two coffees"
    assert run("push_batch.py", namesrv=namesrv, cwd=tmp_path) == "all archived\n"
    lines = run("push_orderly.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    places = [tuple(map(int, line.split()[:2])) for line in lines]
    assert len(set(places)) == len(places) == 1000
    for queue_id in {place[0] for place in places}:
        offsets = [offset for queue, offset in places if queue == queue_id]
        assert offsets == sorted(offsets)


async def test_push_failures(tmp_path: Path) -> None:
    async with RocketMQ() as rocketmq:
        for name in ("send.py", "push_failures.py"):
            out = await asyncio.to_thread(run, name, namesrv=rocketmq.namesrv, cwd=tmp_path)
        assert out == ""
        async with Admin(namesrv=rocketmq.namesrv) as admin, asyncio.timeout(30):
            # Its broker registers the topic soon after; no event tells.
            while "%DLQ%parsing" not in await admin.topics():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            dead = await admin.message_at(MessageQueue("%DLQ%parsing", "broker-a", 0), 0)
    assert dead is not None
    assert dead.keys == ("o-1",)
    assert dead.properties["DLQ_REASON"].startswith("the body of 11 bytes does not fit dict")


def test_ordered(namesrv: str, tmp_path: Path) -> None:
    lines = run("ordered.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert len(lines) == 9
    for order in range(3):
        steps = [line.split() for line in lines[order::3]]
        assert len({queue for queue, _, _ in steps}) == 1
        offsets = [int(offset) for _, offset, _ in steps]
        assert offsets == sorted(offsets)


def test_request_reply(namesrv: str, tmp_path: Path) -> None:
    with sync.Producer("other", namesrv=namesrv) as producer:
        producer.send(Message("questions", b"no request, and no number"))
    assert run("request_reply.py", namesrv=namesrv, cwd=tmp_path) == "12² = 144\n"


def test_transaction(namesrv: str, tmp_path: Path) -> None:
    assert run("transaction.py", namesrv=namesrv, cwd=tmp_path) == "SEND_OK COMMIT\n"


def test_sync_send(namesrv: str, tmp_path: Path) -> None:
    sent, got = run("sync_send.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert sent.startswith("SEND_OK ")
    assert got == "0 two coffees"


def test_admin(namesrv: str, tmp_path: Path) -> None:
    lines = run("admin.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert lines[0].startswith("created on [")
    assert sum(int(line.split()[-1]) for line in lines[1:3]) == 5
    assert lines[3:] == ["behind by 5", "behind by 0"]


def test_tests_of_an_application(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text((EXAMPLES / "test_orders.py").read_text())
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "test_orders.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


def test_serve_embedded(tmp_path: Path) -> None:
    lines = run("serve_embedded.py", cwd=tmp_path).splitlines()
    assert lines[1] == "hello world"


def test_read_store_while_the_broker_runs(namesrv: str, store: Path, tmp_path: Path) -> None:
    for package in ("pandas", "polars", "duckdb"):
        pytest.importorskip(package, reason=f"pip install {package}")
    run("send.py", namesrv=namesrv, cwd=tmp_path)
    lines = run("read_store.py", store, "orders", cwd=tmp_path).splitlines()
    assert lines[0].startswith("topics:")
    assert "orders" in lines[0].split()
    assert lines[1].startswith("pandas: ")
    assert lines[2] == "polars: 1 paid in 1 queues"
    assert [line.split()[1:3] for line in lines[3:]] == [["new", "1000"], ["paid", "1"]]


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(900)  # Spark needs minutes to start on a loaded machine
def test_spark_query_while_the_broker_runs(namesrv: str, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    run("send.py", namesrv=namesrv, cwd=tmp_path)
    table = run("spark_query.py", store, cwd=tmp_path, timeout=800)
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()]
    assert ["new", "1000"] in cells
    assert ["paid", "1"] in cells


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(900)
def test_spark_with_the_least_grants(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    ports = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")
    user = User("job", "password of the job")
    root = Credentials(*ROOT.values())
    grants = {"Topic:orders": ["Sub"], "Group:TOOLS_CONSUMER": ["Sub"], "Topic:paid": ["Pub"]}
    with Running("serve", "--ephemeral", *ports, *settings) as server:
        namesrv = server.wait_for(r"name server listening on (\S+:\d+)")[1]
        with sync.Admin(namesrv=namesrv, credentials=root) as admin:
            (broker,) = admin.cluster_info().broker_addr_table.values()
            for topic in ("orders", "paid"):
                admin.create_topic(topic, queues=1)
            asyncio.run(create_user_with(broker.broker_addrs[0], user, grants))
            with sync.Producer("shop", namesrv=namesrv, credentials=root) as producer:
                for tag in ("new", "paid", "paid"):
                    producer.send(Message("orders", b"two coffees", tags=tag))
            arguments = user.username, user.password
            run("spark_secure.py", *arguments, namesrv=namesrv, cwd=tmp_path, timeout=800)
            stats = admin.topic_stats("paid").offset_table
    assert sum(bounds.max_offset for bounds in stats.values()) == 2
