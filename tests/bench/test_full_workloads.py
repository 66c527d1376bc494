"""The workloads of the full run: that they measure what they say, at the smallest scale."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bench.contenders import Figures
from bench.full import __main__ as full
from bench.full.bare_writer import BareWriter, longest_own
from bench.full.catalogue import WORKLOADS
from bench.full.workload import Session, Workload
from bench.generator import LoadGenerator
from bench.measures import Better, Measure
from bench.memory_limit import MemoryLimit, evict


def session_in(directory: Path, generator: LoadGenerator) -> Session:
    console = Console(file=io.StringIO())
    return Session(directory, generator, console, rounds=1, scale=0.0001, with_official=False)


#: The rest of them takes more than a few seconds, or needs the official client.
QUICK = (
    "sends", "sync-flush", "connections", "topics", "fan-out", "transactions", "sql-filter",
    "name-server", "bad-input",
)  # fmt: skip


def marks(name: str) -> Sequence[pytest.MarkDecorator]:
    """Of the test of a workload."""
    if name.startswith("spark-"):
        return pytest.mark.long, pytest.mark.spark
    return () if name in QUICK else (pytest.mark.long,)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=marks(name)) for name in WORKLOADS if name != "client"],
)
def test_each_measure_has_a_figure(tmp_path: Path, generator: LoadGenerator, name: str) -> None:
    workload = WORKLOADS[name]
    session = session_in(tmp_path, generator)
    (ours,) = workload.run(session)
    for note in session.notes:
        if "not measured" in note:
            pytest.skip(note)
    assert set(ours.figures) >= {measure.key for measure in workload.measures}
    assert all(value > 0 for measure in workload.measures for value in ours.figures[measure.key])


def test_keys_are_unique() -> None:
    keys = [measure.key for workload in WORKLOADS.values() for measure in workload.measures]
    assert len(keys) == len(set(keys))


def test_a_stall_without_those_of_the_machine() -> None:
    stalls = [(0, 100), (1000, 1300)]
    assert longest_own(stalls, []) == 300
    # One inside, one over the end, one beside it.
    assert longest_own(stalls, [(1050, 1100), (1200, 1400), (400, 900)]) == 150
    assert longest_own([], [(0, 5)]) == 0


def test_a_bare_writer_tells_its_gaps(tmp_path: Path) -> None:
    with BareWriter(tmp_path) as bare:
        pass
    assert all(begin < end for begin, end in bare.gaps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("group", "file"), [("", "memory.max"), ("memory", "memory.limit_in_bytes")]
)
def test_a_memory_limit_of_either_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, file: str
) -> None:
    parent = tmp_path / group
    parent.mkdir(exist_ok=True)
    made = parent / f"pocketmq-bench-{os.getpid()}-broker"

    def make(path: Path) -> None:  # as the kernel does, files come with the directory
        os.mkdir(path)
        if path == made:
            (path / file).touch()
            (path / "cgroup.procs").touch()

    monkeypatch.setattr(Path, "mkdir", make)
    with MemoryLimit(1 << 30, "broker", tmp_path) as memory:
        assert memory.set
        memory.add(7)
        assert (made / file).read_text() == str(1 << 30)
        assert (made / "cgroup.procs").read_text() == "7"
    assert (parent / "cgroup.procs").read_text() == "7"  # back where it was


def test_no_memory_limit_without_a_controller(tmp_path: Path) -> None:
    with MemoryLimit(1 << 30, "broker", tmp_path) as memory:
        assert not memory.set
    assert list(tmp_path.iterdir()) == []


def test_what_is_evicted_is_still_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 10_000)
    evict(tmp_path)
    assert (tmp_path / "a" / "file").read_bytes() == b"x" * 10_000


# The command


def workload(name: str, value: float | None) -> Workload:
    def run(_session: Session) -> Sequence[Figures]:
        if value is None:
            raise RuntimeError("the broker is gone")
        ours, theirs = Figures("ours"), Figures("theirs")
        ours.add(name, value)
        theirs.add(name, 1.0)
        return ours, theirs

    return Workload(name, (Measure(name, f"{name} title", "msg/s", Better.HIGHER, 2.0),), run)


FEW = {
    "good": workload("good", 3),
    "gone": workload("gone", None),
    "slow": workload("slow", 1),
}


def run(directory: Path, *arguments: str) -> int:
    return full.main([*arguments, "--no-official", "--results", str(directory)], FEW)


@pytest.mark.usefixtures("generator")
def test_what_fails_is_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--short") == 1
    printed = capsys.readouterr().out
    assert "gone failed: the broker is gone" in printed
    assert "missed: slow title" in printed
    assert "| good title | msg/s | 3.00 | 1.00 | 3.00 | ≥ 2× | yes |" in printed
    (file,) = tmp_path.glob("full-*.json")
    written = json.loads(file.read_text())
    assert [row["workload"] for row in written["measures"]] == ["good", "slow"]
    assert written["failed"] == {"gone": "the broker is gone"}
    assert (written["rounds"], written["scale"]) == (2, 0.1)
    assert "python_optimised" in written["machine"]


@pytest.mark.usefixtures("generator")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--only", "slow"], 0),
        (["--only", "slow", "--check"], 1),
        (["--only", "good", "--check"], 0),
    ],
)
def test_a_missed_aim_is_an_error_where_that_is_asked_for(
    tmp_path: Path, arguments: list[str], status: int
) -> None:
    assert run(tmp_path, *arguments) == status


def test_an_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        full.main(["--only", "nothing"])
    assert "sync-flush" in capsys.readouterr().err
