"""Judges what consumers got, by the history that the clients wrote alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .ledger import Committed, Handled, Kind, Ledger, OffsetKey, Sent


def missing(ledger: Ledger, subscriptions: Mapping[str, Collection[str]], now: int) -> list[str]:
    """What groups, with their topics, have not got although it was acknowledged and due by `now`
    (Unix ms)."""
    owed = [sent for sent in ledger.messages if ledger.is_owed(sent, now)]
    return [
        f"{sent} was acknowledged, and {group} has not got it"
        for group, topics in subscriptions.items()
        for sent in owed
        if sent.topic in topics and sent.number not in ledger.received[group]
    ]


def broken_promises(ledger: Ledger, orderly: Collection[str], tells: Collection[str]) -> list[str]:
    """What should not have happened.

    `orderly`: groups that must get each queue in order. `tells`: groups whose history has every
    message of their topics that was done or given back, so that their offsets can be judged.
    """
    faults: list[str] = []
    places = dict(ledger.places)
    prefixes: defaultdict[OffsetKey, _Prefix] = defaultdict(_Prefix)
    for event in ledger.history:
        prefix = prefixes[event.group, event.topic, event.queue_id]
        if isinstance(event, Committed):
            if event.group in tells and event.offset > prefix.end:
                faults.append(f"{event} is ahead: message {prefix.end} is not handled")
            continue
        faults += _wrong_deliveries(event)
        if event.queue_offset < 0:
            continue
        at = (event.topic, event.queue_id, event.queue_offset)
        if (other := places.setdefault(at, event.sent)) is not event.sent:
            faults.append(f"{at} was that of {other}; {event.group} got {event.sent} there")
        if event.group in orderly:
            if event.queue_offset > prefix.end:
                faults.append(f"{event} came before {prefix.end} of its queue was done")
            if not event.done:
                continue
        prefix.add(event.queue_offset)
    return faults


def _wrong_deliveries(event: Handled) -> Iterator[str]:
    sent: Sent = event.sent
    where = f"{event.group} got it from {event.topic}/{event.queue_id} at {event.queue_offset}"
    if sent.kind is Kind.ROLLED_BACK:
        yield f"{sent} was never committed, and {where}"
    if sent.recalled:
        yield f"{sent} was recalled, and {where}"
    if event.at < sent.due:
        yield f"{sent} was delivered {sent.due - event.at} ms before its time: {where}"


@dataclass
class _Prefix:
    """Which messages of a queue were handled: all before `end`, and those `beyond`."""

    end: int = 0
    beyond: set[int] = field(default_factory=set)

    def add(self, queue_offset: int) -> None:
        if queue_offset >= self.end:
            self.beyond.add(queue_offset)
        while self.end in self.beyond:
            self.beyond.remove(self.end)
            self.end += 1
