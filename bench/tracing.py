"""What traces cost the broker: `python -m bench.tracing`.

Two brokers, one of which makes spans for a collector, get the same sends in turn. Each message has
a W3C context, so each send is a span. Then messages without one are sent, as from clients that do
not trace. The collector is in the process of the benchmark: its work is not in the CPU time, but
may be in the rates.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from .metrics import compare, start_brokers
from .work_directory import work_directory

CONTEXT = "traceparent\x0100-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\x02"


def main() -> int:
    argparse.ArgumentParser(prog="python -m bench.tracing", description=__doc__).parse_args()
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        collector, port = start_collector()
        cleanup.callback(collector.stop, None)
        target = {"traceGrpcExporterTarget": f"http://127.0.0.1:{port}"}
        brokers, _ = start_brokers(directory, target, cleanup)
        compare(brokers, "a span each, traces", CONTEXT)
        print()
        compare(brokers, "no span, traces")
    return 0


def start_collector() -> tuple[Any, int]:
    """A collector that throws all spans away, and its port."""
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

    class Servicer(service.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return messages.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    add: Any = service.add_TraceServiceServicer_to_server
    add(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


if __name__ == "__main__":
    sys.exit(main())
