"""What a power cut leaves: drawn from all that it could leave, and written out as files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from .disk import NameChange, Remains, apply

SECTOR: Final = 512
PAGE: Final = 4096


class Survival(Enum):
    """What becomes of writes under way."""

    NONE = "none of them survives"
    ALL = "all survive"
    OLDEST = "the oldest of them survive"
    PAGES = "any page survives or does not"
    SECTORS = "any sector survives or does not"


#: Mixtures find more than extremes do, but each extreme is a likely cut.
_WEIGHTS: Final = {
    Survival.NONE: 2,
    Survival.ALL: 2,
    Survival.OLDEST: 2,
    Survival.PAGES: 4,
    Survival.SECTORS: 3,
}


def write_state(
    remains: Remains, root: Path, random: random.Random, survival: Survival | None = None
) -> str:
    """Write what one cut leaves below `root`, which is created; return what became of what. Without
    `survival` that is drawn, too; with `ALL` this is what a killed process leaves."""
    survival = survival or _drawn(random)
    kept = _changes(remains.changes, survival, random)
    names = dict(remains.names)
    for change in kept:
        apply(names, change)
    root.mkdir(parents=True)
    for path in sorted(names):
        # A name in a directory that has itself no name cannot be reached.
        if not (root / path).parent.is_dir():
            continue
        identity = names[path]
        if identity in remains.directories:
            (root / path).mkdir()
        else:
            content = _content(remains.contents[identity], survival, random)
            (root / path).write_bytes(content)
    return f"{survival.value}; {len(kept)} of {len(remains.changes)} changes of names made"


def _drawn(random: random.Random) -> Survival:
    return random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]


def _changes(
    changes: Sequence[NameChange], survival: Survival, random: random.Random
) -> Sequence[NameChange]:
    match survival:
        case Survival.NONE:
            return ()
        case Survival.ALL:
            return changes
        case Survival.OLDEST:
            return changes[: random.randint(0, len(changes))]
        case _:
            return [change for change in changes if random.random() < 0.5]


def _content(versions: Sequence[bytes], survival: Survival, random: random.Random) -> bytes:
    """One content of all that the sectors of a file may hold; the first version is certain."""
    match survival:
        case Survival.NONE:
            return versions[0]
        case Survival.ALL:
            return versions[-1]
        case Survival.OLDEST:
            return random.choice(versions)
        case Survival.PAGES:
            return _mixed(versions, PAGE, random)
        case Survival.SECTORS:
            return _mixed(versions, SECTOR, random)


def _mixed(versions: Sequence[bytes], unit: int, random: random.Random) -> bytes:
    if len(set(versions)) == 1:
        return versions[0]
    size = len(random.choice(versions))
    padded = [version.ljust(size, b"\0") for version in versions]
    return b"".join(random.choice(padded)[at : min(at + unit, size)] for at in range(0, size, unit))
