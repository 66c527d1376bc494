"""Who pops and who pulls, as an admin sets it and as clients are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pocketmq.remoting.bodies.pop import (
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from pocketmq.remoting.bodies.route import QueueData, TopicRouteData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer
from tests.broker.conftest import Client, Connect, StartBroker, fill, subscription


async def assigned(client: Client, topic: str, client_id: str = "c1", **fields: Any) -> Any:
    """Broker name, queue id and mode of each assignment."""
    body = QueryAssignmentRequestBody(
        client_id=client_id,
        consumer_group="G",
        topic=topic,
        **{"strategy_name": "AVG", **fields},
    )
    answer = await client.request(RequestCode.QUERY_ASSIGNMENT, None, body.encode())
    assert answer.code == 0, answer.remark
    found = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
    if found is None:
        return None
    return sorted(
        (queue.broker_name, queue.queue_id, one.mode)
        for one in found
        if (queue := one.message_queue) is not None
    )


async def set_mode(client: Client, topic: str, mode: str = "POP", shared: int = 0) -> Command:
    body = SetMessageRequestModeRequestBody(
        topic=topic, consumer_group="G", mode=mode, pop_share_queue_num=shared
    )
    return await client.request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body.encode())


async def test_clients_pull_until_an_admin_says_pop(
    client: Client, topic: str, tmp_path: Path
) -> None:
    await fill(client, topic, "")
    assert await assigned(client, topic) is None  # nobody of the group is online
    await client.heartbeat("c1", subscription(topic))
    assert await assigned(client, topic) == [("b0", n, "PULL") for n in range(4)]
    assert (await set_mode(client, topic)).code == 0
    assert await assigned(client, topic) == [("b0", -1, "POP")]
    assert await assigned(client, topic, message_model="BROADCASTING") == [
        ("b0", n, "POP") for n in range(4)
    ]
    assert await assigned(client, topic, strategy_name="?") is None
    path = tmp_path / "store" / "config" / "messageRequestMode.json"
    stored = json.loads(path.read_text())
    assert stored == {
        "messageRequestModeMap": {
            topic: {
                "G": {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0, "topic": topic}
            }
        }
    }
    answer = await client.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    table = MessageRequestModeSerializeWrapper.decode(answer.body).message_request_mode_map
    assert table[topic]["G"].mode == "POP"


async def test_modes_that_are_refused(client: Client, topic: str) -> None:
    assert (await set_mode(client, "NoSuchTopic")).code == 17
    assert (await set_mode(client, "%RETRY%G")).code == 16
    await fill(client, topic, "")
    assert (await set_mode(client, topic, "PUSH")).code == 29


async def test_modes_survive_a_restart(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker()
    client = await connect(broker)
    await fill(client, topic, "")
    assert (await set_mode(client, topic, shared=1)).code == 0
    await broker.stop()
    broker = await start_broker()
    clients = [await connect(broker) for _ in range(4)]
    for n, one in enumerate(clients):
        await one.heartbeat(f"c{n}", subscription(topic))
    # Each client shares with the next one.
    assert [await assigned(one, topic, f"c{n}") for n, one in enumerate(clients)] == [
        sorted(("b0", queue_id, "POP") for queue_id in (n, (n + 1) % 4)) for n in range(4)
    ]


async def test_the_default_mode_and_queues_of_other_brokers(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    route = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="b0", perm=6, read_queue_nums=2),
            QueueData(broker_name="b1", perm=4, read_queue_nums=1),
            QueueData(broker_name="b2", perm=2, read_queue_nums=1),
        ]
    )

    def answer(request: Request[Any]) -> Response:
        return Response(body=route.encode(True))

    dispatcher = Dispatcher()
    dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, answer)
    name_server = RemotingServer(dispatcher)
    await name_server.start()
    try:
        broker = await start_broker(
            namesrv_addr=f"127.0.0.1:{name_server.port}",
            default_message_request_mode="POP",
            register_broker_timeout_mills=1_000,
        )
        client = await connect(broker)
        await client.heartbeat("c1", subscription(topic))
        assert await assigned(client, topic) == [("b0", -1, "POP"), ("b1", -1, "POP")]
        queues = [("b0", 0), ("b0", 1), ("b1", 0)]
        assert await assigned(client, f"%RETRY%{topic}") == [(*one, "PULL") for one in queues]
        await broker.stop()
    finally:
        await name_server.stop()
