"""A broker's life: starting, stopping, its ports, and as a process."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import StoreLocked
from tests.broker.conftest import Client, Connect, NameServerStub, StartBroker

PROJECT = Path(__file__).parents[2]


def free_port() -> int:
    """A port that is free now, and whose neighbour two below is as well."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port


async def test_listening_means_registered(
    start_broker: StartBroker, name_server: NameServerStub
) -> None:
    broker = await start_broker(namesrv_addr=name_server.address)

    header, _ = name_server.registered.get_nowait()
    assert header.broker_addr == broker.address == f"127.0.0.1:{broker.port}"
    # Mostly the next port; another one if somebody has that.
    assert header.ha_server_addr == broker.components.replication.ha_address
    assert header.ha_server_addr.startswith("127.0.0.1:")
    await broker.stop()
    assert name_server.unregistered.get_nowait().broker_name == "b0"
    await broker.stop()


def test_the_constructor_touches_nothing(tmp_path: Path) -> None:
    Broker(BrokerConfig(store_path_root_dir=str(tmp_path / "store")))

    assert list(tmp_path.iterdir()) == []


def test_an_idle_broker_does_without_what_is_large() -> None:
    """numpy is 16 MB and 0.1 s, lark, PySpark and Arrow as much again; most brokers of a test
    suite never need them."""
    code = (
        "import sys, broker.broker\n"
        "print(*{'numpy', 'lark', 'pyarrow', 'pyspark', 'client'} & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == []


def test_the_first_expression_of_a_broker_finds_a_parser(tmp_path: Path) -> None:
    """Loading it in the event loop would keep everybody waiting for a tenth of a second."""
    code = (
        "import asyncio, sys, threading\n"
        "from pocketmq.broker.broker import Broker\n"
        "from pocketmq.broker.config import BrokerConfig\n"
        "async def main():\n"
        f"    config = BrokerConfig(store_path_root_dir={str(tmp_path)!r}, listen_port=0,\n"
        "        enable_property_filter=True)\n"
        "    async with Broker(config):\n"
        "        for thread in threading.enumerate():\n"
        "            if thread.name == 'load-sql-parser':\n"
        "                await asyncio.to_thread(thread.join)\n"
        "        print('pocketmq.message.sql_filter.parser' in sys.modules)\n"
        "asyncio.run(main())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == ["True"]


def test_the_first_timed_message_does_without_numpy(tmp_path: Path) -> None:
    """The wheel is opened on the event loop, where nothing should wait for the import."""
    code = (
        "import sys, pathlib\n"
        "from pocketmq.store.files import Files\n"
        "from pocketmq.store.timer.timer_wheel import TimerWheel\n"
        "wheel = TimerWheel(Files(), pathlib.Path(sys.argv[1]), 1000)\n"
        "wheel.open()\n"
        "print(wheel.occupied(0), 'numpy' in sys.modules)\n"
        "wheel.link(60_000, 0)\n"
        "print(len(wheel.occupied(0)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "timerwheel")],
        cwd=PROJECT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.split() == ["[]", "False", "1"]


async def test_a_restart_goes_on_where_it_was(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    for n in range(3):
        broker = await start_broker()
        client = await connect(broker)
        answer = await client.send(topic, b"%d" % n)
        assert answer.ext_fields["queueOffset"] == str(n)
        records = await client.pulled(topic)
        assert [bytes(record.body) for record in records] == [b"0", b"1", b"2"][: n + 1]
        await broker.stop()


async def test_a_taken_port_stops_the_start_and_frees_the_store(
    broker: Broker, start_broker: StartBroker, tmp_path: Path
) -> None:
    other = Broker(
        BrokerConfig(store_path_root_dir=str(tmp_path / "other"), listen_port=broker.port)
    )
    with pytest.raises(PortInUse, match=str(broker.port)):
        await other.start()

    again = Broker(BrokerConfig(store_path_root_dir=str(tmp_path / "other"), listen_port=0))
    async with again:
        assert again.port not in (0, broker.port)
    del start_broker


async def test_a_store_belongs_to_one_broker(broker: Broker, start_broker: StartBroker) -> None:
    with pytest.raises(StoreLocked, match="in use"):
        await start_broker()
    assert broker.port


async def test_an_address_that_is_none(start_broker: StartBroker) -> None:
    with pytest.raises(CannotListen, match=r"no\.such\.host\.invalid"):
        await start_broker(broker_ip1="no.such.host.invalid")


async def test_a_host_name_may_be_advertised(start_broker: StartBroker, connect: Connect) -> None:
    broker = await start_broker(broker_ip1="localhost")
    assert broker.address == f"localhost:{broker.port}"
    client = await connect(broker)
    answer = await client.send("T")
    assert answer.ext_fields["msgId"].startswith("7F000001")


async def test_an_address_nobody_can_reach_is_a_warning(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await start_broker(broker_ip1="192.0.2.7")
    assert "set bindAddress" in caplog.text
    assert "192.0.2.7" in caplog.text


async def test_the_vip_channel_serves_all_but_pulls(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(listen_port=free_port())
    client = await connect(broker)
    await client.send(topic)
    vip = Client()
    await vip.open(f"127.0.0.1:{broker.port - 2}")

    assert (await vip.send(topic)).ext_fields["queueOffset"] == "1"
    assert (await vip.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        assert (await vip.pull(topic, code=code)).code == 3
    await vip.close()


async def test_a_taken_vip_port_is_no_reason_not_to_start(
    start_broker: StartBroker, connect: Connect
) -> None:
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port - 2))
        taken.listen()
        client = await connect(await start_broker(listen_port=port))
        assert (await client.send("T")).code == 0


async def test_without_a_vip_channel(start_broker: StartBroker) -> None:
    broker = await start_broker(listen_port=free_port(), vip_channel_enable=False)

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", broker.port - 2)


# --- as a process -----------------------------------------------------------------------------


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pocketmq",
        "broker",
        *arguments,
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def test_a_process_says_that_it_listens_and_stops_cleanly(
    name_server: NameServerStub, tmp_path: Path, connect: Connect
) -> None:
    del connect
    config = tmp_path / "broker.conf"
    config.write_text(f"brokerName=b7\nnamesrvAddr={name_server.address}\nbrokerNme=x\n")
    store = tmp_path / "store"
    async with process("-c", str(config), "--store", str(store), "--listen-port", "0") as started:
        assert started.stdout is not None
        assert started.stderr is not None
        line = (await started.stdout.readline()).decode()
        header, _ = name_server.registered.get_nowait()
        assert f"broker b7 listening on {header.broker_addr}" in line
        assert str(store) in line
        client = Client()
        await client.open(header.broker_addr)
        assert (await client.send("T")).code == 0
        await client.close()

        started.send_signal(signal.SIGTERM)
        assert await started.wait() == ExitCode.OK
        errors = (await started.stderr.read()).decode()
        assert "brokerNme: unknown property, did you mean brokerName" in errors
        assert "Traceback" not in errors
    assert name_server.unregistered.get_nowait().broker_name == "b7"
    assert not (store / "abort").exists()


async def failure(*arguments: str) -> tuple[int, str]:
    async with process(*arguments) as started:
        _, errors = await started.communicate()
        assert started.returncode is not None
        return started.returncode, errors.decode()


async def test_what_stops_a_start_is_said_plainly(broker: Broker, tmp_path: Path) -> None:
    bad = tmp_path / "bad.conf"
    bad.write_text("listenPort=many\n")
    store = str(broker.config.root)
    other = str(tmp_path / "other")
    results = await asyncio.gather(
        failure("-c", str(bad)),
        failure("-c", str(tmp_path / "missing.conf")),
        failure("--store", store, "--listen-port", "0"),
        failure("--store", other, "--listen-port", str(broker.port)),
        failure("--listen-port", "70000"),
    )

    assert [code for code, _ in results] == [
        ExitCode.CONFIG,
        ExitCode.CONFIG,
        ExitCode.STORE_LOCKED,
        ExitCode.PORT_IN_USE,
        ExitCode.USAGE,
    ]
    for word, (_, errors) in zip(
        ("listenPort", "missing.conf", "in use", "port is in use", "70000"), results, strict=True
    ):
        assert word in errors
        assert "Traceback" not in errors
