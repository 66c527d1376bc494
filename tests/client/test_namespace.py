import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import InvalidMessage, InvalidName
from client.namespace import Namespace
from client.producer.producer import Producer
from message.message import Message, MessageQueue
from tests.client.fake_cluster import FakeCluster

NS = Namespace("ns")


@pytest.mark.parametrize(
    ("own", "wire"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%shop", "%RETRY%ns%shop"),
        ("%DLQ%shop", "%DLQ%ns%shop"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names(own: str, wire: str) -> None:
    assert NS.wrap(own) == wire
    assert NS.wrap(wire) == wire
    assert NS.unwrap(wire) == own
    assert NS.unwrap(own) == own
    assert Namespace().wrap(own) == own
    assert Namespace().unwrap(wire) == wire


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True))
def test_unwrapping_undoes_wrapping(name: str) -> None:
    assert NS.unwrap(NS.wrap(name)) == name
    assert NS.unwrap("other%" + name) == "other%" + name


@pytest.mark.parametrize("name", ["a b", "a%b", " "])
def test_what_is_no_namespace(name: str) -> None:
    with pytest.raises(InvalidName, match="namespace"):
        Namespace(name)


async def test_a_producer_within_a_namespace(cluster: FakeCluster) -> None:
    cluster.put("ns%T", "a")
    message = Message("T", b"x")
    queue = MessageQueue("T", "a", 1)
    async with Producer("PG", namesrv=cluster.namesrv, namespace="ns") as p:
        assert await p.queues("T") == (MessageQueue("T", "a", 0), queue)
        results = [
            await p.send(message),
            await p.send(message, queue=queue),
            await p.send(message, key="k"),
            *await p.send_batch([message, message]),
            *await p.send_batch([message, message], queue=queue),
            await (await p.post(message)),
            await (await p.post(message, queue=queue)),
        ]
        await p.send_oneway(message)
        with pytest.raises(InvalidMessage, match="can not go to"):
            await p.send(message, queue=MessageQueue("U", "a", 1))
    assert {result.queue.topic for result in results} == {"T"}
    assert message.topic == "T"
    for header in cluster["a"].sent:
        assert (header.topic, header.producer_group) == ("ns%T", "ns%PG")
        assert "INSTANCE_ID\x01ns\x02" in header.properties
    [data, *_] = cluster["a"].heartbeats
    assert [group.group_name for group in data.producer_data_set] == ["ns%PG"]
