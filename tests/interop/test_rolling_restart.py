"""Three brokers restarted one after the other under load: the short form of `bench.rolling`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.rolling.cluster import Restart
from bench.rolling.findings import Findings, examine
from bench.rolling.journal import CHUNK, RECORD, Journal, read
from bench.rolling.load import Flag, Kind, Load
from bench.rolling.run import Guest, Plan, roll
from tests.interop.harness.official import Unavailable

LOAD = Load(seconds=6.0, rate=400.0, size=64, producers=1, keys=48, commit_interval=0.5)
# A broker keeps the locks of a killed orderly consumer for a minute, too long for this test.
GUESTS = (
    Guest(joins=0.5, leaves=2.5),
    Guest(joins=3.0, leaves=4.5, killed=True, kinds=(Kind.FREE,)),
)


@pytest.mark.long("official")
@pytest.mark.parametrize("make", ["official", "ours"])
async def test_nothing_is_lost_and_order_holds(make: str, tmp_path: Path) -> None:
    # An official broker takes its time to stop and start: one of them in turn is enough here.
    restarts = (1.0, 2.0, 3.0) if make == "ours" else (1.0,)
    quick_start = ("-XX:TieredStopAtLevel=1",)
    plan = Plan(load=LOAD, restarts=restarts, guests=GUESTS, java=quick_start)
    try:
        report = await roll(make, plan, tmp_path)
    except Unavailable as missing:
        pytest.skip(str(missing))
    assert report.holds, report
    assert len(report.restarts) == len(restarts)
    for found in report.findings.values():
        assert found.sent == found.acknowledged > LOAD.rate  # a busy machine sends less
        twice = sum(found.stored_twice.values()) + sum(found.delivered_twice.values())
        assert found.handled == found.acknowledged + twice


# What proves that the report would tell.


def findings(
    directory: Path,
    handled: dict[str, list[tuple[int, int, int]]],
    *,
    stored: int,
    flags: list[int],
    restarts: tuple[Restart, ...] = (),
    killed: tuple[str, ...] = (),
) -> Findings:
    """Of one key: `handled` by member: (ns, offset, seq); the queue is the second of b1."""
    for member, records in handled.items():
        with Journal(directory / f"handled-{Kind.ORDERED}-{member}") as journal:
            for time, offset, seq in records:
                journal.add(time, offset, 257, 0, seq, 7, seq, 0)
    path = directory / "flags"
    path.write_bytes(bytes(flags))
    return examine(Kind.ORDERED, directory, {0: path}, stored, restarts, killed)


def test_a_lost_message_is_found(tmp_path: Path) -> None:
    found = findings(tmp_path, {"a": [(1, 0, 0), (2, 1, 1)]}, stored=3, flags=[1, 1, 1, 0])
    assert (found.sent, found.acknowledged, found.lost, found.unhandled) == (4, 3, 1, 1)
    assert found.violations == 0


def test_an_overtaken_message_is_a_violation(tmp_path: Path) -> None:
    found = findings(
        tmp_path, {"a": [(1, 0, 0), (4, 1, 1)], "b": [(3, 2, 2)]}, stored=3, flags=[1, 1, 1]
    )
    assert found.violations == 1
    assert found.lost == 0


def test_two_consumers_at_once_are_a_violation(tmp_path: Path) -> None:
    a = [(1, 0, 0), (2, 1, 1), (4, 2, 2)]
    b = [(3, 0, 0), (5, 1, 1)]
    found = findings(tmp_path, {"a": a, "b": b}, stored=3, flags=[1, 1, 1])
    assert found.violations == 1


def test_duplicates_by_cause(tmp_path: Path) -> None:
    seconds = 1_000_000_000
    a = [(1, 0, 0), (2, 1, 1), (3, 2, 2)]
    b = [(4, 1, 1), (5, 2, 2), (6, 3, 2), (7, 4, 3), (100 * seconds, 4, 3)]
    found = findings(
        tmp_path,
        {"a": a, "b": b},
        stored=5,
        flags=[1, 1, Flag.ACKNOWLEDGED | Flag.SENT_AGAIN, 1],
        restarts=(Restart("b1", 80.0, 81.0, 82.0),),
        killed=("a",),
    )
    assert found.violations == found.lost == found.unhandled == 0
    assert found.stored_twice == {"the application sent it again after an error": 1}
    assert found.delivered_twice == {
        "its consumer was killed before it had committed": 2,
        "its broker was away when it was to be committed": 1,
    }


def test_a_journal_grows_and_is_readable_while_it_is_written(tmp_path: Path) -> None:
    count = CHUNK // RECORD.itemsize + 3
    with Journal(tmp_path / "journal") as journal:
        for number in range(count):
            journal.add(number + 1, number, 0, 0, number, 0, 0, 0)
        records = read(tmp_path / "journal")
    assert np.array_equal(records["seq"], np.arange(count))
