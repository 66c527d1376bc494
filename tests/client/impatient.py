"""Consumers whose pauses are other than the usual ones."""

from __future__ import annotations

from typing import TypeVar

from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer

C = TypeVar("C", PushConsumer, PullConsumer)


def impatient(kind: type[C], pauses: Pauses | None) -> type[C]:
    """The class with these pauses; the class itself for None."""
    return kind if pauses is None else type(kind.__name__, (kind,), {"_pauses": pauses})
