"""The message trace of the official Java client: stored, and found again by mqadmin."""

from __future__ import annotations

from tests.interop.harness import wire
from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import JavaPeer

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

# Fields of one record are divided by \1, records by \2; the kind of record comes first.
FIELD, RECORD = "\1", "\2"


@every_java_client
def test_sends_and_consumption_leave_their_trace(
    java: JavaPeer, admin: JavaPeer, cluster: Cluster, topic: str
) -> None:
    address, group = cluster.address, f"traced_{topic}"

    def routed() -> bool:
        return wire.call(address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": TRACE_TOPIC}).code == 0

    def records() -> dict[str, set[str]]:
        """The kinds of records of each message, by its unique id."""
        found: dict[str, set[str]] = {name: set() for name in ids}
        answer = admin("pull", namesrv=address, group="reader", topics=[TRACE_TOPIC])
        for message in answer["messages"]:
            for record in message["body"].split(RECORD):
                fields = record.split(FIELD)
                for name in found.keys() & set(fields):
                    found[name].add(fields[0])
        return found

    ids = java("trace-start", namesrv=address, group=group, topic=topic,
               bodies=["m0", "m1", "m2"], timeoutMillis=30_000)  # fmt: skip
    try:
        wire.until(routed, "the topic of the trace")  # The first record makes it.
        wanted = {name: {"Pub", "SubBefore", "SubAfter"} for name in ids}
        wire.until(lambda: records() == wanted, "the whole trace", 30, 0.3)
    finally:
        java("trace-stop", group=group)
    text = admin.mqadmin("queryMsgTraceById", "-n", address, "-i", ids[0])
    assert f"P{group}" in text, text
    assert group in text.replace(f"P{group}", ""), text
    assert "success" in text
