"""The rocketmq_pop_* metrics of a broker. Reference: PopMetricsManager."""

from __future__ import annotations

from collections.abc import Iterator

from pocketmq.broker.pop.consumption import PopConsumption
from pocketmq.broker.statistics.pop_counts import PopCounts
from pocketmq.monitoring.families import COUNTER, GAUGE, Family

_OF_MESSAGES = ("topic", "consumer_group")


def pop_metrics(pop: PopConsumption, counts: PopCounts) -> Iterator[Family]:
    """Return the current state of POP, and the counts of the revive log since the start."""
    buffer = pop.deliveries.buffer
    for name, text, size in (
        ("checkpoint", "Checkpoints in memory", len(buffer)),
        ("offset", "Checkpoints that hold up a consumer offset", buffer.unfinished),
    ):
        yield Family(f"rocketmq_pop_{name}_buffer_size", GAUGE, text, (), [((), size)])
    behind = [(str(each.queue_id), each) for each in pop.revive.behind()]
    yield Family(
        "rocketmq_pop_revive_lag",
        GAUGE,
        "Records, whatever the name says, of the revive log that wait",
        ("queue_id",),
        [((queue,), each.records) for queue, each in behind],
        "milliseconds",
    )
    yield Family(
        "rocketmq_pop_revive_latency",
        GAUGE,
        "Age of the first of them",
        ("queue_id",),
        [((queue,), each.milliseconds) for queue, each in behind],
        "milliseconds",
    )
    yield Family(
        "rocketmq_pop_revive_in_message_total",
        COUNTER,
        "Records written to the revive log",
        (*_OF_MESSAGES, "revive_message_type", "put_status"),
        list(counts.written.items()),
    )
    yield Family(
        "rocketmq_pop_revive_out_message_total",
        COUNTER,
        "Records read from the revive log",
        (*_OF_MESSAGES, "queue_id", "revive_message_type"),
        [
            ((topic, group, str(queue_id), kind), count)
            for (topic, group, queue_id, kind), count in counts.read.items()
        ],
    )
    yield Family(
        "rocketmq_pop_revive_retry_messages_total",
        COUNTER,
        "Messages that were not acknowledged in time",
        (*_OF_MESSAGES, "put_status"),
        list(counts.retried.items()),
    )
