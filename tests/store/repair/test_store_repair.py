"""A repaired store opens, serves what is left, and gives no offset twice."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import StoreError, StoreLocked
from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.repair.store_repair import Repair, repair_store
from tests.store.check.test_store_check import FILE, contents, filled, patch

TOPICS = [("Topic", 0), ("Topic", 1), ("Other", 0), ("Other", 1)]


def repaired(bench: Any) -> Repair:
    """Repair the store; before that, see that a dry run says the same, as far as files of the log
    have their names, and changes nothing."""
    before = contents(bench.root)
    dry = repair_store(bench.config(), dry_run=True)
    assert contents(bench.root) == before
    done = repair_store(bench.config())
    if dry.actions and "can only be said after that" in dry.actions[-1]:
        assert done.actions[: len(dry.actions) - 1] == dry.actions[:-1]
    else:
        assert (done.actions, done.lost, done.unknown) == (dry.actions, dry.lost, dry.unknown)
    assert not (done.kept and not list(Path(done.kept).iterdir()))
    after = check_store(bench.config())
    assert after.problems == []
    assert after.starts is True
    assert repair_store(bench.config()).actions == []
    return done


def served(bench: Any, store: Any) -> dict[tuple[str, int], dict[int, bytes]]:
    """The bodies of all queues by their offsets."""
    return {
        key: {record.queue_offset: bytes(record.body) for record in bench.read_all(store, *key)}
        for key in TOPICS
    }


async def everything(bench: Any) -> dict[tuple[str, int], dict[int, bytes]]:
    """What a good copy of the store serves."""
    copy = bench.copy("good")
    store = copy.open()
    found = served(copy, store)
    await store.close()
    return found


def gone(repair: Repair) -> set[tuple[str, int, int]]:
    return {(e.topic, e.queue_id, n) for e in repair.lost for n in range(e.begin, e.end)}


async def check_served(bench: Any, good: dict[Any, dict[int, bytes]], lost: set[Any]) -> None:
    """What is not lost is served at its offset, and new messages get new offsets; also after a
    crash, and after all queues are built anew."""
    store = bench.open()
    expected = {
        key: {n: body for n, body in bodies.items() if (*key, n) not in lost}
        for key, bodies in good.items()
    }
    assert served(bench, store) == expected
    crashed = bench.copy("crashed-again")
    for each, opened in ((bench, store), (crashed, crashed.open())):
        for topic, queue_id in TOPICS:
            result = each.put(opened, topic, queue_id, body=b"new")
            assert result.queue_offset == max(good[topic, queue_id]) + 1
        found = served(each, opened)
        assert all(bodies.popitem()[1] == b"new" for bodies in found.values())
        assert found == expected
        await opened.close()
    shutil.rmtree(bench.root / "consumequeue")
    store = bench.open()
    assert {key: len(bodies) - 1 for key, bodies in served(bench, store).items()} == {
        key: len(bodies) for key, bodies in expected.items()
    }
    await store.close()


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("kind", ["body", "zeros"])
@pytest.mark.parametrize(
    ("first", "count"), [(0, 1), (10, 1), (10, 7), (250, 30), (299, 1), (293, 7)]
)
async def test_damaged_messages(
    bench: Any, first: int, count: int, kind: str, queues: bool
) -> None:
    results = await filled(bench)
    good = await everything(bench)
    (bench.root / "abort").write_text("1")
    begin, end = results[first].physical_offset, results[first + count - 1].end_offset
    for result in results[first : first + count]:
        at = result.physical_offset
        size = result.end_offset - at
        place, content = (95, b"?") if kind == "body" else (0, bytes(size))
        patch(bench.segment(at // FILE * FILE), at % FILE + place, content)
    damaged = bench.segment(begin // FILE * FILE).read_bytes()
    if not queues:
        shutil.rmtree(bench.root / "consumequeue")
    repair = repaired(bench)
    lost = {
        ("Topic" if n % 3 else "Other", n % 2, results[n].queue_offset)
        for n in range(first, first + count)
        if n % 10 != 9
    }
    if queues:
        assert gone(repair) == lost
        await check_served(bench, good, lost)
    elif kind == "body" and count == 1 and first != 299:
        assert gone(repair) == lost  # its head still names it
    else:
        assert gone(repair) <= lost
        store = bench.open()
        found = served(bench, store)
        expected = {
            key: {n: body for n, body in bodies.items() if (*key, n) not in lost}
            for key, bodies in good.items()
        }
        assert found == expected
    if kind == "body":  # zeros are not worth keeping
        kept = [path.read_bytes() for path in sorted((Path(repair.kept) / "commitlog").iterdir())]
        assert b"".join(kept) in damaged
        assert len(b"".join(kept)) == end - begin


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "zeros"])
@pytest.mark.parametrize("base", [FILE, 3 * FILE])
async def test_files_of_the_log(bench: Any, damage: str, base: int) -> None:
    results = await filled(bench)
    good = await everything(bench)
    path = bench.segment(base)
    if damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes({"empty": b"", "short": content[:5000], "zeros": bytes(FILE)}[damage])
    if (base, damage) != (FILE, "zeros"):  # a start does not look there
        with pytest.raises(StoreError):
            bench.open()
    repair = repaired(bench)
    first = base + 5000 if damage == "short" else base
    lost = {
        ("Topic" if n % 3 else "Other", n % 2, result.queue_offset)
        for n, result in enumerate(results)
        if n % 10 != 9
        and base <= result.physical_offset < base + FILE
        and result.end_offset > first
    }
    assert gone(repair) == lost
    await check_served(bench, good, lost)


@pytest.mark.parametrize("missing", [1, 26, 2_000])
async def test_a_checkpoint_that_knows_more_than_the_log(bench: Any, missing: int) -> None:
    """As that of another store may. What is missing may be less than a record needs."""
    await filled(bench)
    good = await everything(bench)
    checkpoint = Checkpoint(Files(), bench.root / "checkpoint")
    checkpoint.open()
    checkpoint.confirm_physical_offset += missing
    checkpoint.save()
    checkpoint.close()
    with pytest.raises(StoreError, match="had been flushed up to"):
        bench.open()
    assert gone(repaired(bench)) == set()
    await check_served(bench, good, set())


async def test_an_official_broker_steps_over_padding(bench: Any) -> None:
    """It takes a record whose lengths and checksum are right, and enters no rolled-back one."""
    results = await filled(bench)
    at = results[10].physical_offset
    patch(bench.segment(), at + 95, b"?")
    repaired(bench)
    store = bench.open()
    record = bytes(store.record_at(at))
    size, magic, _ = struct.unpack_from(">iIi", record)
    assert (size, magic) == (results[10].end_offset - at, 0xDAA320A7)
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    assert sys_flag & 0xC == 0xC


@pytest.mark.parametrize(
    "field", ["queue offset", "large queue offset", "least queue offset", "queue", "topic"]
)
async def test_a_record_that_says_it_is_another_message(bench: Any, field: str) -> None:
    """No checksum covers its head, but the entry of its queue leads to it."""
    results = await filled(bench)
    good = await everything(bench)
    at = results[100].physical_offset
    topic_at = bench.segment(FILE).read_bytes().index(b"\x05Topic", at - FILE) + 1
    place, content = {
        "queue offset": (27, b"\x03"),
        "large queue offset": (22, b"\x03"),
        "least queue offset": (20, struct.pack(">q", -(1 << 63))),
        "queue": (15, b"\x01"),
        "topic": (topic_at + FILE - at, b"Tepic"),
    }[field]
    patch(bench.segment(FILE), at - FILE + place, content)
    repair = repaired(bench)
    assert repair.lost == []
    assert len(list((Path(repair.kept) / "commitlog").iterdir())) == 1
    await check_served(bench, good, set())


@pytest.mark.parametrize("offset", [-(1 << 63), 1 << 40])
async def test_the_only_message_of_a_queue_says_that_it_has_an_offset_that_cannot_be(
    bench: Any, offset: int
) -> None:
    """No other entry of the file shows that it is the queue's own."""
    store = bench.open()
    for number in range(5):
        bench.put(store, "Many", 0, body=b"%d" % number)
    alone = bench.put(store, "Alone", 0, body=b"alone")
    await store.close()
    patch(bench.segment(), alone.physical_offset + 20, struct.pack(">q", offset))
    assert repaired(bench).lost == []
    opened = bench.open()
    assert [bytes(record.body) for record in bench.read_all(opened, "Alone", 0)] == [b"alone"]


async def test_the_refusal_names_the_command(bench: Any) -> None:
    results = await filled(bench)
    (bench.root / "abort").write_text("1")
    patch(bench.segment(3 * FILE), results[299].physical_offset % FILE + 95, b"????")
    with pytest.raises(StoreError, match=f"type: pocketmq store repair {bench.root} "):
        bench.open()
    repaired(bench)
    await bench.open().close()


async def test_what_is_good_is_left_alone(bench: Any) -> None:
    await filled(bench)
    before = contents(bench.root)
    assert repair_store(bench.config()).actions == []
    assert contents(bench.root) == before


async def test_a_store_that_is_open(bench: Any) -> None:
    bench.open()
    for dry_run in (True, False):
        with pytest.raises(StoreLocked):
            repair_store(bench.config(), dry_run=dry_run)


async def test_queues_with_bad_entries_and_bad_files(bench: Any) -> None:
    await filled(bench)
    good = await everything(bench)
    patch(bench.queue_file("Topic", 1), 200, struct.pack(">q", 1 << 40))
    bench.queue_file("Topic", 0, 400).write_bytes(b"")
    bench.queue_file("Other", 0, 400).unlink()
    repair = repaired(bench)
    assert repair.lost == []
    assert (Path(repair.kept) / "consumequeue" / "Topic" / "0").is_dir()
    await check_served(bench, good, set())


async def test_the_index_is_found_again(bench: Any) -> None:
    await filled(bench)
    (path,) = (bench.root / "index").iterdir()
    patch(path, 40 + 500 * 4 + 20 * 7 + 4, struct.pack(">q", 11))
    repair = repaired(bench)
    assert (Path(repair.kept) / "index" / path.name).exists()
    store = bench.open()
    store.start()
    found = await store.index.query("Topic", "k7", 10, 0, 1 << 60)
    assert len(found.records) == 1
    await store.close()


async def test_the_index_loses_what_the_log_loses(bench: Any) -> None:
    """Nobody knows that the last message was flushed, and its damaged record still has its head."""
    last = (await filled(bench))[-1]
    patch(
        bench.segment(last.physical_offset // FILE * FILE), last.end_offset % FILE - 40, b"?" * 40
    )
    with (bench.root / "checkpoint").open("ab") as file:
        file.write(b"?")
    repaired(bench)
    assert check_store(bench.config()).problems == []


async def test_tables(bench: Any) -> None:
    await filled(bench)
    config = bench.root / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable": {')
    (config / "topics.json.bak").write_text('{"topicConfigTable": {"Topic": {}}, "x": 1}')
    (config / "consumerOffset.json").write_text("{")
    (config / "consumerOffset.json.bak").write_text("{")
    (config / "subscriptionGroup.json.bak").write_text('{"a": 1}')
    repair = repaired(bench)
    topics = json.loads((config / "topics.json").read_text())
    assert topics["x"] == 1
    assert set(topics["topicConfigTable"]) == {"Topic", "Other"}
    assert topics["topicConfigTable"]["Other"]["readQueueNums"] == 2
    assert json.loads((config / "subscriptionGroup.json").read_text()) == {"a": 1}
    assert not (config / "consumerOffset.json").exists()
    kept = Path(repair.kept) / "config"
    assert {path.name for path in kept.iterdir()} == {
        "topics.json", "consumerOffset.json", "consumerOffset.json.bak",
    }  # fmt: skip


async def test_a_repair_that_was_interrupted(bench: Any, monkeypatch: Any) -> None:
    """The store counts as crashed until it is done, and a second repair ends it."""
    results = await filled(bench)
    good = await everything(bench)
    patch(bench.segment(), results[10].physical_offset + 95, b"?")
    with monkeypatch.context() as patched:

        def fail(*_: Any, **__: Any) -> None:
            raise OSError("pulled the plug")

        patched.setattr("pocketmq.store.repair.store_repair.Recovery", fail)
        with pytest.raises(OSError, match="plug"):
            repair_store(bench.config())
    assert (bench.root / "abort").exists()
    repair_store(bench.config())
    await check_served(bench, good, {("Topic", 0, results[10].queue_offset)})


async def test_the_official_broker_still_recovers_its_batch_queues_after_a_repair(
    bench: Any,
) -> None:
    """It enters what is missing after a crash, from the time on that the checkpoint holds."""
    await filled(bench)
    (bench.root / "abort").write_text("1")
    (bench.root / "batchconsumequeue" / "Batch" / "0").mkdir(parents=True)
    logics = struct.pack(">q", 5_000)
    patch(bench.root / "checkpoint", 8, logics)
    patch(bench.segment(0), 95, b"?")
    assert repaired(bench).actions
    assert (bench.root / "abort").exists()
    assert (bench.root / "checkpoint").read_bytes()[8:16] == logics


async def test_a_refused_start_leaves_the_queue_of_a_topic_that_was_made_anew(bench: Any) -> None:
    store = bench.open()
    bench.put(store, body=b"first life")
    bench.put(store, "Other")  # in a write of its own: recovery begins here
    await store.close()
    store = bench.open()
    bench.put(store, body=b"first life, too")
    damaged = bench.put(store, "Other", body=b"." * 20)
    store.delete_topic("Topic")
    bench.put(store, body=b"second life")
    bench.put(store, "Other")
    await store.all_flushed()
    killed = bench.copy("killed")
    await store.close()
    before = killed.queue_file("Topic", 0).read_bytes()
    patch(killed.segment(), damaged.physical_offset + 95, b"?")
    with pytest.raises(StoreError, match="the file is damaged"):
        killed.open()
    assert killed.queue_file("Topic", 0).read_bytes() == before
    repaired(killed)
    store = killed.open()
    assert [record.body for record in killed.read_all(store)] == [b"second life"]
    await store.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_deleted_message_does_not_take_the_place_of_one_that_is_gone(
    bench: Any, killed: bool
) -> None:
    """The topic was deleted and made anew, so the log has two messages of the same offset."""
    store = bench.open()
    bench.put(store, body=b"deleted")
    store.delete_topic("Topic")
    end = store.commit_log.end
    damaged = bench.put(store, body=b"damaged")
    bench.put(store, body=b"good")
    store.settle()
    after_kill = bench.copy("killed")
    await store.close()
    if killed:
        bench = after_kill
    (bench.root / "config").mkdir()
    (bench.root / "config/topics.json").write_text(
        json.dumps({"topicConfigTable": {"Topic": {}}, "pocketmqDeletedTopics": {"Topic": end}})
    )
    patch(bench.segment(), damaged.end_offset - 10, b"?")
    assert gone(repaired(bench)) == {("Topic", 0, 0)}
    for n in range(2):
        store = bench.open()
        for _ in store.delete_deleted_queues({"Topic": end}):
            pass
        assert bench.bodies(store)[0] == b"good"
        assert bench.put(store, body=b"new").queue_offset >= 2
        store.settle()
        crashed = bench.copy(f"crashed-{n}")
        await store.close()
        bench = crashed
