"""What a server process keeps of floods that take some seconds each: see test_resident_memory.py.

The limits are as low as settings allow, or those of a small machine, so that a flood is small, too.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command, encode_command
from tests.security.resident import (
    ADDRESSES,
    MB,
    WIDE,
    Open,
    Peer,
    Serve,
    heartbeat,
    needs_proc,
    registration,
    send,
)

pytestmark = [needs_proc, pytest.mark.long]


def pull(number: int, *, tags: str = "*", offset: int = 0, queue: int = 0, hold: int = 0) -> bytes:
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "6" if hold else "4", "commitOffset": "0",
        "suspendTimeoutMillis": str(hold), "subVersion": "0", "subscription": tags,
        "expressionType": "TAG",
    }  # fmt: skip
    return encode_command(RequestCode.PULL_MESSAGE, number, ext_fields=fields)


def pop(number: int, *, tags: str = "*", most: int = 1, hold: int = 0) -> bytes:
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": str(most),
        "invisibleTime": "600000", "pollTime": str(hold), "bornTime": "0", "initMode": "0",
        "expType": "TAG", "exp": tags, "order": "false",
    }  # fmt: skip
    return encode_command(RequestCode.POP_MESSAGE, number, ext_fields=fields)


def held_pull(number: int, tags: str) -> bytes:
    return pull(number, tags=tags, offset=1, hold=600_000)


def held_pop(number: int, tags: str) -> bytes:
    return pop(number, tags=tags, hold=600_000)


@pytest.mark.parametrize("tags", [0, 150, 2_000])
@pytest.mark.parametrize("poll", [held_pull, held_pop])
async def test_held_polls(
    serve: Serve, open_peer: Open, poll: Callable[[int, str], bytes], tags: int
) -> None:
    """Plain ones, ones just below what counts, and large ones."""
    server = serve("maxHeldPulls=6000", "maxPopPollingSize=6000", "popPollingSize=6000")
    first = await open_peer(server.broker)
    await first.flood([send(0, "T")], 1)
    await first.flood([pop(0, most=32)], 1)  # of the queue's only message
    many = 60 if tags > 1_000 else 800

    def polls(number: int) -> Iterator[bytes]:
        for n in range(many):
            text = "||".join(f"{number}.{n}.{tag}" for tag in range(tags)) or "*"
            yield poll(n, text)

    peers = [await open_peer(server.broker, address) for address in ADDRESSES for _ in range(6)]
    codes = [await peer.through(polls(number)) for number, peer in enumerate(peers)]
    assert sum(sum(each.values()) for each in codes) > 100  # some were not held
    # Large ones may have 64 MB, and the others some kilobytes each.
    assert server.growth < 130 * MB


async def test_pop_check_points(serve: Serve, open_peer: Open) -> None:
    server = serve("popCkMaxBufferSize=2000", "popCkStayBufferTime=500000",
                   "popCkOffsetMaxQueueSize=2000")  # fmt: skip
    peer = await open_peer(server.broker)
    await peer.flood((send(n, "T") for n in range(12_000)), 12_000)
    await peer.flood([heartbeat(0, ["G"])], 1)
    codes = await peer.flood((pop(n) for n in range(12_000)), 12_000)
    assert codes == {0: 12_000}
    # The pages of 12,000 messages and of their records are 30 MB of it.
    assert server.growth < 80 * MB


async def test_short_locks(serve: Serve, open_peer: Open) -> None:
    def locks(number: int) -> bytes:
        queues = [{"brokerName": "b", "queueId": n, "topic": "t"} for n in range(3_000)]
        fields = {"clientId": "c", "consumerGroup": f"G{number}", "mqSet": queues}
        body = json.dumps(fields).encode()
        return encode_command(RequestCode.LOCK_BATCH_MQ, number, body=body)

    server = serve()
    peer = await open_peer(server.broker)
    assert await peer.flood(map(locks, range(80)), 80) == {0: 80}
    assert server.growth < 110 * MB


async def test_producer_groups(serve: Serve, open_peer: Open) -> None:
    server = serve()
    for client in range(6):
        peer = await open_peer(server.broker)

        def groups(number: int, client: int = client) -> bytes:
            names = [f"{client}-{number}-{n}".ljust(255, WIDE) for n in range(210)]
            fields = {
                "clientID": f"c{client}",
                "producerDataSet": [{"groupName": g} for g in names],
            }
            body = json.dumps(fields, ensure_ascii=False).encode()
            return encode_command(RequestCode.HEART_BEAT, number, body=body)

        assert await peer.flood(map(groups, range(100)), 100) == {0: 100}
    # 100,000 names of a kilobyte.
    assert server.growth < 190 * MB


async def test_offsets(serve: Serve, open_peer: Open) -> None:
    """Of each group in each queue there is."""
    server = serve("maxAutoCreatedGroups=100", "maxAutoCreatedTopics=50")
    peer = await open_peer(server.broker)
    await peer.flood((send(n, f"T{n}") for n in range(100)), 100)
    await peer.flood((heartbeat(n, [f"G{n}"]) for n in range(200)), 200)

    def commit(number: int) -> bytes:
        fields = {"consumerGroup": f"G{number % 200}", "topic": f"T{number // 200 % 100}",
                  "queueId": str(number // 20_000), "commitOffset": "1"}  # fmt: skip
        return encode_command(RequestCode.UPDATE_CONSUMER_OFFSET, number, ext_fields=fields)

    codes = await peer.flood(map(commit, range(160_000)), 160_000)
    assert codes[0] <= 100 * 50 * 4
    assert server.growth < 30 * MB


async def test_topics(serve: Serve, open_peer: Open) -> None:
    server = serve("maxAutoCreatedTopics=500")
    peer = await open_peer(server.broker)
    topics = (send(n, f"{n}".ljust(127, "x")) for n in range(1_000))
    codes = await peer.flood(topics, 1_000)
    assert 450 < codes[0] <= 500
    assert server.growth < 45 * MB


def literals(number: int) -> str:
    return f"a = '{number}{WIDE * 32_000}'"


def comparisons(number: int) -> str:
    return " OR ".join(f"a{n} = {number}" for n in range(60))


@pytest.mark.parametrize("shape", [literals, comparisons])
async def test_expressions_of_groups_that_left(
    serve: Serve, open_peer: Open, shape: Callable[[int], str]
) -> None:
    server = serve()
    peer = await open_peer(server.broker)

    def subscribes(number: int) -> bytes:
        return heartbeat(number, ["G"], topic=f"T{number}", subString=shape(number),
                         subVersion=number, expressionType="SQL92")  # fmt: skip

    await peer.flood(map(subscribes, range(2_000)), 2_000)
    # All dead expressions may have 32 MB; what is in the file and what is written next have copies.
    assert server.growth < 200 * MB
    assert server.peak < 300 * MB


async def test_transactions(serve: Serve, open_peer: Open) -> None:
    server = serve()
    peer = await open_peer(server.broker)
    halves = (send(n, "T", properties="TRAN_MSG\1true\2PGROUP\1P\2") for n in range(20_000))
    sent: list[Command] = []
    await peer.flood(halves, 20_000, sent)

    def rollback(number: int) -> bytes:
        answer = sent[number].ext_fields
        fields = {"producerGroup": "P", "tranStateTableOffset": answer["queueOffset"],
                  "commitLogOffset": str(int(answer["msgId"][16:], 16)), "msgId": "",
                  "commitOrRollback": "12"}  # fmt: skip
        return encode_command(RequestCode.END_TRANSACTION, number, ext_fields=fields)

    assert await peer.flood(map(rollback, range(20_000)), 20_000) == {0: 20_000}
    assert server.growth < 60 * MB


def group_list(number: int) -> bytes:
    body = json.dumps({"groupConfigList": [{"groupName": "G"}], "x": "x" * 1_000_000}).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    return encode_command(code, number, body=body)


def topic_list(number: int) -> bytes:
    body = json.dumps({"topicConfigList": [{"topicName": "T"}], "x": "x" * 1_000_000}).encode()
    return encode_command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, number, body=body)


def group(number: int) -> bytes:
    body = json.dumps({"groupName": "G", "x": "x" * 250_000}).encode()
    return encode_command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, number, body=body)


@pytest.mark.parametrize("shape", [group_list, topic_list, group])
async def test_requests_that_wait_keep_no_bodies(
    serve: Serve, open_peer: Open, shape: Callable[[int], bytes]
) -> None:
    server = serve()
    peers = [await open_peer(server.broker) for _ in range(4)]
    await asyncio.gather(*(peer.flood(map(shape, range(150)), 150) for peer in peers))
    assert server.peak < 100 * MB


async def test_frames_without_an_end(serve: Serve, open_peer: Open) -> None:
    server = serve(module="tests.security.small_machine")
    for number in range(20):
        peer = await open_peer(server.broker, ADDRESSES[number % 3])
        peer.writer.write((16 * MB - 100).to_bytes(4, "big") + bytes(15 * MB))
        await asyncio.wait(
            [asyncio.ensure_future(peer.writer.drain()), asyncio.ensure_future(peer.reader.read())],
            return_when=asyncio.FIRST_COMPLETED,
        )
    first = await open_peer(server.broker)
    await first.through([])
    # 300 MB were sent; frames that are begun may have 128.
    assert server.peak < 200 * MB


async def slow_peer(port: int, address: str) -> Peer:
    """A connection whose socket takes little, and whose reader is never called."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind((address, 0))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    peer = Peer(*await asyncio.open_connection(sock=sock, limit=1))
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return peer


async def test_answers_that_many_connections_do_not_read(serve: Serve, open_peer: Open) -> None:
    server = serve(module="tests.security.small_machine")
    first = await open_peer(server.broker)
    # Of each queue every other message: an answer is not a piece of the log.
    await first.flood((send(n, "T", bytes(7_000), n % 2) for n in range(64)), 64)
    crowd = []
    try:
        for number in range(420):
            crowd.append(await slow_peer(server.broker, ADDRESSES[number % 3]))
            crowd[-1].writer.write(b"".join(map(pull, range(14))))
            await first.through([])
        async with asyncio.timeout(60):
            while server.growth > 190 * MB:
                await first.through([])
    finally:
        for peer in crowd:
            peer.writer.transport.abort()


async def test_replies(serve: Serve, open_peer: Open) -> None:
    server = serve()
    senders = []
    for number in range(24):
        address = ADDRESSES[number % 3]
        requester = await open_peer(server.broker, address)
        fields = {"clientID": f"c{number}", "producerDataSet": [{"groupName": "P"}]}
        body = json.dumps(fields).encode()
        await requester.flood([encode_command(RequestCode.HEART_BEAT, 0, body=body)], 1)
        requester.writer.transport.pause_reading()  # type: ignore[attr-defined]
        replies = []
        for n in range(8):
            properties = f"REPLY_TO_CLIENT\1c{number}\2CORRELATION_ID\1{n}\2"
            code = RequestCode.SEND_REPLY_MESSAGE_V2
            replies.append(send(n, "R", bytes(3_900_000), properties=properties, code=code))
        peer = await open_peer(server.broker, address)
        senders.append(asyncio.create_task(peer.flood(replies, 8)))
    await asyncio.wait(senders, timeout=60)
    # 256 MB of bodies in requests and again in what nobody reads, and 24 frames in between.
    assert server.peak < 800 * MB


async def test_key_value_config(serve: Serve, open_peer: Open) -> None:
    def put(number: int) -> bytes:
        fields = {"namespace": "n", "key": f"k{number}", "value": "v" * 100_000}
        return encode_command(RequestCode.PUT_KV_CONFIG, number, ext_fields=fields)

    server = serve()
    peer = await open_peer(server.namesrv)
    codes = await peer.flood(map(put, range(300)), 300)
    assert codes[0] < 170
    # 16 MB, and the copies of a write.
    assert server.peak < 100 * MB


async def test_cached_routes(serve: Serve, open_peer: Open) -> None:
    server = serve()
    peer = await open_peer(server.namesrv)
    topics = {f"{n}": {"topicName": f"{n}"} for n in range(3_000)}
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics}}
    await peer.flood((registration(n, body) for n in range(50)), 50)
    registered_growth = server.growth

    def route(number: int) -> bytes:
        fields = {"topic": f"{number}"}
        return encode_command(RequestCode.GET_ROUTEINFO_BY_TOPIC, number, ext_fields=fields)

    await peer.flood(map(route, range(4_000)), 4_000)
    assert server.growth - registered_growth < 50 * MB


async def test_half_tls_handshakes(serve: Serve, open_peer: Open) -> None:
    server = serve()
    for number in range(1_200):
        peer = await open_peer(server.broker, ADDRESSES[number % 3])
        peer.writer.write(bytes.fromhex("160301"))
    first = await open_peer(server.broker)
    await first.through([])
    assert server.growth < 30 * MB


# --- the dashboard ------------------------------------------------------------------------------


async def test_sessions_of_the_dashboard(serve: Serve) -> None:
    pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
    from tests.dashboard.conftest import Client, client_session

    server = serve(
        "authenticationEnabled=true",
        'initAuthenticationUser={"username":"root","password":"root-password-1"}',
        dashboard=True,
    )
    for number in range(200):
        async with client_session() as session:
            page = await Client(session, server.dashboard).log_in(
                user="root", secret="root-password-1"
            )
            assert page.status == 303, (number, page.words)
    # 64 sessions, each with a connection to the cluster.
    assert server.growth < 60 * MB
