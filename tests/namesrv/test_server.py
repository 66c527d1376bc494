from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import KVConfigError
from pocketmq.namesrv.route_table import LIVENESS_WINDOW
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.serving.service import ExitCode
from tests.fake_time import FakeTime
from tests.namesrv.conftest import Clock
from tests.namesrv.files import write
from tests.namesrv.registrations import body, header

ROOT = Path(__file__).parents[2]


async def register(connection: Connection) -> None:
    data = body("A", "B").encode()
    answer = await connection.request(RequestCode.REGISTER_BROKER, header(), data)
    assert answer.code == 0


async def route_code(connection: Connection) -> int:
    answer = await connection.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "A"})
    return answer.code


async def test_a_broker_that_loses_its_connection_is_gone(
    server: NameServer, connection: Connection
) -> None:
    broker = await Connection.open(server.address)
    await register(broker)
    assert await route_code(connection) == 0
    await broker.close()
    async with asyncio.timeout(60):
        while await route_code(connection) != 17:
            pass


async def test_a_silent_broker_is_gone_and_its_connection_closed(
    server: NameServer, connection: Connection, clock: Clock
) -> None:
    broker = await Connection.open(server.address)
    closed = asyncio.Event()
    broker.on_close(lambda _: closed.set())
    await register(broker)
    clock.advance(LIVENESS_WINDOW)
    assert await route_code(connection) == 0
    clock.advance(1)
    await closed.wait()
    assert await route_code(connection) == 17
    assert not connection.closed


async def test_a_broker_comes_back_after_the_name_server_did(
    config: NamesrvConfig, clock: Clock
) -> None:
    async with NameServer(config, clock=clock) as first:
        config.listen_port = first.port
        broker = await Connection.open(first.address)
        await register(broker)
        await broker.request(
            RequestCode.PUT_KV_CONFIG, ext_fields={"namespace": "N", "key": "K", "value": "V"}
        )
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", first.port)
    async with NameServer(config, clock=clock) as second:
        broker = await Connection.open(second.address)
        assert await route_code(broker) == 17
        await register(broker)
        assert await route_code(broker) == 0
        assert second.kv_config.get("N", "K") == "V"
        await broker.close()


async def test_name_servers_know_nothing_of_each_other(
    server: NameServer, connection: Connection, tmp_path: Path
) -> None:
    other = NameServer(NamesrvConfig(listen_port=0, kv_config_path=str(tmp_path / "other.json")))
    async with other:
        there = await Connection.open(other.address)
        await register(connection)
        assert await route_code(connection) == 0
        assert await route_code(there) == 17
        await there.close()


async def test_stopping_twice_and_a_taken_port(server: NameServer, tmp_path: Path) -> None:
    rival = NameServer(
        NamesrvConfig(listen_port=server.port, kv_config_path=str(tmp_path / "rival.json"))
    )
    with pytest.raises(PortInUse, match="name server"):
        await rival.start()
    await rival.stop()
    await server.stop()
    await server.stop()
    await rival.start()
    await rival.stop()


async def test_a_broken_key_value_file_stops_the_start(config: NamesrvConfig) -> None:
    write(config.kv_config_path, "rubbish")
    with pytest.raises(KVConfigError):
        await NameServer(config).start()


async def test_the_key_value_table_is_logged_now_and_then(
    config: NamesrvConfig, caplog: pytest.LogCaptureFixture
) -> None:
    time = FakeTime()
    caplog.set_level(logging.INFO)

    def logged() -> int:
        return caplog.messages.count("configTable NS: NS Key: K Value: V")

    async with NameServer(config, clock=time.monotonic, call_later=time.call_later) as server:
        await server.kv_config.put("NS", "K", "V")
        time.advance(59_000)
        assert logged() == 0
        time.advance(1_000)
        assert logged() == 1
        time.advance(599_000)
        assert logged() == 1
        time.advance(1_000)
        assert logged() == 2


# As a process


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM between processes")
def test_the_process_says_where_it_listens_and_stops_on_sigterm(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    kv = tmp_path / "kv.json"
    conf.write_text(f"listenPort=0\nkvConfigPath={kv}\nclusterTest=false\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "pocketmq", "namesrv", "-c", str(conf)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("name server listening on 127.0.0.1:")
    assert str(kv) in line

    async def change() -> None:
        connection = await Connection.open(line.split(",")[0].split()[-1])
        data = b"orderMessageEnable=true"
        assert (await connection.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=data)).code == 0
        await connection.close()

    asyncio.run(change())
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "clusterTest" in errors
    assert "orderMessageEnable=true" in conf.read_text().splitlines()


def test_a_bad_file_ends_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["namesrv", "-c", str(tmp_path / "none.conf")]) == ExitCode.CONFIG
    assert "none.conf" in capsys.readouterr().err
    conf = tmp_path / "bad.conf"
    conf.write_text("listenPort=many\n")
    assert main(["namesrv", "-c", str(conf)]) == ExitCode.CONFIG
    assert "listenPort = 'many'" in capsys.readouterr().err
    kv = tmp_path / "kv.json"
    kv.write_text("rubbish")
    conf.write_text(f"kvConfigPath={kv}\n")
    assert (
        main(["namesrv", "-c", str(conf), "--listen-port", "0", "--bind", "127.0.0.1"])
        == ExitCode.CONFIG
    )
    assert "kv.json" in capsys.readouterr().err


async def test_a_changed_idle_time_counts_at_once(config: NamesrvConfig) -> None:
    config.server_channel_max_idle_time_seconds = 8  # looked at every quarter of it
    async with NameServer(config) as server:
        connection = await Connection.open(server.address)
        closed = asyncio.Event()
        connection.on_close(lambda _: closed.set())
        body = b"serverChannelMaxIdleTimeSeconds=1"
        answer = await connection.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        assert answer.code == 0
        async with asyncio.timeout(6):
            await closed.wait()
