"""The two ways of resetting offsets under live consumers, and the offsets that a broker has stored.

By the old way the broker tells the consumers where to go on, by the new way it answers their pulls
with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import wire
from .cluster import Cluster

QUERY_CONSUMER_OFFSET = 14


def stored(cluster: Cluster, topic: str, group: str) -> int:
    """How many messages the group has consumed by its stored offsets; none while one is missing."""
    total = 0
    for queue in range(4):
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        answer = wire.call(
            cluster.broker.address,
            QUERY_CONSUMER_OFFSET,
            {**fields, "setZeroIfNotFound": "false"},
        )
        if answer.code:
            return 0
        total += int(answer.ext_fields["offset"])
    return total


@contextmanager
def way(cluster: Cluster, *, at_the_broker: bool) -> Iterator[None]:
    """The broker resets in this way, and by default again after it."""
    _set(cluster, at_the_broker)
    try:
        yield
    finally:
        _set(cluster, True)


def _set(cluster: Cluster, at_the_broker: bool) -> None:
    body = f"useServerSideResetOffset={str(at_the_broker).lower()}".encode()
    assert wire.call(cluster.broker.address, wire.UPDATE_BROKER_CONFIG, body=body).code == 0
