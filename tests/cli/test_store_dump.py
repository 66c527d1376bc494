"""`pocketmq store dump`, run in this process on stores that are written byte by byte."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli import main
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import command, environment
from tests.store.made_store import NOW, MadeStore, damage, held_open, store_with_a_broken_topic

Dump = Callable[..., tuple[int, str, str]]


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """100 messages in two queues, over several files."""
    made = MadeStore(tmp_path / "store")
    for n in range(100):
        made.put(
            "T", n % 2, b"%03d" % n * 100, {"TAGS": "A", "KEYS": f"k{n} all", "UNIQ_KEY": f"U{n}"}
        )
    return made


@pytest.fixture
def dump(made: MadeStore, capsys: pytest.CaptureFixture[str]) -> Dump:
    """Runs the command; returns its exit code, stdout and stderr."""

    def dump(*arguments: str) -> tuple[int, str, str]:
        return main(["store", "dump", str(made.root), *arguments]), *capsys.readouterr()

    return dump


def numbers(out: str) -> list[int]:
    """The numbers of the messages in the lines of a dump."""
    return [int(line.split("\t")[7][1:]) for line in out.splitlines()]


def places(made: MadeStore) -> list[int]:
    """The physical offsets of the messages."""
    entries = sorted(bytes(made.entries["T", 0])[at : at + 8] for at in range(0, 1000, 20))
    entries += [bytes(made.entries["T", 1])[at : at + 8] for at in range(0, 1000, 20)]
    return sorted(int.from_bytes(entry, "big") for entry in entries)


def test_a_line_for_each_record(made: MadeStore, dump: Dump) -> None:
    made.write()
    code, out, err = dump()
    assert (code, err) == (ExitCode.OK, "")
    assert numbers(out) == list(range(100))
    fields = out.splitlines()[3].split("\t")
    assert fields[:3] == [str(places(made)[3]), str(places(made)[4] - places(made)[3]), "T/1/1"]
    assert datetime.fromisoformat(fields[4]).timestamp() * 1000 == NOW + 4
    assert fields[5:] == ["A", "k3 all", "U3", "300"]


def test_json_lines_with_bodies(made: MadeStore, dump: Dump) -> None:
    made.put("T", 0, b"\xff\xfe")
    made.write()
    code, out, _ = dump("--json", "--from-offset", str(places(made)[-1]))
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == ExitCode.OK
    assert [(row["physicalOffset"], row["queueOffset"], row["bodyLength"]) for row in rows] == [
        (places(made)[-1], 49, 300), (places(made)[-1] + rows[0]["storeSize"], 50, 2),
    ]  # fmt: skip
    assert not {"body", "bodyBase64", "brokerName"} & set(rows[0])
    rows = [json.loads(line) for line in dump("--json", "--body")[1].splitlines()]
    assert rows[7]["body"] == "007" * 100
    assert rows[-1]["bodyBase64"] == "//4="


def test_a_range_of_physical_offsets(made: MadeStore, dump: Dump) -> None:
    made.write()
    at = places(made)
    span = ("--from-offset", str(at[40] + 1), "--to-offset", str(at[60]))
    assert numbers(dump(*span)[1]) == list(range(41, 60))
    assert numbers(dump("--from-offset", str(at[90]), "--count", "3")[1]) == [90, 91, 92]
    assert dump("--from-offset", str(len(made.log))) == (ExitCode.OK, "", "")


def test_a_range_of_a_queue(made: MadeStore, dump: Dump) -> None:
    made.write()
    part = ("--from-offset", "30", "--to-offset", "33")
    assert numbers(dump("-t", "T", "--queue", "1", *part)[1]) == [61, 63, 65]
    assert numbers(dump("-t", "T", "--from-offset", "48")[1]) == [96, 98, 97, 99]


def test_what_no_queue_has_an_entry_of(made: MadeStore, dump: Dump) -> None:
    made.put("T", 0, b"tail", {"UNIQ_KEY": "U100"}, entry=False)
    made.write(crashed=True)
    assert numbers(dump("-t", "T", "--queue", "0", "--from-offset", "49")[1]) == [98, 100]


def test_times(made: MadeStore, dump: Dump) -> None:
    made.write()
    # Message n is stored at NOW + n + 1.
    assert numbers(dump("--from", str(NOW + 51), "--until", str(NOW + 54))[1]) == [50, 51, 52]
    assert numbers(dump("-t", "T", "--from", str(NOW + 98))[1]) == [98, 97, 99]


def test_times_far_apart_leave_files_out(made: MadeStore, dump: Dump) -> None:
    made.now += 3_600_000
    for n in range(100, 200):
        made.put("T", 0, b"%03d" % n * 100, {"UNIQ_KEY": f"U{n}"})
    made.write()
    damage(made.root / "commitlog" / f"{0:020d}", 200)  # is not read
    code, out, err = dump("--from", str(NOW + 3_600_000))
    assert (code, err) == (ExitCode.OK, "")
    assert numbers(out) == list(range(100, 200))
    code, out, err = dump("--until", str(NOW + 3_600_000))
    assert (code, numbers(out)) == (ExitCode.FAILURE, list(range(1, 100)))


@pytest.mark.parametrize("options", [(), ("-t", "T")])
def test_it_goes_on_behind_damage(made: MadeStore, dump: Dump, options: tuple[str, ...]) -> None:
    made.write()
    place = places(made)[50]
    path = made.root / "commitlog" / f"{place // made.segment_size * made.segment_size:020d}"
    damage(path, place % made.segment_size + 120)  # in its body
    code, out, err = dump(*options)
    assert code == ExitCode.FAILURE
    assert sorted(numbers(out)) == [n for n in range(100) if n != 50]
    assert len(err.splitlines()) == 1
    assert str(place) in err
    assert "the body's CRC" in err


def test_a_missing_file_is_named(made: MadeStore, dump: Dump) -> None:
    made.write()
    missing = made.root / "commitlog" / f"{made.segment_size:020d}"
    missing.unlink()
    code, out, err = dump()
    assert code == ExitCode.FAILURE
    assert (numbers(out)[0], numbers(out)[-1]) == (0, 99)
    assert f"{missing} is missing" in err


def test_a_missing_queue_file_is_named(made: MadeStore, dump: Dump) -> None:
    made.write(entries_per_file=10)
    (made.root / "consumequeue" / "T" / "0" / f"{20 * 20:020d}").unlink()
    code, out, err = dump("-t", "T", "--queue", "0")
    assert code == ExitCode.FAILURE
    assert numbers(out) == [*range(0, 40, 2), *range(60, 100, 2)]
    assert "T/0: queue offsets 20 to 29 cannot be read" in err


def test_an_open_store_ends_with_what_is_whole(made: MadeStore, dump: Dump) -> None:
    made.write()
    last = sorted((made.root / "commitlog").iterdir())[-1]
    with last.open("r+b") as file:
        file.seek(len(made.log) % made.segment_size)
        file.write(b"\0\0\0\0\xda\xa3\x20\xa7 a write that is under way")
    assert dump()[0] == ExitCode.FAILURE
    with held_open(made.root):
        code, out, err = dump()
    assert (code, err) == (ExitCode.OK, "")
    assert numbers(out) == list(range(100))


def test_what_is_not_there(made: MadeStore, dump: Dump) -> None:
    made.write()
    code, _, err = dump("-t", "t")
    assert code == ExitCode.UNAVAILABLE
    assert "no messages of topic t in" in err
    assert "queue 7" in dump("-t", "T", "--queue", "7")[2]
    assert dump("--queue", "7")[0] == ExitCode.USAGE


def test_only_the_topic_that_is_named_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store_with_a_broken_topic(tmp_path / "store")
    dump = ["store", "dump", str(root)]
    with held_open(root):
        for options, lines in (((), 3), (("--queue", "0"), 3), (("--count", "2"), 2)):
            assert main([*dump, "-t", "orders", *options]) == ExitCode.OK
            assert len(capsys.readouterr().out.splitlines()) == lines
        assert main([*dump, "-t", "order"]) == ExitCode.UNAVAILABLE
        assert "orders" in capsys.readouterr().err
        assert main([*dump, "-t", "orders", "--queue", "5"]) == ExitCode.UNAVAILABLE
        assert "it has 0" in capsys.readouterr().err
        assert main([*dump, "-t", "broken"]) != ExitCode.OK


def test_a_body_that_cannot_be_decompressed(made: MadeStore, dump: Dump) -> None:
    made.put("T", 0, b"no zlib", {"UNIQ_KEY": "U100"}, sys_flag=COMPRESSED)
    made.write()
    code, out, err = dump("-t", "T", "--queue", "0", "--from-offset", "50", "--body")
    assert (code, out.split("\t")[-1]) == (ExitCode.OK, "no zlib\n")
    assert "physical offset" in err


def test_a_reader_that_has_seen_enough_is_no_error(made: MadeStore) -> None:
    for n in range(3_000):
        made.put("T", 0, b"%d" % n)
    made.write()
    arguments: list[Any] = ["store", "dump", made.root, "--json"]
    process = subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b"{")
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == ExitCode.OK
    process.stderr.close()
