"""What the journals of all consumers say, against what the producers and brokers say.

- Stored twice: one message at two places of the topic. A send was repeated although the broker had
  stored it, because its answer did not come.
- Delivered twice: one place of a queue handled twice. Whoever handled it last read the group's
  offset before the first one's work on it was committed.

Order holds for a key when what is handled next is never more than one step ahead of what was
handled last: steps back are duplicates, which begin again at an earlier message and go on from
there; a step ahead of more than one is a message overtaken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.rolling.cluster import Restart
from bench.rolling.journal import read
from bench.rolling.load import BROKERS, Flag, Kind

__all__ = ["Findings", "examine"]

Records = NDArray[Any]

#: Deliveries so long after a broker's return are put down to its restart, seconds: by then every
#: client has taken up its queues again.
AFTERMATH = 25.0


class Findings(msgspec.Struct, kw_only=True):
    """The messages of one topic, counted.

    `lost`: acknowledged and never handled. `unhandled`: stored, by the word of the brokers, and
    never handled. `unacknowledged`: handled although no send of them succeeded. `stored_twice` and
    `delivered_twice`: duplicates by cause. `violations`: messages of a key that were handled before
    an earlier one (None without order); `first_violations` says where.
    """

    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    handled: int = 0
    lost: int = 0
    unhandled: int = 0
    unacknowledged: int = 0
    stored_twice: dict[str, int] = msgspec.field(default_factory=dict)
    delivered_twice: dict[str, int] = msgspec.field(default_factory=dict)
    violations: int | None = None
    first_violations: list[str] = msgspec.field(default_factory=list)


def examine(
    kind: Kind,
    directory: Path,
    flags: Mapping[int, Path],
    stored: int,
    restarts: Sequence[Restart],
    killed: Collection[str],
) -> Findings:
    """Count everything of one topic.

    `flags`: the producers' files by their number; `stored`: messages at the brokers; `killed`: the
    members that got SIGKILL. Takes some hundred bytes of memory for each message.
    """
    members, records, owners = _journals(kind, directory)
    found = Findings(stored=stored, handled=len(records))
    _compare(found, records, {number: path.read_bytes() for number, path in flags.items()})
    fresh = records["sent_back"] == 0
    found.delivered_twice = _delivered_twice(
        records[fresh], owners[fresh], members, restarts, killed
    )
    if sent_back := int(np.count_nonzero(~fresh)):
        found.delivered_twice["sent back to the broker"] = sent_back
    found.unhandled = stored - len(np.unique(_places(records[fresh])))
    if kind is Kind.ORDERED:
        _order(found, records, owners, members)
    return found


def _journals(kind: Kind, directory: Path) -> tuple[list[str], Records, NDArray[np.int64]]:
    """The members, everything they handled in the order of time, and the index of who did."""
    prefix = f"handled-{kind}-"
    paths = sorted(directory.glob(f"{prefix}*"))
    parts = [read(path) for path in paths]
    records = np.concatenate(parts)
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.argsort(records["time"], kind="stable")
    return [path.name.removeprefix(prefix) for path in paths], records[order], owners[order]


def _places(records: Records) -> NDArray[np.int64]:
    """Queue and offset of each record as one number."""
    places: NDArray[np.int64] = records["queue"].astype(np.int64) << 32 | records["offset"]
    return places


def _compare(found: Findings, records: Records, flags: Mapping[int, bytes]) -> None:
    """Sent, acknowledged, lost, stored twice."""
    causes: Counter[str] = Counter()
    for number, text in flags.items():
        states = np.frombuffer(text, np.uint8)
        acknowledged = states & Flag.ACKNOWLEDGED != 0
        own = records[(records["producer"] == number) & (records["sent_back"] == 0)]
        _, first = np.unique(_places(own), return_index=True)
        copies = np.bincount(own["seq"][first], minlength=len(states))
        found.sent += len(states)
        found.acknowledged += int(np.count_nonzero(acknowledged))
        found.lost += int(np.count_nonzero(acknowledged & (copies == 0)))
        found.unacknowledged += int(np.count_nonzero(~acknowledged & (copies > 0)))
        surplus = np.maximum(copies - 1, 0)
        again = states & Flag.SENT_AGAIN != 0
        causes["the application sent it again after an error"] += int(surplus[again].sum())
        causes["the client sent it again within one send"] += int(surplus[~again].sum())
    found.stored_twice = {cause: count for cause, count in causes.items() if count}


def _delivered_twice(
    records: Records,
    owners: NDArray[np.int64],
    members: Sequence[str],
    restarts: Sequence[Restart],
    killed: Collection[str],
) -> dict[str, int]:
    """The deliveries after the first of each place, by what happened before them."""
    places = _places(records)
    order = np.lexsort((records["time"], places))
    places, by, times = places[order], owners[order], records["time"][order] / 1e9
    again = np.flatnonzero(places[1:] == places[:-1]) + 1
    brokers = (places[again] >> 40).astype(int)
    restarted = np.zeros(len(again), bool)
    for restart in restarts:
        concerned = brokers == BROKERS.index(restart.broker)
        time = times[again]
        restarted |= concerned & (time > restart.begin) & (time < restart.back + AFTERMATH)
    before, after = by[again - 1], by[again]
    dead = np.isin(before, [index for index, name in enumerate(members) if name in killed])
    causes = {
        "its consumer was killed before it had committed": dead,
        "its broker was away when it was to be committed": ~dead & restarted,
        "its queue went to another consumer": ~dead & ~restarted & (before != after),
        "the same consumer read it again": ~dead & ~restarted & (before == after),
    }
    return {cause: int(mask.sum()) for cause, mask in causes.items() if mask.any()}


def _order(
    found: Findings, records: Records, owners: NDArray[np.int64], members: Sequence[str]
) -> None:
    order = np.lexsort((records["time"], records["key"]))
    records, owners = records[order], owners[order]
    seqs = records["key_seq"].astype(np.int64)
    first = np.ones(len(records), bool)
    first[1:] = records["key"][1:] != records["key"][:-1]
    previous = np.where(first, -1, np.roll(seqs, 1))
    ahead = np.flatnonzero(seqs > previous + 1)
    found.violations = len(ahead)
    for index in ahead[:10]:
        record = records[index]
        found.first_violations.append(
            f"key {record['key']}: {members[owners[index]]} handled {seqs[index]} after "
            f"{previous[index]}, at {record['time'] / 1e9:.3f} s, queue {record['queue']} offset "
            f"{record['offset']}; before that {members[owners[index - 1]]}, queue "
            f"{records[index - 1]['queue']} offset {records[index - 1]['offset']} at "
            f"{records[index - 1]['time'] / 1e9:.3f} s"
        )
