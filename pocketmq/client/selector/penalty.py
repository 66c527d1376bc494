"""Penalised selection: which of two brokers should get the next send.

A broker's penalty is its latency times the messages in flight to it: an estimate of what one more
request would wait. The latency is a peak-sensitive moving average (FaultItem.peak), so a broker
that stalls is avoided after its first slow answer, and its messages in flight grow even before
there is an answer. The broker whose turn it is keeps its turn unless a random other one is clearly
better; that one is then compared with a second. A few random choices keep all clients from running
to the same best broker, and while brokers are alike the sends go round evenly.

A broker that always loses would never be heard of again, however fast it has become. So a
broker wins that was not heard of for a detection interval, or is on trial after an isolation, as
long as nothing is in flight to it: one send finds out.

Source: M. Mitzenmacher, "The power of two choices in randomized load balancing"; the peak-EWMA
balancer of Finagle. bench/selector has the comparison with plain round-robin.
"""

from __future__ import annotations

from enum import StrEnum

from pocketmq.client.selector.latency import FaultItem

#: How many times smaller a penalty must be to take the turn of another.
CLEARLY = 1.5


class Selection(StrEnum):
    """How a queue is chosen among those that pass the filters."""

    #: Whose turn it is, unless a random other broker has a clearly smaller penalty.
    PENALISED = "penalised"
    #: Whose turn it is.
    ROUND_ROBIN = "round-robin"


def better(
    other: FaultItem, turn: FaultItem, now: float, stale_after: float, messages: int = 1
) -> bool:
    """Whether `other` should get the send although it is the turn of `turn`.

    `now` in clock seconds; `stale_after`: seconds after which an old latency says nothing;
    `messages`: how many the request carries.
    """
    if _owed_a_try(turn, now, stale_after):
        return False
    if _owed_a_try(other, now, stale_after):
        return True
    return other.penalty(now, messages) * CLEARLY < turn.penalty(now, messages)


def _owed_a_try(item: FaultItem, now: float, stale_after: float) -> bool:
    return not item.in_flight and (item.on_trial or now - item.heard_at >= stale_after)
