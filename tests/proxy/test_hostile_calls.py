"""What requests may take of the server: bytes, objects, work and turns, whoever sends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.admin.admin import Admin
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import MessageQueue
from pocketmq.message.receipt_handle import ReceiptHandle
from pocketmq.message.retry_topic import TopicKind
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import Answer
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call, GrpcError, Unary
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.bounded import Bounded
from pocketmq.proxy.service.message_codec import now_ms
from pocketmq.proxy.service.messaging import SERVICE, Messaging
from pocketmq.proxy.service.turns import SLICE, Turns
from pocketmq.proxy.transport.server import GrpcServer
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Caller
from tests.cli.running import Running
from tests.proxy.grpc_client import GrpcClient, message, until
from tests.proxy.raw_frames import Kind, frame, literal
from tests.proxy.test_access import Raw as RawRequest
from tests.proxy.test_server import METHODS, Echo, Raw

MEGABYTE = 1 << 20
#: One entry of an AckMessage, or one message of a SendMessage, with nothing in it.
EMPTY_ENTRY, EMPTY_MESSAGE = b"\x1a\0", b"\x0a\0"


@asynccontextmanager
async def grpc_server(**options: Any) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(options.pop("methods", METHODS), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def refused(call: Awaitable[Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def test_each_kind_of_call_has_a_limit_of_its_own(client: GrpcClient) -> None:
    for name in ("QueryRoute", "Heartbeat", "EndTransaction", "AckMessage", "RecallMessage"):
        unknown_field = b"\xfa\x7f" + b"\x80\x80\x80\x01" + bytes(2 * MEGABYTE)
        code = await refused(client.call(name, RawRequest(unknown_field)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED, name
    answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[
        message(body=bytes(3 * MEGABYTE))
    ]))  # fmt: skip
    assert answer.status.code == pb.OK


@pytest.mark.parametrize("kind", ["QueryRoute", "QueryAssignment"])
async def test_an_answer_does_not_repeat_a_long_request_for_each_queue(
    client: GrpcClient, kind: str
) -> None:
    request = getattr(pb, f"{kind}Request")(topic=pb.Resource(name="Normal"))
    if kind == "QueryAssignment":
        request.group.name = "readers"
    for addresses in ([("h", 1)] * 400, [("h" * 60_000, 1)]):
        del request.endpoints.addresses[:]
        for host, port in addresses:
            request.endpoints.addresses.add(host=host, port=port)
        answer = await client.call(kind, request)
        assert answer.status.code == pb.ILLEGAL_ACCESS_POINT
        assert answer.ByteSize() < 1_000
    del request.endpoints.addresses[:]
    for n in range(20):
        request.endpoints.addresses.add(host=f"proxy-{n}.example", port=8081)
    assert (await client.call(kind, request)).status.code == pb.OK


async def test_the_endpoints_in_an_answer_are_bounded_with_all_repetitions(
    server: EmbeddedServer, client: GrpcClient
) -> None:
    async with Admin(namesrv=server.namesrv) as admin:
        await admin.create_topic("Wide", queues=16_384)
    request = pb.QueryRouteRequest(topic=pb.Resource(name="Wide"))
    for count, code in ((1, pb.OK), (20, pb.ILLEGAL_ACCESS_POINT)):
        del request.endpoints.addresses[:]
        for n in range(count):
            request.endpoints.addresses.add(host=f"proxy-{n}.example", port=8081)
        answer = await client.call("QueryRoute", request, timeout=60)
        assert answer.status.code == code
        assert len(answer.message_queues) == (16_384 if code == pb.OK else 0)


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("AckMessage", EMPTY_ENTRY * 100_000),
        ("SendMessage", EMPTY_MESSAGE * 1_000_000),
        # A thousand properties in each of a thousand messages.
        ("SendMessage", (b"\x0a\xd0\x0f" + b"\x12\0" * 1_000) * 1_000),
        ("SendMessage", b"\xf8\x7f\0" * 1_000_000),
    ],
    ids=["entries", "messages", "properties", "unknown fields"],
)
async def test_a_request_has_a_limited_number_of_fields(
    client: GrpcClient, name: str, request_: bytes
) -> None:
    code = await refused(client.call(name, RawRequest(request_)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_the_largest_requests_of_honest_clients_are_served(client: GrpcClient) -> None:
    batch = pb.SendMessageRequest(messages=[message(body=bytes(200)) for _ in range(1_000)])
    for each in batch.messages:
        for number in range(20):
            each.user_properties[f"property {number}"] = "value"
    answer = await client.call("SendMessage", batch)
    assert answer.status.code == pb.OK
    assert len(answer.entries) == 1_000
    entries = [
        pb.AckMessageEntry(message_id=f"{number:032}", receipt_handle="0 " * 40)
        for number in range(1_000)
    ]
    request = pb.AckMessageRequest(entries=entries)
    request.group.name, request.topic.name = "readers", "Normal"
    answer = await client.call("AckMessage", request)
    assert len(answer.entries) == 1_000


@given(
    st.builds(
        pb.SendMessageRequest,
        messages=st.lists(
            st.builds(
                pb.Message,
                body=st.binary(max_size=30),
                user_properties=st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
                system_properties=st.builds(
                    pb.SystemProperties, keys=st.lists(st.text(max_size=3), max_size=9)
                ),
            ),
            max_size=20,
        ),
    )
)
def test_the_fields_of_a_request_are_counted_at_all_depths(request_: pb.SendMessageRequest) -> None:
    count = sum(map(_fields, request_.messages)) + len(request_.messages)
    data = request_.SerializeToString()
    assert Bounded(pb.SendMessageRequest, count).FromString(data) == request_
    if count and len(data) > 2 * (count - 1):
        with pytest.raises(GrpcError):
            Bounded(pb.SendMessageRequest, count - 1).FromString(data)


def _fields(one: pb.Message) -> int:
    system = one.system_properties
    has_system = one.HasField("system_properties")
    return (
        bool(one.body) + 3 * len(one.user_properties) + has_system + len(system.keys)
    )  # a property is an entry with a name and a value


@given(st.binary(max_size=300))
def test_bytes_that_are_no_request_are_left_to_the_parser(data: bytes) -> None:
    bounded = Bounded(pb.SendMessageRequest, 150)
    try:
        expected = pb.SendMessageRequest.FromString(data)
    except Exception as error:
        with pytest.raises(type(error)):
            bounded.FromString(data)
    else:
        assert bounded.FromString(data) == expected


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
async def test_a_server_stays_small_whatever_is_sent_to_it() -> None:
    with Running(
        "serve", "--ephemeral", "--namesrv-port", "0", "--listen-port", "0", "--grpc-port", "0",
        "--no-dashboard",
    ) as running:  # fmt: skip
        found = await asyncio.to_thread(running.wait_for, r"gRPC on port (\d+)")
        before = resident(running.process.pid)
        async with GrpcClient(int(found[1])) as client:
            attempts = [
                client.call(name, RawRequest(entry * (15 * MEGABYTE // len(entry))), timeout=60)
                for name, entry in (("AckMessage", EMPTY_ENTRY), ("SendMessage", EMPTY_MESSAGE))
                for _ in range(3)
            ]
            for attempt in attempts:
                assert await refused(attempt) is grpc.StatusCode.RESOURCE_EXHAUSTED
        # It took 520 MB for one of them.
        assert resident(running.process.pid) - before < 150 * MEGABYTE


# --- held bytes ---------------------------------------------------------------------------------


async def test_the_requests_of_one_connection_are_bounded_and_others_are_served() -> None:
    async with grpc_server(max_held_per_connection=200_000) as server:
        raw, other = await Raw.open(server), await Raw.open(server)
        for stream_id in range(1, 9, 2):
            raw.call(stream_id)
            raw.data(stream_id, b"\0\0\0\xff\0" + bytes(16_000))
            for _ in range(3):
                raw.data(stream_id, bytes(16_000))
        assert await raw.status() == "8"
        other.call(1)
        other.data(1, b"\0\0\0\0\5hello", ended=True)
        await other.until(b"hello")


async def test_the_requests_of_one_address_are_bounded() -> None:
    async with grpc_server(max_held_per_owner=100_000) as server:
        first, second = await Raw.open(server), await Raw.open(server)
        for raw in (first, second):
            raw.call(1)
            for at in range(4):
                raw.data(1, (b"" if at else b"\0\0\0\xff\0") + bytes(16_000))
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(each.status()) for each in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert [each.result() for each in done] == ["8"]
        for each in pending:
            each.cancel()


async def test_metadata_counts_while_its_call_is_open() -> None:
    async with grpc_server(max_held_per_connection=100_000) as server:
        raw = await Raw.open(server)
        metadata = {f"header-{number}".encode(): b"x" * 1_000 for number in range(10)}
        for stream_id in range(1, 41, 2):
            raw.call(stream_id, metadata=metadata)
        assert await raw.status() == "8"


async def test_an_open_call_counts_as_the_objects_that_it_takes() -> None:
    async with grpc_server(max_held_per_connection=100_000) as server:
        raw = await Raw.open(server)
        for stream_id in range(1, 61, 2):
            raw.call(stream_id)
        assert await raw.status() == "8"


async def test_unsent_answers_of_all_connections_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with grpc_server(max_held=1_000_000, max_held_per_owner=1 << 30) as server:
        crowd = [await Raw.open(server) for _ in range(20)]
        other = await Raw.open(server)
        for raw in crowd:
            raw.writer.write(frame(Kind.SETTINGS, 0, 0, b"\0\4" + bytes(4)))
        # One after another, so that requests and answers together hold little.
        for stream_id in range(1, 11, 2):
            for raw in crowd:
                raw.call(stream_id)
                raw.data(stream_id, b"\0" + (16_000).to_bytes(4, "big") + bytes(16_000), ended=True)
                raw.writer.write(frame(Kind.PING, 0, 0, b"%08d" % stream_id))
                with suppress(ConnectionError, AssertionError):  # closed
                    await raw.until(b"%08d" % stream_id)
        ended = [asyncio.ensure_future(closed(raw)) for raw in crowd]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        other.call(1)
        other.data(1, b"\0\0\0\0\5hello", ended=True)
        await other.until(b"hello")
        for each in ended:
            each.cancel()
        assert sum(each.held for each in server.connections) <= 1_000_000
        assert "the most of all" in caplog.text


async def test_a_call_counts_until_its_answer_is_taken() -> None:
    async with grpc_server() as server:
        raw = await Raw.open(server)
        raw.writer.write(frame(Kind.SETTINGS, 0, 0, b"\0\4" + bytes(4)))
        for stream_id in range(1, 61, 2):
            raw.call(stream_id)
            raw.data(stream_id, b"\0\0\0\0\5hello", ended=True)
            raw.writer.write(frame(Kind.PING, 0, 0, b"%08d" % stream_id))
            await raw.until(b"%08d" % stream_id)
        [connection] = server.connections
        await until(lambda: connection.held >= 30 * 4_096)
        raw.writer.write(frame(Kind.SETTINGS, 0, 0, b"\0\4" + (1_000).to_bytes(4, "big")))
        await until(lambda: connection.held < 4_096)


async def test_a_client_that_takes_no_answers_is_closed_whatever_else_it_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with grpc_server(idle_timeout=0.3, request_timeout=0.2) as server:
        raw = await Raw.open(server)
        raw.writer.write(frame(Kind.SETTINGS, 0, 0, b"\0\4" + bytes(4)))
        raw.call(1)
        raw.data(1, b"\0\0\0\0\5hello", ended=True)
        await closed(raw)
        assert "it has not taken its answers" in caplog.text


async def test_a_header_list_that_refers_to_the_table_again_and_again_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with grpc_server() as server:
        raw = await Raw.open(server)
        raw.call(1, metadata={b"a": b"b"})
        large = b"\x40" + literal(b"large", b"v" * 3_900)[1:]
        raw.writer.write(frame(Kind.HEADERS, 5, 3, b"\x83\x86" + large + b"\xbe" * 5))
        await closed(raw)
        assert "header list" in caplog.text


async def test_what_was_held_counts_no_more_after_the_answer() -> None:
    async with grpc_server(max_held_per_connection=30_000) as server:
        raw = await Raw.open(server)
        raw.writer.write(frame(Kind.WINDOW_UPDATE, 0, 0, (1 << 20).to_bytes(4, "big")))
        for stream_id in range(1, 41, 2):
            raw.call(stream_id)
            raw.data(stream_id, b"\0" + (10_000).to_bytes(4, "big") + bytes(9_990))
            raw.data(stream_id, b"%010d" % stream_id, ended=True)
            await raw.until(b"%010d" % stream_id)


# --- turns --------------------------------------------------------------------------------------


def open_streams(count: int) -> Callable[[Raw], None]:
    def prepare(raw: Raw) -> None:
        for stream_id in range(1, 2 * count, 2):
            raw.call(stream_id)

    return prepare


def windows(raw: Raw, number: int) -> None:
    value = (1 + number % 2).to_bytes(4, "big")
    raw.writer.write(frame(Kind.SETTINGS, 0, 0, b"\0\4" + value))


def pings(raw: Raw, number: int) -> None:
    raw.writer.write(frame(Kind.PING, 0, 0, bytes(8)))


def unknown_methods(raw: Raw, number: int) -> None:
    raw.call(10_001 + 2 * number, b"/a.B/Missing", ended=True)


def resets(raw: Raw, number: int) -> None:
    raw.call(10_001 + 2 * number)
    raw.writer.write(frame(Kind.RST_STREAM, 0, 10_001 + 2 * number, bytes(4)))


@pytest.mark.parametrize("flood", [windows, pings, unknown_methods, resets])
async def test_a_flood_beside_open_streams_is_ended_and_others_are_answered(
    flood: Callable[[Raw, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A clock that makes a turn of a hundred frames, however fast the machine is."""
    ticks = iter(range(1 << 40))
    async with grpc_server(clock=lambda: next(ticks) * 2e-5) as server:
        raw, other = await Raw.open(server), await Raw.open(server)
        open_streams(1_900)(raw)
        for number in range(30_000):
            flood(raw, number)
        ended = asyncio.ensure_future(closed(raw))
        answers = 0
        while not ended.done():
            other.call(1 + 2 * answers)
            other.data(1 + 2 * answers, b"\0\0\0\0\5hello", ended=True)
            await other.until(b"hello")
            answers += 1
        assert "its frames cause too much work" in caplog.text
        assert answers > 2, "the other client waits for the whole flood"


async def closed(raw: Raw) -> None:
    """Wait until the server has closed a connection, on which it may not have read everything."""
    with suppress(ConnectionError):
        await raw.until_closed()


async def test_an_address_that_makes_too_much_work_is_not_let_in_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with grpc_server(clock=lambda: 0.0) as server:
        while "its address causes too much work" not in caplog.text:
            raw = await Raw.open(server)
            raw.writer.write(frame(Kind.PING, 0, 0, bytes(8)) * 30_000)
            await closed(raw)


# --- users at one address ---------------------------------------------------------------------


def sign(call: Call) -> Sequence[Any]:
    """Believe the header `user`."""
    if name := call.text(b"user"):
        call.caller = cast(Caller, SimpleNamespace(username=name))
    return ()


SIGNED = {path: method._replace(admit=sign) for path, method in METHODS.items()}
ALICE, MALLORY = {b"user": b"alice"}, {b"user": b"mallory"}


async def greet(raw: Raw, stream_id: int, user: dict[bytes, bytes]) -> None:
    raw.call(stream_id, metadata=user)
    raw.data(stream_id, b"\0\0\0\0\5hello", ended=True)
    await raw.until(b"hello")


def large(raw: Raw, user: dict[bytes, bytes], *stream_ids: int) -> None:
    """Begin calls whose requests never end, with 60,000 bytes of each."""
    for stream_id in stream_ids:
        raw.call(stream_id, metadata=user)
        raw.data(stream_id, b"\0" + (64 << 10).to_bytes(4, "big"))
        for _ in range(6):
            raw.data(stream_id, bytes(10_000))


@pytest.mark.parametrize("user", [{}, MALLORY], ids=["stranger", "another user"])
async def test_a_user_pays_for_no_other_at_the_same_address(user: dict[bytes, bytes]) -> None:
    async with grpc_server(methods=SIGNED, clock=lambda: 0.0) as server:
        alice = await Raw.open(server)
        await greet(alice, 1, ALICE)
        for _ in range(6):
            raw = await Raw.open(server)
            raw.call(1, metadata=user, ended=True)
            raw.writer.write(frame(Kind.PING, 0, 0, bytes(8)) * 30_000)
            await closed(raw)
        # More than a connection has in reserve, and less than its own budget.
        alice.writer.write(frame(Kind.PING, 0, 0, b"pings 01") * 10_000)
        await greet(alice, 3, ALICE)
        # The address itself is used up, or the budget of the other user.
        again = await Raw.open(server)
        if user:
            await greet(again, 1, ALICE)
        again.call(3, metadata=user, ended=True)
        again.writer.write(frame(Kind.PING, 0, 0, bytes(8)) * 10)
        await closed(again)


async def test_an_unsigned_connection_with_little_work_pays_for_no_other() -> None:
    async with grpc_server(clock=lambda: 0.0) as server:
        good = await Raw.open(server)
        for number in range(20):
            await greet(good, 1 + 2 * number, {})
        for _ in range(6):
            raw = await Raw.open(server)
            raw.writer.write(frame(Kind.PING, 0, 0, bytes(8)) * 30_000)
            await closed(raw)
        for number in range(20, 40):
            good.writer.write(frame(Kind.PING, 0, 0, bytes(8)))
            await greet(good, 1 + 2 * number, {})


async def received(raw: Raw) -> None:
    """Wait until the server has everything that was sent."""
    raw.writer.write(frame(Kind.PING, 0, 0, b"received"))
    await raw.until(b"received")


async def test_what_strangers_hold_leaves_room_for_a_user_at_the_same_address() -> None:
    async with grpc_server(methods=SIGNED, max_held_per_owner=150_000) as server:
        alice, stranger = await Raw.open(server), await Raw.open(server)
        large(stranger, {}, 1, 3)
        await received(stranger)
        large(alice, ALICE, 1)
        await greet(alice, 3, ALICE)
        large(stranger, {}, 5)
        assert await stranger.status() == "8"


async def test_those_who_hold_the_most_together_lose_their_connections() -> None:
    options = {"methods": SIGNED, "max_held": 600_000, "max_held_per_owner": 1 << 30}
    async with grpc_server(**options) as server:
        alice = await Raw.open(server)
        large(alice, ALICE, 1, 3, 5)
        await received(alice)
        crowd = [await Raw.open(server) for _ in range(5)]
        for raw in crowd:
            large(raw, MALLORY, 1, 3)
        ended = [asyncio.ensure_future(closed(raw)) for raw in crowd]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        await greet(alice, 7, ALICE)
        for each in ended:
            each.cancel()
        assert 2 < len(server.connections) < 6, "no more than are in the way"


async def test_many_connections_with_many_calls_share_the_turns_of_the_event_loop() -> None:
    """By a clock that makes a short turn of a call, however fast the machine is."""
    ticks = iter(range(1 << 40))
    counted = 0

    async def count(call: Call, request: Echo) -> Echo:
        nonlocal counted
        counted += 1
        if counted == 1_800:
            all_counted.set()
        return request

    all_counted = asyncio.Event()
    methods = {**METHODS, b"/a.B/Count": Unary(Echo, count)}
    async with grpc_server(methods=methods, clock=lambda: next(ticks) * 3e-4) as server:
        other = await Raw.open(server)
        crowd = [await Raw.open(server) for _ in range(20)]
        executed = []
        for turn in range(30):
            before = counted
            other.call(1 + 2 * turn)
            other.data(1 + 2 * turn, b"\0\0\0\0\5hello", ended=True)
            for number in range(6 * turn, 6 * turn + 6, 2):
                for raw in crowd:
                    raw.call(1 + number, b"/a.B/Count")
                    raw.data(1 + number, b"\0\0\0\0\0", ended=True)
            await other.until(b"hello")
            executed.append(counted - before)
        # It takes several turns of the loop. Otherwise all 60 calls are executed in the first one.
        assert 0 < max(executed[3:]) < 30
        async with asyncio.timeout(30):
            await all_counted.wait()


class LoopTurns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._next()

    def _next(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> int:
        self._handle.cancel()
        return self.count


@pytest.mark.parametrize("calls", [1, 5])
async def test_connections_of_one_address_share_turns_though_nobody_else_is_active(
    calls: int,
) -> None:
    """By a clock that makes a short turn of a few calls, however fast the machine is."""
    ticks = iter(range(1 << 40))
    executed: list[int] = []  # the turn of each call

    async def note(call: Call, request: Echo) -> Echo:
        executed.append(turns.count)
        if len(executed) == 100:
            all_executed.set()
        return request

    all_executed = asyncio.Event()
    methods = {**METHODS, b"/a.B/Note": Unary(Echo, note)}
    async with grpc_server(methods=methods, clock=lambda: next(ticks) * 1e-4) as server:
        crowd = [await Raw.open(server) for _ in range(100 // calls)]
        for raw in crowd:
            raw.call(1)
            raw.data(1, b"\0\0\0\0\5hello", ended=True)
            await raw.until(b"hello")
        turns = LoopTurns()
        for raw in crowd:
            for number in range(calls):
                raw.call(3 + 2 * number, b"/a.B/Note")
                raw.data(3 + 2 * number, b"\0\0\0\0\0", ended=True)
        async with asyncio.timeout(30):
            await all_executed.wait()
        turns.stop()
        assert max(map(executed.count, executed)) < 25


class BusyPort:
    """Brokers that answer everything with SYSTEM_BUSY, and note the turn of each request."""

    local = True
    elsewhere = False
    queue = MessageQueue("Normal", "broker", 0)

    def __init__(self, turns: LoopTurns) -> None:
        self._turns = turns
        self.asked: list[int] = []

    def open(self, *args: Any) -> BusyPort:
        return self

    async def route(self, topic: str) -> TopicRouteData:
        return TopicRouteData()

    def choose(self, *args: Any) -> BusyPort:
        return self

    def ended(self, *args: Any) -> None:
        pass

    def request(self, *args: Any, **options: Any) -> asyncio.Future[Answer]:
        self.asked.append(self._turns.count)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.set_result(Answer(ResponseCode.SYSTEM_BUSY, "", None, b""))
        return answer


@pytest.mark.parametrize("kind", ["AckMessage", "SendMessage"])
async def test_large_requests_are_executed_in_slices(kind: str) -> None:
    request: Any
    if kind == "AckMessage":
        handle = ReceiptHandle(
            0, now_ms(), 60_000, 0, TopicKind.NORMAL, "broker", 0, 0, -1
        ).encode()
        request = pb.AckMessageRequest(
            entries=[pb.AckMessageEntry(receipt_handle=handle) for _ in range(200)]
        )
        request.group.name, request.topic.name = "readers", "Normal"
    else:
        request = pb.SendMessageRequest(messages=[message() for _ in range(200)])
    turns = LoopTurns()
    port = BusyPort(turns)
    service = Messaging(ProxyConfig(), port, Access())  # type: ignore[arg-type]
    method = service.methods()[f"/{SERVICE}/{kind}".encode()]
    assert isinstance(method, Unary)
    call = Call(kind, ("127.0.0.1", 1), {b"x-mq-client-id": b"c"})
    answers: list[Any] = await asyncio.gather(*(method.handler(call, request) for _ in range(5)))
    turns.stop()
    assert [len(answer.entries) for answer in answers] == [200] * 5
    assert len(port.asked) == 1_000
    assert max(map(port.asked.count, port.asked)) == SLICE


async def test_slices_of_all_large_requests_share_the_turns() -> None:
    turns, passed = Turns(), LoopTurns()
    taken = []

    async def request(number: int, address: str) -> None:
        async for part in turns.slices(address, range(10 * SLICE)):
            assert len(part) == SLICE
            taken.append(passed.count)
            order.append(number)

    order: list[int] = []
    requests = [asyncio.ensure_future(request(number, "192.0.2.1")) for number in range(4)]
    requests.append(asyncio.ensure_future(request(4, "192.0.2.2")))
    await asyncio.sleep(0)
    requests[3].cancel()
    await asyncio.wait(requests)
    passed.stop()
    assert len(set(taken)) == len(taken) == 40
    # Addresses take turns, and the requests of one address are executed one after another.
    assert order == [0, 4] * 10 + [1] * 10 + [2] * 10
