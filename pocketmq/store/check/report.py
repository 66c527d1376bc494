"""What a check of a store found."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class State(Enum):
    """How the last process that had the store left it."""

    CLEAN = "closed"
    OPEN = "open in a broker"
    CRASHED = "left by a process that was killed"


class Part(Struct, kw_only=True):
    """One part of a store. `begin` and `end` are physical offsets; `items` are records, entries."""

    part: str
    files: int
    bytes: int
    begin: int | None = None
    end: int | None = None
    items: int
    problems: int


class Problem(Struct, kw_only=True):
    """Something that is wrong.

    Attributes:
        part: `commitlog`, `consumequeue`, `index`, `timers`, `checkpoint`, `config` or `users`.
        where: a path, or a queue as TOPIC/ID.
        begin, end: in the commit log physical offsets, in a queue queue offsets.
        derived: a start builds it again from the commit log, so that nothing is lost.
    """

    part: str
    where: str
    begin: int | None = None
    end: int | None = None
    problem: str
    derived: bool = False


class Report(Struct, kw_only=True):
    """The result of a check.

    Attributes:
        store: its directory.
        flushed: physical offset up to which the checkpoint knows the log to be flushed; None when
            another broker has written to the store since.
        starts: whether a broker would start; None while one has the store open.
        refusal: why it would not.
        remarks: what it would log as warnings and errors while it starts.
    """

    store: str
    state: State
    flushed: int | None
    starts: bool | None
    refusal: str = ""
    remarks: list[str]
    parts: list[Part]
    problems: list[Problem]
