"""Two of our brokers, one killed while the official Java producer sends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop.harness import ours, wire
from tests.interop.harness.official import JavaPeer, Server

GET_MAX_OFFSET = 30
TOPIC = "Failover"
COUNT = 2_000


def stored(broker: Server) -> int:
    """Messages in the topic's queues on one broker."""
    return sum(
        int(
            wire.call(
                broker.address, GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue)}
            ).ext_fields["offset"]
        )
        for queue in range(4)
    )


def test_java_producer_goes_on_when_a_broker_is_killed(java: JavaPeer, tmp_path: Path) -> None:
    namesrv = ours.start_name_server(tmp_path)
    lasting = ours.start_broker(tmp_path, namesrv.address, name="lasting")
    doomed = ours.start_broker(tmp_path, namesrv.address, name="doomed")
    arguments = {"namesrv": namesrv.address, "group": "failover", "topic": TOPIC, "mode": "sync"}
    try:
        # Both create the topic before it counts: 8 template queues, 4 on each.
        java("send", **arguments, messages=[{"body": f"create {i}"} for i in range(8)])
        with ThreadPoolExecutor() as pool:
            messages = [{"body": f"message {i}"} for i in range(COUNT)]
            sending = pool.submit(java, "send", **arguments, messages=messages)
            wire.until(lambda: stored(doomed) > 50, "sends to the broker that is to be killed")
            doomed.process.kill()
            results = sending.result(60)
        assert len(results) == COUNT
        assert {result["status"] for result in results} == {"SEND_OK"}
        assert results[-1]["brokerName"] == "lasting"

        port = int(doomed.address.rpartition(":")[2])
        doomed = ours.start_broker(tmp_path, namesrv.address, name="doomed", port=port)
        answer = java("pull", namesrv=namesrv.address, group="failover_reader", topics=[TOPIC])
        bodies = {message["msgId"]: message["body"] for message in answer["messages"]}
        for i, result in enumerate(results):
            assert bodies[result["msgId"]] == f"message {i}"
    finally:
        for server in (lasting, doomed, namesrv):
            server.process.kill()
