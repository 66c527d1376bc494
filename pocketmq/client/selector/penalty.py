"""Penalised selection: decides which of two brokers gets the next send.

A broker's penalty is its latency times the messages in flight to it: an estimate of the wait of one
more request. The latency is a peak-sensitive moving average (FaultItem.peak), so a broker that
stalls is avoided after its first slow answer; even before that, its messages in flight grow. The
broker whose turn it is keeps its turn unless another one, chosen at random, is clearly better; the
better one is then compared with a second. The random choices prevent all clients from choosing the
same best broker, and while brokers are equally good, the sends are spread evenly.

A broker that always loses would have no new latency even after it has become fast. So a broker
without an outcome for a detection interval, or on trial after an isolation, wins if no message is
in flight to it: one send measures it.

Source: M. Mitzenmacher, "The power of two choices in randomized load balancing"; the peak-EWMA
balancer of Finagle. bench/selector has the comparison with plain round-robin.
"""

from __future__ import annotations

from enum import StrEnum

from pocketmq.client.selector.latency import FaultItem

#: A penalty that is this many times smaller takes the turn of the other.
CLEARLY = 1.5


class Selection(StrEnum):
    """How a queue is chosen among those that pass the filters."""

    #: In turn, unless another random broker has a clearly smaller penalty.
    PENALISED = "penalised"
    #: In turn.
    ROUND_ROBIN = "round-robin"


def better(
    other: FaultItem, turn: FaultItem, now: float, stale_after: float, messages: int = 1
) -> bool:
    """Return whether `other` should get the send although it is the turn of `turn`.

    `now`: clock seconds. `stale_after`: seconds after which a latency is out of date. `messages`:
    their number in the request.
    """
    if _owed_a_try(turn, now, stale_after):
        return False
    if _owed_a_try(other, now, stale_after):
        return True
    return other.penalty(now, messages) * CLEARLY < turn.penalty(now, messages)


def _owed_a_try(item: FaultItem, now: float, stale_after: float) -> bool:
    return not item.in_flight and (item.on_trial or now - item.heard_at >= stale_after)
