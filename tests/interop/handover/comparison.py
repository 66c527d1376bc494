"""What is wrong with the answers of a broker, by the ledger and by those of the broker before."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pocketmq.message.limits import OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.message.tags import tag_hash

from .answers import Answers, Stored
from .ledger import End, Kind, Ledger, Place, Sent

Forgets = Callable[[int], bool]
"""Whether the index need not have the message at a physical offset."""


class Begin(NamedTuple):
    """The start of a process: when (Unix ms), of which make, and whether the process before it was
    killed."""

    time: int
    make: str
    killed: bool


def nothing_forgotten(physical: int) -> bool:
    """The index has everything."""
    return False


_AT_ONCE: Final = (Kind.PLAIN, Kind.BATCH)


def faults(
    answers: Answers,
    ledger: Ledger,
    before: Answers | None,
    lives: Sequence[Begin],
    never: int,
    forgets: Forgets = nothing_forgotten,
) -> Iterator[str]:
    """Everything that is wrong with `answers`; `before` are those of the broker before."""
    yield from answers.odd
    yield from broken_promises(answers, ledger)
    if before is not None:
        yield from disagreements(before, answers)
    yield from gaps(answers)
    yield from index_faults(answers, forgets)
    yield from transaction_faults(answers, ledger)
    yield from delivery_faults(answers, ledger, lives, never)


def broken_promises(answers: Answers, ledger: Ledger) -> Iterator[str]:
    """Each acknowledged message has to be where the broker said, and as it was sent."""
    for sent in ledger.messages:
        stored = answers.messages.get(sent.place)
        if stored is None:
            yield f"{_name(sent)} is not served; the queue is {_bounds(answers, sent.place)}"
        elif stored.physical_offset != sent.physical_offset:
            yield f"{_name(sent)} is at physical offset {stored.physical_offset}"
        elif stored.body != sent.body or stored.unique_key != sent.unique_key:
            yield f"{_name(sent)} has another body or id: {stored.unique_key}"
        elif stored.keys != sent.keys:
            yield f"{_name(sent)} has other keys: {stored.keys}"
        elif sent.kind in _AT_ONCE and stored.tags_code != tag_hash(sent.tag):
            yield f"{_name(sent)} has tags code {stored.tags_code}, not {tag_hash(sent.tag)}"


def disagreements(before: Answers, after: Answers) -> Iterator[str]:
    """What one broker served, the next one has to serve: entry, bytes of the record, index."""
    for place, stored in before.messages.items():
        again = after.messages.get(place)
        if again != stored:
            yield (
                f"{_text(place)}: {before.make} served {_short(stored)}, {after.make} serves "
                f"{_short(again)}; the queue was {_bounds(before, place)} and is "
                f"{_bounds(after, place)}"
            )
    for queue, (begin, _) in before.bounds.items():
        if queue in after.bounds and after.bounds[queue][0] != begin:
            yield f"{queue} began at {begin}, and now at {after.bounds[queue][0]}"


def gaps(answers: Answers) -> Iterator[str]:
    """A queue has to serve every offset between its bounds."""
    served: dict[tuple[str, int], set[int]] = defaultdict(set)
    for place in answers.messages:
        served[place.topic, place.queue_id].add(place.queue_offset)
    for queue, (begin, end) in answers.bounds.items():
        missing = sorted(set(range(begin, end)) - served[queue])
        if missing:
            yield f"{queue[0]}/{queue[1]} of {begin} to {end} does not serve {missing[:5]}"


def index_faults(answers: Answers, forgets: Forgets) -> Iterator[str]:
    """The index has to find each message by each key, and only those that have the key."""
    wanted = answers.wanted_index
    for asked, found in answers.index.items():
        for physical in sorted(wanted[asked] - set(found)):
            if not forgets(physical):
                yield f"{asked[0]} key {asked[1]}: does not find the message at {physical}"
        for physical in sorted(set(found) - wanted[asked]):
            if physical >= answers.log_end:
                continue  # stored since
            yield f"{asked[0]} key {asked[1]}: finds {physical}, where no queue has a message"


def deliveries(answers: Answers, topics: Iterable[str]) -> dict[str, list[int]]:
    """Unique key to the store timestamps of the messages of applications that have it."""
    of_topics = set(topics)
    found: dict[str, list[int]] = defaultdict(list)
    for place, stored in answers.messages.items():
        if place.topic in of_topics:
            found[stored.unique_key].append(stored.store_timestamp)
    return found


def undelivered(answers: Answers, ledger: Ledger, now: int) -> list[Sent]:
    """Return what was due some time ago (`now`, Unix ms) and is not in its topic yet."""
    found = deliveries(answers, {sent.topic for sent in ledger.messages})
    return [
        sent for sent in ledger.messages if 0 < sent.due <= now and not found.get(sent.unique_key)
    ]


def delivery_faults(
    answers: Answers, ledger: Ledger, lives: Sequence[Begin], never: int
) -> Iterator[str]:
    """Early deliveries, and second ones within one life of a broker.

    After a kill the official broker reads the timer topic from its last checkpoint on and enters
    what it finds into the wheel once more, though the wheel has it: it delivers such messages
    twice. Reference: TimerMessageStore.recover (the last line about currQueueOffset).

    `never`: what is due later than this must not be delivered.
    """
    found = deliveries(answers, {sent.topic for sent in ledger.messages})
    for sent in ledger.messages:
        times = sorted(found.get(sent.unique_key, ()))
        if sent.due and times:
            if sent.due > never:
                yield f"{_name(sent)} is delivered, long before its time"
            elif times[0] < sent.due - 1_000:
                yield f"{_name(sent)} is delivered {sent.due - times[0]} ms early"
        # By process, from 0 on.
        of_process = Counter(sum(life.time <= time for life in lives) - 1 for time in times)
        for process, count in of_process.items():
            make, most = lives[process].make, 1
            if make == "official" and sent.kind is Kind.TIMER:
                most += sum(life.killed for life in lives[: process + 1])
            if count > most:
                yield f"{_name(sent)} is delivered {count} times by one process, {make}"
        for first, second in itertools.pairwise(sorted(of_process)):
            if not any(_forgetful(lives, stop) for stop in range(first, second)):
                yield f"{_name(sent)} is delivered by process {first}, and again by {second}"


def _forgetful(lives: Sequence[Begin], process: int) -> bool:
    """Whether what a process delivered last may come again: it was killed, or it is the official
    one, which goes on to deliver after it has written its progress for the last time."""
    return lives[process + 1].killed or lives[process].make == "official"


def transaction_faults(answers: Answers, ledger: Ledger) -> Iterator[str]:
    """A commit that was acknowledged is there once; what was not committed is not there."""
    found = deliveries(answers, {sent.topic for sent in ledger.messages})
    for sent in ledger.messages:
        if sent.kind is not Kind.HALF:
            continue
        end, count = ledger.ends[sent.unique_key], len(found.get(sent.unique_key, ()))
        if end is not End.COMMIT and count:
            yield f"{_name(sent)} was {end.value} and is in its topic"
        elif sent.unique_key in ledger.ended and end is End.COMMIT and count != 1:
            yield f"{_name(sent)} was committed and is {count} times in its topic"


def ended_halves(answers: Answers) -> set[int]:
    """Return the queue offsets of the half messages that have an op."""
    return {
        int(part)
        for place, stored in answers.messages.items()
        if place.topic == OP_HALF_TOPIC
        for part in stored.body.decode().split(",")
        if part
    }


def given_up(answers: Answers) -> set[str]:
    """Return the unique keys of the half messages that the broker checked and gave up."""
    return {
        stored.unique_key
        for place, stored in answers.messages.items()
        if place.topic == TRANS_CHECK_MAX_TIME_TOPIC
    }


def _text(place: Place) -> str:
    return f"{place.topic}/{place.queue_id} at {place.queue_offset}"


def _name(sent: Sent) -> str:
    return (
        f"the {sent.kind.value} message {sent.unique_key.lstrip('0')} of life {sent.life} "
        f"({_text(sent.place)}, physical offset {sent.physical_offset})"
    )


def _bounds(answers: Answers, place: Place) -> str:
    begin, end = answers.bounds.get((place.topic, place.queue_id), (0, 0))
    return f"{begin} to {end}"


def _short(stored: Stored | None) -> str:
    if stored is None:
        return "nothing"
    return (
        f"{stored.unique_key.lstrip('0')} at {stored.physical_offset} of {stored.size} bytes, tags "
        f"code {stored.tags_code}, record {hash(stored.record) & 0xFFFF:04x}"
    )
