"""rocketmq_rpc_latency, a metric of brokers and name servers."""

from __future__ import annotations

from typing import Final

from pocketmq.monitoring.families import HISTOGRAM, Distribution, Family
from pocketmq.remoting.serving.rpc_latency import BOUNDS_MS, RpcLatency

PROTOCOL: Final = "remoting"


def rpc_latency(latency: RpcLatency) -> Family:
    """Return the times of a server's requests."""
    return Family(
        "rocketmq_rpc_latency",
        HISTOGRAM,
        "Time from the dispatch of a request to its answer",
        ("request_code", "response_code", "is_long_polling", "protocol_type", "result"),
        [
            (
                (
                    each.request_code,
                    each.response_code,
                    "true" if each.is_long_polling else "false",
                    PROTOCOL,
                    each.result,
                ),
                Distribution(each.buckets, each.seconds * 1000),
            )
            for each in latency.figures()
        ],
        "milliseconds",
        BOUNDS_MS,
    )
