"""The message trace of the official Java client: stored, and found again by mqadmin."""

from __future__ import annotations

from tests.interop.harness import message_trace
from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import JavaPeer


@every_java_client
def test_sends_and_consumption_leave_their_trace(
    java: JavaPeer, admin: JavaPeer, cluster: Cluster, topic: str
) -> None:
    address, group = cluster.address, f"traced_{topic}"
    ids = java("trace-start", namesrv=address, group=group, topic=topic,
               bodies=["m0", "m1", "m2"], timeoutMillis=30_000)  # fmt: skip
    try:
        message_trace.await_kinds(admin, address, ids, {"Pub", "SubBefore", "SubAfter"})
    finally:
        java("trace-stop", group=group)
    text = admin.mqadmin("queryMsgTraceById", "-n", address, "-i", ids[0])
    assert f"P{group}" in text, text
    assert group in text.replace(f"P{group}", ""), text
    assert "success" in text
