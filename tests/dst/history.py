"""What the clients called, what they were answered, and what came to them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from .engine.scheduler import SECOND
from .figures import Figures

Nanoseconds = int

WRONG_QUEUE: Final = 999
"""A queue that no topic has."""
UNANSWERED: Final = 30 * SECOND
"""How long an operation may still take effect that has no answer, or an error for one."""


class Place(NamedTuple):
    topic: str
    broker: str
    queue: int
    offset: int


@dataclass(slots=True)
class Send:
    """A message that a producer was asked to send.

    Attributes:
        place: where it was stored, as the producer was told; None while it was told nothing, or
            that it failed, with `error`.
        queue_known: whether `place` is where it will be in the end (not of delayed messages).
        due: when a delayed message may come at the earliest, if clocks go right.
        fate: of a transaction: commit, rollback, or "" while the local one has not run.
        handle: what it can be recalled with.
        recalling: whether it was tried to recall it; `recalled`: when that was answered.
        patience: of a request: how long its producer waits for the reply.
        reply: the body that it got.
        damaged: a bit of a copy of it was flipped.
        queue: the one that it was sent to as a child of a parent; `WRONG_QUEUE` does not exist.
    """

    name: str
    topic: str
    body: bytes
    client: str
    began: Nanoseconds
    retries: int
    key: str = ""
    ended: Nanoseconds | None = None
    place: Place | None = None
    confirmed: bool = False
    error: str = ""
    queue_known: bool = True
    due: Nanoseconds = 0
    transactional: bool = False
    fate: str = ""
    handle: str = ""
    recalling: bool = False
    recalled: Nanoseconds = 0
    patience: Nanoseconds = 0
    reply: bytes | None = None
    queue: int | None = None
    damaged: bool = False


@dataclass(slots=True)
class Delivery:
    """A message that came to a consumer; `ended` is when its handler was done with it."""

    at: Nanoseconds
    name: str
    group: str
    client: str
    life: int
    place: Place
    body: bytes
    again: int
    ended: Nanoseconds | None = None
    acknowledged: bool = False
    visible_again: Nanoseconds = 0


@dataclass(slots=True)
class Operation:
    """An administrator's call; `ok` is None while there is no answer.

    Attributes:
        value: what it is to become.
        answer: what the call returned.
    """

    began: Nanoseconds
    what: str
    subject: str
    ended: Nanoseconds | None = None
    ok: bool | None = None
    error: str = ""
    value: str = ""
    answer: Any = None


class Commit(NamedTuple):
    """A group's offset, as an administrator read it; -1 if it has none."""

    at: Nanoseconds
    group: str
    topic: str
    broker: str
    queue: int
    offset: int


class Health(NamedTuple):
    """Whether the member on a machine said that it is ready, and why it is not."""

    at: Nanoseconds
    machine: str
    ready: bool
    problems: str


class Facts(NamedTuple):
    """What is true of a broker in the end.

    Attributes:
        role: as metrics have it.
        connections: how many end at its server.
        free: bytes of its disk.
        copies: members in sync, of a master.
    """

    role: str
    connections: int
    free: int
    copies: int


class Stored(NamedTuple):
    place: Place
    name: str
    body: bytes
    number: str


@dataclass
class History:
    """Attributes:
    sends: by name.
    handled: names of messages by group.
    server_faults: when a broker was killed, cut off and so on; see `disturbed`.
    clock_steps: when a server's clock was set; leases do not depend on it.
    full_disks: from when to when a machine's disk was full.
    shorter_log: a full disk has made a broker remove the beginning of its log. What others still
        have of it is as good as lost: whoever follows as the master takes over how far the checks
        of half messages and the delivery of delayed messages have come.
    health: what members said of themselves; see `Health`.
    absences: from when to when the master of a slave was away.
    figures: what brokers said in the end; `facts`: what they should, by machine.
    losses: when the master was lost for good.
    flips: the first offsets of files of the log, and where in them records with a flipped bit begin
        and end.
    queues: how many each topic had in the end.
    downs: from when to when a broker was killed.
    unknown: when the auditor was told that there is no route of a topic, which exists.
    stored: what an administrator found in the end.
    begins: the first offset of each topic's queue then; what was before it has expired.
    """

    sends: dict[str, Send] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    handled: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    operations: list[Operation] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    power_cuts: list[Nanoseconds] = field(default_factory=list)
    server_faults: list[tuple[Nanoseconds, Nanoseconds]] = field(default_factory=list)
    clock_steps: list[tuple[Nanoseconds, Nanoseconds]] = field(default_factory=list)
    full_disks: list[tuple[str, Nanoseconds, Nanoseconds]] = field(default_factory=list)
    shorter_log: bool = False
    health: list[Health] = field(default_factory=list)
    downs: list[tuple[Nanoseconds, Nanoseconds]] = field(default_factory=list)
    unknown: list[tuple[Nanoseconds, str]] = field(default_factory=list)
    losses: list[Nanoseconds] = field(default_factory=list)
    flips: list[tuple[int, int, int]] = field(default_factory=list)
    queues: dict[str, int] = field(default_factory=dict)
    absences: list[tuple[Nanoseconds, Nanoseconds]] = field(default_factory=list)
    figures: list[Figures] = field(default_factory=list)
    facts: dict[str, Facts] = field(default_factory=dict)
    calm: Nanoseconds = 0

    def delivered(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def done(self, delivery: Delivery, now: Nanoseconds) -> None:
        """Its handler has returned, or its acknowledgement was answered, or the answer is lost."""
        delivery.ended = now
        self.handled[delivery.group].add(delivery.name)

    def skipped(self, group: str) -> Nanoseconds:
        """Up to when what was sent may be left out by a group: an administrator sent it to the end
        of its queues; 0 if none did."""
        return max(
            (
                o.began + UNANSWERED if o.ended is None or not o.ok else o.ended
                for o in self.operations
                if o.what == "skip" and o.subject == group
            ),
            default=0,
        )

    def operated(self, what: str, subject: str, begin: Nanoseconds, end: Nanoseconds) -> bool:
        """Whether such an operation may have been under way in between."""
        return any(
            o.what == what and o.subject == subject and o.began <= end
            and (o.ended if o.ok and o.ended else o.began + UNANSWERED) >= begin
            for o in self.operations
        )  # fmt: skip

    def disturbed(self, begin: Nanoseconds, end: Nanoseconds, *, clocks: bool = True) -> bool:
        """Whether anything happened to a broker in between, other than to its clock without
        `clocks`."""
        faults = self.server_faults + (self.clock_steps if clocks else [])
        return any(at <= end and until >= begin for at, until in faults)


def reply_to(request: bytes) -> bytes:
    """What is replied to a request: no other one has the same."""
    return b"reply to " + request[::-1]
