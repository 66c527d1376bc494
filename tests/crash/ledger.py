"""What was sent, acknowledged and received, over all lives of one store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

#: (group, topic, queue id)
OffsetKey = tuple[str, str, int]


class Kind(Enum):
    """What a message is; the values are how the summary names them."""

    SINGLE = "single"
    BATCH = "in batches"
    CHILD = "in batch requests"
    DELAYED = "delayed"
    TIMED = "timed"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"

    @property
    def delivered_later(self) -> bool:
        """Whether the broker stores it a second time, where consumers read it."""
        return self in (Kind.DELAYED, Kind.TIMED, Kind.COMMITTED, Kind.ROLLED_BACK)


class Place(NamedTuple):
    """Where a message was stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(slots=True)
class Sent:
    """One message.

    Attributes:
        topic, queue_id: where consumers are to find it.
        due: Unix ms before which it may not be delivered; 0 without such a time.
        acknowledged: the broker, or the proxy, said that it is stored.
        place: where it was acknowledged to be; None if that was not said.
        ending: whether its transaction was ever asked to be ended.
        recalled: its recall was acknowledged in time.
        recalling: its recall was asked for.
    """

    number: int
    kind: Kind
    topic: str
    queue_id: int
    body: bytes
    unique_key: str
    due: int = 0
    acknowledged: bool = False
    place: Place | None = None
    ending: bool = False
    recalled: bool = False
    recalling: bool = False

    @property
    def key(self) -> str:
        return f"key{self.number}"

    def __str__(self) -> str:
        return f"message {self.number} ({self.kind.value}, {self.topic}/{self.queue_id})"


class Handled(NamedTuple):
    """What a consumer did with a message.

    Attributes:
        queue_offset: in the queue where the consumer found it, which may be one of a retry topic;
            -1 if the consumer was not told.
        done: it is not to be delivered to the group again; otherwise it was given back.
        at: when, Unix ms.
    """

    sent: Sent
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    done: bool
    at: int


class Committed(NamedTuple):
    """An offset of a group, as the broker told it."""

    group: str
    topic: str
    queue_id: int
    offset: int


class Ending(NamedTuple):
    """The end of a process: begun and over at these times (Unix ms)."""

    begun: int
    over: int
    clean: bool


@dataclass
class OffsetHistory:
    """The values that a committed offset may have after a restart; -1: there is none.

    The last is what was asked for last; `acknowledged` what was acknowledged last, which a clean
    stop keeps.
    """

    values: list[int] = field(default_factory=lambda: [-1])
    acknowledged: int = -1


class BriefState(Enum):
    """What is known of a topic that comes and goes."""

    MAKING = "is being made, or was when the broker was killed"
    EXISTS = "exists"
    DELETING = "is being deleted, or was when the broker was killed"
    DELETED = "is deleted"

    @property
    def known(self) -> bool:
        """Whether it is known if the topic exists."""
        return self in (BriefState.EXISTS, BriefState.DELETED)


@dataclass
class BriefTopic:
    """A topic that is deleted now and then; messages before number `since` are of an earlier life
    of it, and were deleted with that."""

    name: str
    state: BriefState = BriefState.DELETED
    since: int = 0


class Ledger:
    """All of it.

    Attributes:
        messages: by their numbers.
        places: (topic, queue id, queue offset) of each acknowledged one.
        endings: of the processes, oldest first.
        history: what consumers did and how far their groups were, in the order of events.
        received: by group, the numbers of the messages that are done.
    """

    def __init__(self) -> None:
        self.messages: list[Sent] = []
        self.places: dict[tuple[str, int, int], Sent] = {}
        self.endings: list[Ending] = []
        self.offsets: dict[OffsetKey, OffsetHistory] = {}
        self.brief: dict[str, BriefTopic] = {}
        self.history: list[Handled | Committed] = []
        self.received: defaultdict[str, set[int]] = defaultdict(set)
        #: How much of each kind was acknowledged.
        self.acknowledged: Counter[str] = Counter()
        self._acknowledgements = 0
        self._awaited = 0
        self._reached = asyncio.Event()

    def add(self, kind: Kind, topic: str, queue_id: int, filler: int, due: int = 0) -> Sent:
        """Note a message that is going to be sent, with `filler` bytes behind its number."""
        number = len(self.messages)
        body = b"%d:%s" % (number, b"x" * filler)
        sent = Sent(number, kind, topic, queue_id, body, f"UNIQUE{number:026d}", due)
        self.messages.append(sent)
        return sent

    def find(self, body: bytes) -> Sent | None:
        """The message with this body."""
        number = body.partition(b":")[0]
        if not number.isdigit() or int(number) >= len(self.messages):
            return None
        sent = self.messages[int(number)]
        return sent if sent.body == body else None

    def acknowledge(self, sent: Sent, place: Place | None) -> None:
        """Note where a message was stored. Raises AssertionError if another one is there."""
        if place is not None:
            at = place[:3]
            other = self.places.get(at)
            if other is not None:
                raise AssertionError(f"{at} was given to {other} and again to {sent}")
            self.places[at] = sent
            sent.place = place
        sent.acknowledged = True
        self.done(sent.kind.value)

    def handle(
        self, group: str, body: bytes, topic: str, queue_id: int, queue_offset: int, *, done: bool
    ) -> None:
        """Note what a consumer did with a message. Raises AssertionError if nobody sent it."""
        sent = self.find(body)
        assert sent is not None, f"{group} got {body[:40]!r}, which was never sent"
        self.history.append(Handled(sent, group, topic, queue_id, queue_offset, done, now_ms()))
        if done:
            self.received[group].add(sent.number)

    def is_owed(self, sent: Sent, now: int) -> bool:
        """Whether consumers must get it, if not at once."""
        return (
            sent.acknowledged
            and sent.kind is not Kind.ROLLED_BACK
            and not sent.recalling
            and sent.due <= now
        )

    def done(self, what: str, count: int = 1) -> None:
        """Count acknowledgements."""
        self.acknowledged[what] += count
        self._acknowledgements += count
        if self._acknowledgements >= self._awaited:
            self._reached.set()

    async def more(self, count: int, timeout: float) -> None:
        """Wait for so many more acknowledgements, or for `timeout` seconds."""
        self._awaited = self._acknowledgements + count
        self._reached.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._reached.wait()
        except TimeoutError:
            pass

    # --- topics that come and go, and offsets -------------------------------------------------

    def deleted(self, topic: BriefTopic, offsets: Sequence[OffsetKey]) -> None:
        """Note that a topic is deleted, with what was in it, and its offsets."""
        topic.state = BriefState.DELETED
        topic.since = len(self.messages)
        for key in [key for key in self.places if key[0] == topic.name]:
            del self.places[key]
        for offset in offsets:
            self.settle_offset(offset, -1)
        self.done("deleted topics")

    def ask_offset(self, key: OffsetKey, value: int) -> None:
        """Note that an offset is going to be set."""
        self.offsets.setdefault(key, OffsetHistory()).values.append(value)

    def settle_offset(self, key: OffsetKey, value: int) -> None:
        """Note that nothing but `value` may be there from now on."""
        self.offsets[key] = OffsetHistory([value], value)

    def must_be_there(self, sent: Sent) -> bool:
        """Whether its topic has not been deleted since it was acknowledged."""
        brief = self.brief.get(sent.topic)
        return brief is None or (brief.state is BriefState.EXISTS and sent.number >= brief.since)


def now_ms() -> int:
    """Unix time in ms."""
    return time.time_ns() // 1_000_000
