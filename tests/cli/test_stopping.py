"""Servers end after SIGTERM: soon, whatever their peers do, and at a deadline in any case."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq import Message, Producer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import PullMessageRequestHeader
from pocketmq.remoting.serving.service import ExitCode
from tests.broker.conftest import SUBSCRIPTION, SUSPEND
from tests.cli.running import Running

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
#: Much less than the deadline of 25 s, and more than a busy machine needs.
SOON = 15.0


@contextlib.contextmanager
def stuck_peers(port: int) -> Iterator[None]:
    """One that has sent half a frame, one that does not read its answers, one whose pull waits."""
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", port))
            return stack.enter_context(made)

        connect().sendall((1 << 20).to_bytes(4, "big") + b"half")
        waiting = connect()
        waiting.sendall(encode_command(RequestCode.PULL_MESSAGE, 1, header=held_pull()))
        greedy = connect()
        greedy.settimeout(1.0)
        requests = 200 * encode_command(RequestCode.GET_BROKER_CLUSTER_INFO, 1)
        requests += 200 * encode_command(RequestCode.GET_ALL_TOPIC_CONFIG, 2)
        # The server reads no more when a mebibyte of answers waits.
        with contextlib.suppress(TimeoutError):
            while True:
                greedy.sendall(requests)
        yield


def held_pull() -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        topic="orders",
        consumer_group="G",
        queue_id=0,
        queue_offset=1,
        max_msg_nums=32,
        sys_flag=SUBSCRIPTION | SUSPEND,
        commit_offset=0,
        suspend_timeout_millis=60_000,
        subscription="*",
    )


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("command", ["namesrv", "broker", "serve"])
def test_stuck_peers_do_not_hold_up_a_stop(tmp_path: Path, command: str) -> None:
    arguments = {
        "namesrv": ["--listen-port", "0", "--set", f"kvConfigPath={tmp_path / 'kv.json'}"],
        "broker": ["--listen-port", "0", "--store", str(tmp_path)],
        "serve": ["--listen-port", "0", "--namesrv-port", "0", "--store", str(tmp_path),
                  "--no-grpc", "--no-dashboard"],
    }[command]  # fmt: skip
    with silent_server() as silent, contextlib.ExitStack() as stack:
        if command == "broker":
            arguments += ["-n", f"127.0.0.1:{silent}", "--set", "registerBrokerTimeoutMills=300"]
        server = stack.enter_context(Running(command, *arguments))
        line = server.wait_for("listening on").string
        for port in re.findall(r"127\.0\.0\.1:(\d+)", line):
            if int(port) != silent:
                stack.enter_context(stuck_peers(int(port)))
        began = time.monotonic()
        assert server.stop() == ExitCode.OK
        assert time.monotonic() - began < SOON
    assert "not stopped" not in server.everything()


async def test_calls_that_wait_do_not_hold_up_a_proxy(namesrv: str) -> None:
    grpc = pytest.importorskip("grpc", reason="pip install grpcio")
    pytest.importorskip("pocketmq.proxy.proto.service_pb2", reason="pip install 'pocketmq[proxy]'")
    from pocketmq.proxy.proto import service_pb2 as pb
    from tests.proxy.grpc_client import GrpcClient

    async with Producer("shop", namesrv=namesrv) as producer:
        await producer.send(Message("parcels", b"one"))
    with Running("proxy", "-n", namesrv, "--grpc-port", "0") as proxy:
        listening = await asyncio.to_thread(proxy.wait_for, r"proxy listening on \S+:(\d+)")
        async with GrpcClient(int(listening[1])) as client:
            await client.as_consumer("packing", "parcels")
            request = pb.ReceiveMessageRequest(batch_size=1)
            request.group.name = "packing"
            request.message_queue.topic.name = "parcels"
            request.filter_expression.expression = "*"
            request.invisible_duration.seconds = 60
            request.long_polling_timeout.seconds = 60
            code, messages = await client.receive(request)
            assert [each.body for each in messages] == [b"one"], code
            waiting = asyncio.ensure_future(client.receive(request, timeout=60.0))
            # The answer to what is asked after it has come.
            route = pb.QueryRouteRequest()
            route.topic.name = "parcels"
            await client.call("QueryRoute", route)
            with socket.create_connection(("127.0.0.1", int(listening[1]))) as half:
                half.sendall(b"PRI * HTTP/2.0\r\n")
                began = time.monotonic()
                assert await asyncio.to_thread(proxy.stop) == ExitCode.OK
                assert time.monotonic() - began < SOON
            with contextlib.suppress(grpc.aio.AioRpcError):
                await waiting
    assert "not stopped" not in proxy.everything()


async def test_a_silent_name_server_does_not_hold_up_a_proxy() -> None:
    pytest.importorskip("grpc", reason="pip install grpcio")
    pytest.importorskip("pocketmq.proxy.proto.service_pb2", reason="pip install 'pocketmq[proxy]'")
    from pocketmq.proxy.proto import service_pb2 as pb
    from tests.proxy.grpc_client import GrpcClient

    with (
        silent_server() as silent,
        Running("proxy", "-n", f"127.0.0.1:{silent}", "--grpc-port", "0") as proxy,
    ):
        listening = await asyncio.to_thread(proxy.wait_for, r"proxy listening on \S+:(\d+)")
        async with GrpcClient(int(listening[1])) as client:
            request = pb.QueryRouteRequest()
            request.topic.name = "parcels"
            waiting = asyncio.ensure_future(client.call("QueryRoute", request, timeout=60.0))
            # By then the call is there: another connection is served after it.
            async with GrpcClient(int(listening[1])) as other:
                await other.as_producer()
            began = time.monotonic()
            assert await asyncio.to_thread(proxy.stop) == ExitCode.OK
            assert time.monotonic() - began < SOON
            assert "CANCELLED" in str(await asyncio.gather(waiting, return_exceptions=True))
    assert proxy.err == []


@pytest.mark.parametrize(("brokers", "code"), [("1", 128 + signal.SIGTERM), ("2", ExitCode.OK)])
async def test_a_broker_that_waits_for_too_long_is_ended(
    tmp_path: Path, brokers: str, code: int
) -> None:
    """Spans wait for a collector that does not answer, up to eight seconds."""
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.grpc", reason="pip install 'pocketmq[otlp]'"
    )
    with (
        silent_server() as silent,
        Running("serve", "--brokers", brokers, "--listen-port", "0", "--namesrv-port", "0",
                "--store", tmp_path, "--no-dashboard", "--stop-timeout", "500ms",
                "--set", f"traceGrpcExporterTarget=http://127.0.0.1:{silent}") as server,
    ):  # fmt: skip
        line = await asyncio.to_thread(server.wait_for, r"name server listening on ([\d.:]+)")
        async with Producer("shop", namesrv=line[1]) as producer:
            # To each broker.
            for _ in range(20):
                await producer.send(Message("orders", b"x", properties={"traceparent": PARENT}))
        began = time.monotonic()
        assert await asyncio.to_thread(server.stop) == code
        assert time.monotonic() - began < 5.0
    late = [line for line in server.err if "not stopped within 0.5 s" in line]
    assert len(late) == int(brokers)
