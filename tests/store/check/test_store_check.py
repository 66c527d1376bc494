"""What a check of a store finds, and that it agrees with what a start does."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.store.check.log_check import LogCheck
from pocketmq.store.check.report import Problem, Report, State
from pocketmq.store.check.store_check import check_store
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import StoreCorrupt, StoreError

FILE = 16 * 1024


def patch(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


async def filled(bench: Any, count: int = 300) -> list[Any]:
    """Put messages into two topics, some of them half messages, and close the store."""
    store = bench.open()
    results = []
    for n in range(count):
        bench.clock.now += 1
        results.append(
            bench.put(
                store, "Topic" if n % 3 else "Other", n % 2, body=b"%05d" % n + b"." * 100,
                properties=f"KEYS\x01k{n}\x02", sys_flag=4 if n % 10 == 9 else 0,
            )
        )  # fmt: skip
    await store.close()
    return results


DEFAULT_SIZES = {
    name: getattr(StoreConfig(), name)
    for name in ("mapped_file_size_commit_log", "mapped_file_size_consume_queue")
}


def check(bench: Any, **changes: Any) -> Report:
    """Check, and see that nothing was changed."""
    before = contents(bench.root)
    report = check_store(bench.config(**changes))
    assert contents(bench.root) == before
    return report


def contents(root: Path) -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def in_log(report: Report) -> list[Problem]:
    return [problem for problem in report.problems if problem.part == "commitlog"]


@pytest.mark.parametrize("clean", [True, False])
async def test_nothing_is_wrong_with_a_good_store(bench: Any, clean: bool) -> None:
    results = await filled(bench)
    (bench.root / "config").mkdir()
    (bench.root / "config" / "topics.json").write_text(
        '{"topicConfigTable": {"Topic": {}, "Other": {}}}'
    )
    if not clean:
        (bench.root / "abort").write_text("1")
    report = check(bench)
    assert report.problems == []
    assert report.remarks == []
    assert (report.starts, report.refusal) == (True, "")
    assert report.state is (State.CLEAN if clean else State.CRASHED)
    end = results[-1].end_offset
    assert report.flushed == end
    parts = {part.part: part for part in report.parts}
    log = parts["commitlog"]
    assert (log.begin, log.end, log.items, log.files) == (0, end, 300, 4)
    assert parts["consumequeue"].items == 270
    assert parts["index"].items == 300


async def test_more_queues_than_descriptors(bench: Any) -> None:
    store = bench.open()
    for number in range(100):
        bench.put(store, f"T{number}", 0)
    await store.close()
    sizes = [
        f"--set={name}={size}" for name, size in (("maxHashSlotNum", 50), ("maxIndexNum", 200))
    ]
    command = [sys.executable, "-m", "pocketmq", "store", "check", str(bench.root), *sizes]
    checked = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *command],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")


async def test_an_empty_store(bench: Any) -> None:
    bench.root.mkdir()
    report = check(bench)
    assert (report.problems, report.starts) == ([], True)


async def test_file_sizes_are_taken_from_the_files(bench: Any) -> None:
    await filled(bench)
    report = check(bench, **DEFAULT_SIZES)
    assert (report.problems, report.starts) == ([], True)


async def test_file_sizes_that_are_set_count(bench: Any) -> None:
    """A broker does not start with another size than its files have."""
    await filled(bench)
    report = check(bench, mapped_file_size_commit_log=32 * 1024)
    assert report.starts is False
    assert "mappedFileSizeCommitLog is 32768" in report.refusal


async def test_a_store_that_a_broker_has_open(bench: Any) -> None:
    await filled(bench)
    store = bench.open()
    for _ in range(10):
        bench.put(store)
    report = check(bench)
    assert (report.state, report.starts, report.problems) == (State.OPEN, None, [])


async def test_a_write_that_a_broker_has_begun_is_no_damage(bench: Any) -> None:
    """The size of its first record is written last."""
    store = bench.open()
    for _ in range(10):
        bench.put(store)
    first = bench.read_all(store)[5].physical_offset
    patch(bench.segment(), first, bytes(4))
    report = check(bench)
    assert in_log(report) == []
    assert next(part.end for part in report.parts if part.part == "commitlog") == first


async def test_several_processes_find_the_same(bench: Any) -> None:
    results = await filled(bench)
    patch(bench.segment(FILE), results[100].physical_offset - FILE + 95, b"?")
    bench.segment(2 * FILE).unlink()
    seen = []
    for processes in (1, 2):
        topics: dict[tuple[int, int], str] = {}
        advanced: list[int] = []
        log = LogCheck(
            bench.root / "commitlog", FILE, flushed=None, open=False, processes=processes,
            advanced=advanced.append,
        )  # fmt: skip

        def met(
            base: int, records: Any, codes: Any, log: LogCheck = log, topics: Any = topics
        ) -> None:
            for at, topic in zip(records.at.tolist(), records.topic.tolist(), strict=True):
                topics[base, at] = log.topics.names[topic]

        log.run(met)
        seen.append((topics, log.damage, log.end, log.records, sum(advanced)))
    assert seen[0] == seen[1]
    assert 150 < len(seen[0][0]) < seen[0][3]  # some have no entries


@pytest.mark.parametrize("kind", ["body", "size", "magic", "offset", "zeros"])
@pytest.mark.parametrize("number", [0, 10, 250, 299])
async def test_damage_in_the_log_and_the_offsets_that_it_takes(
    bench: Any, kind: str, number: int
) -> None:
    results = await filled(bench)
    (bench.root / "abort").write_text("1")
    at, end = results[number].physical_offset, results[number].end_offset
    segment = bench.segment(at // FILE * FILE)
    place, content = {
        "body": (95, b"?"),
        "size": (0, bytes(4)),
        "magic": (4, b"\0"),
        "offset": (35, b"\x77"),
        "zeros": (0, bytes(end - at)),
    }[kind]
    patch(segment, at % FILE + place, content)
    report = check(bench)
    (problem,) = in_log(report)
    assert (problem.where, problem.begin, problem.end) == (str(segment), at, end)
    lost = [p for p in report.problems if p.part == "consumequeue"]
    topic = "Topic" if number % 3 else "Other"
    offset = results[number].queue_offset
    if number % 10 == 9:
        assert lost == []  # a half message
    else:
        assert [(p.where, p.begin, p.end) for p in lost] == [
            (f"{topic}/{number % 2}", offset, offset + 1)
        ]
    refused = report.starts is False
    assert refused == (number == 299)  # where recovery looks
    if refused:
        with pytest.raises(StoreCorrupt) as caught:
            bench.open()
        assert str(caught.value) in report.refusal or report.refusal in str(caught.value)
    else:
        bench.open()


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "last missing", "last short"])
async def test_files_of_the_log(bench: Any, damage: str) -> None:
    results = await filled(bench)
    path = bench.segment(3 * FILE if "last" in damage else FILE)
    if "missing" in damage:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else 1000])
    report = check(bench)
    problems = in_log(report)
    assert all(problem.where == str(path) for problem in problems)
    behind = results[-1].end_offset if damage == "last missing" else int(path.name) + FILE
    assert problems[-1].end == behind
    assert report.starts is False
    with pytest.raises(StoreError):
        bench.open()


async def test_an_empty_file_before_one_that_was_made_ahead(bench: Any) -> None:
    await filled(bench)
    bench.segment(3 * FILE).write_bytes(b"")
    bench.segment(4 * FILE).write_bytes(bytes(FILE))
    report = check(bench)
    assert [problem.problem for problem in in_log(report)] == ["the file is empty"]
    with pytest.raises(StoreError, match="the file is empty, but"):
        bench.open()


async def test_the_end_of_a_log_that_was_not_written_completely(bench: Any) -> None:
    await filled(bench, 20)
    store = bench.open()
    last = bench.put(store, body=b"torn")
    store.settle()
    killed = bench.copy("killed")
    patch(killed.segment(), last.physical_offset + 60, b"\xff" * 40)
    report = check(killed)
    assert (report.starts, in_log(report)) == (True, [])
    assert "not written completely" in report.remarks[0]


@pytest.mark.parametrize("physical", [0, 7, 1 << 40])
async def test_an_entry_that_points_elsewhere(bench: Any, physical: int) -> None:
    await filled(bench)
    patch(bench.queue_file("Topic", 1), 200, struct.pack(">q", physical))
    report = check(bench)
    problems = [p for p in report.problems if p.part == "consumequeue"]
    assert {(p.where, p.begin, p.end, p.derived) for p in problems} == {("Topic/1", 10, 11, True)}


async def test_queues_that_are_gone_or_broken(bench: Any) -> None:
    await filled(bench)
    shutil.rmtree(bench.root / "consumequeue" / "Other")
    bench.queue_file("Topic", 0, 400).write_bytes(b"")
    report = check(bench)
    assert any(remark.startswith("Other/0 has no queue, but") for remark in report.remarks)
    (bad,) = [p for p in report.problems if not p.derived]
    assert bad.where == str(bench.queue_file("Topic", 0, 400))
    assert report.starts, "a broker refuses the messages of this queue only"


@pytest.mark.parametrize("alone", [True, False])
async def test_a_queue_file_of_a_terabyte_is_named(bench: Any, *, alone: bool) -> None:
    await filled(bench)
    path = bench.root / "consumequeue" / "Topic" / "0" / f"{0:020d}"
    if alone:
        shutil.rmtree(path.parents[2])
        path.parent.mkdir(parents=True)
    with path.open("ab") as file:
        file.truncate(1 << 40)
    patch(path, (1 << 40) - 20, b"\1" * 20)
    report = check_store(bench.config(**DEFAULT_SIZES))
    assert not report.starts
    assert f"{path} has {1 << 40} bytes" in report.refusal
    expected = StoreConfig().mapped_file_size_consume_queue if alone else 400
    problems = [each.problem for each in report.problems if each.where == str(path)]
    assert problems == [f"the file has {1 << 40} bytes instead of {expected}"]


async def test_an_index_of_another_log(bench: Any) -> None:
    await filled(bench)
    (path,) = (bench.root / "index").iterdir()
    patch(path, 40 + 500 * 4 + 20 * 7 + 4, struct.pack(">q", 11))
    report = check(bench)
    (problem,) = report.problems
    assert (problem.part, problem.problem, problem.derived) == (
        "index", "1 of 300 entries point at no message", True,
    )  # fmt: skip


async def test_tables_of_the_broker(bench: Any) -> None:
    await filled(bench)
    config = bench.root / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable": {"Topic": {}}}')
    (config / "consumerOffset.json").write_text('{"offsetTable"')
    (config / "subscriptionGroup.json.bak").write_text("{}")
    report = check(bench)
    assert [(Path(p.where).name, p.problem.partition(":")[0]) for p in report.problems][1:] == [
        ("consumerOffset.json", report.problems[1].problem.partition(":")[0]),
        ("topics.json", "topic Other has queues only"),
    ]
    assert "there is subscriptionGroup.json.bak" in report.problems[0].problem
    assert report.starts is False
    assert "consumerOffset.json" in report.refusal


@pytest.mark.parametrize("topic", ["Topic", SCHEDULE_TOPIC])
async def test_a_queue_that_is_gone_together_with_the_tables(bench: Any, topic: str) -> None:
    """The topic was not deleted: it has another queue, or is one of the broker's own."""
    store = bench.open()
    bench.put(store, "Topic", 0)
    bench.put(store, topic, 1)
    await store.close()
    shutil.rmtree(bench.root / "consumequeue" / topic / "1")
    report = check(bench)
    [problem] = report.problems
    assert problem.where == f"{topic}/1"
    assert "topics.json is not there" in report.remarks[0]


async def test_a_topic_that_was_deleted_is_not_lost(bench: Any) -> None:
    """A start after a kill makes its queues again, as long as the log has its messages."""
    await filled(bench)
    config = bench.root / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{"topicConfigTable": {"Topic": {}}, "pocketmqDeletedTopics": {"Other": 100000}}'
    )
    assert check(bench).problems == []


@pytest.mark.parametrize("name", ["short", "wrong"])
async def test_the_checkpoint(bench: Any, name: str) -> None:
    await filled(bench)
    if name == "short":
        (bench.root / "checkpoint").write_bytes(b"short")
        report = check(bench)
        assert [p.part for p in report.problems] == ["checkpoint"]
        assert report.starts is False
    else:
        patch(bench.root / "checkpoint", 0, b"\1")
        report = check(bench)
        assert (report.flushed, report.starts, report.problems) == (None, True, [])


async def test_what_the_official_broker_left(golden: Any) -> None:
    report = check_store(golden.bench.config(**DEFAULT_SIZES))
    assert report.problems == []
    assert report.starts is True
    records = next(part.items for part in report.parts if part.part == "commitlog")
    assert records >= len(golden.messages)
