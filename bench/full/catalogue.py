"""All workloads, in the order in which they are measured."""

from __future__ import annotations

from .bad_input import BAD_INPUT
from .client_costs import CLIENT, CLIENT_CPU
from .fan_out import FAN_OUT
from .footprint import MEMORY, STARTS
from .kept_messages import DELAYED, TRANSACTIONS
from .latencies import OFFERED, TAILS
from .name_servers import NAME_SERVER
from .pulls import CATCH_UP, FILTERED, PULLS
from .sends import BATCHES, CLIENTS, SENDS, SYNC_FLUSH, TOPICS_256
from .spark import SPARK_FEW, SPARK_KAFKA, SPARK_SCAN
from .two_brokers import TWO_BROKERS
from .workload import Workload

__all__ = ["WORKLOADS"]

WORKLOADS: dict[str, Workload] = {
    each.name: each
    for each in (
        SENDS, BATCHES, SYNC_FLUSH, OFFERED, TAILS, CLIENTS, TOPICS_256, FAN_OUT, PULLS, CATCH_UP,
        DELAYED, TRANSACTIONS, FILTERED, STARTS, MEMORY, NAME_SERVER, CLIENT, CLIENT_CPU,
        TWO_BROKERS, BAD_INPUT, SPARK_SCAN, SPARK_FEW, SPARK_KAFKA,
    )
}  # fmt: skip
