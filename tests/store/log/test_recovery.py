"""Opening a store after a clean stop, after a crash, and with damage of every kind.

A crash is a copy of the directory of a store that is still open: mapped files are shared memory,
so the copy is what a killed process leaves behind.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import struct
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import decode
from pocketmq.message.record_layout import MAGIC_V1, PHYSICAL_OFFSET_AT
from pocketmq.message.tags import tag_hash
from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import FileSizeMismatch, StoreCorrupt
from pocketmq.store.results import PutStatus

REBOOTED = b"another boot, 16"


def checkpoint(bench: Any) -> tuple[int, ...]:
    return struct.unpack_from(">5q", (bench.root / "checkpoint").read_bytes())


def patch(path: Any, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def fill(bench: Any, store: Any, count: int, *, queues: int = 1, size: int = 100) -> list[Any]:
    """Put `count` messages 1 ms apart, round robin."""
    results = []
    for n in range(count):
        bench.clock.now += 1
        results.append(bench.put(store, "Topic", n % queues, body=b"%05d" % n + b"." * size))
    return results


async def test_a_clean_stop_and_start(bench: Any) -> None:
    store = bench.open()
    assert (bench.root / "abort").read_text().isdigit()
    fill(bench, store, 50, queues=3)
    expected = [bench.bodies(store, "Topic", n) for n in range(3)]
    end = store.commit_log.end
    await store.close()
    assert not (bench.root / "abort").exists()
    assert checkpoint(bench) == (bench.clock.now, bench.clock.now, 0, 0, end)
    store = bench.open()
    assert store.commit_log.end == end
    assert [bench.bodies(store, "Topic", n) for n in range(3)] == expected
    assert bench.put(store).queue_offset == 17


async def test_an_empty_store_stays_empty(bench: Any) -> None:
    for _ in range(2):
        store = bench.open()
        await store.close()
    assert not list((bench.root / "commitlog").iterdir())
    assert bench.put(bench.open()).physical_offset == 0


async def test_after_a_crash_everything_stored_is_there(bench: Any) -> None:
    store = bench.open()
    fill(bench, store, 200, queues=3)
    crashed = bench.copy("crashed")
    opened = crashed.open()
    assert opened.commit_log.end == store.commit_log.end
    for n in range(3):
        assert crashed.bodies(opened, "Topic", n) == bench.bodies(store, "Topic", n)
    assert crashed.put(opened, "Topic", 0).queue_offset == 67
    await opened.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_queues_are_rebuilt_from_the_log(bench: Any, clean: bool) -> None:
    """Delivery times, tags, transactions: a rebuilt queue equals the one that was lost."""
    store = bench.open()
    for n in range(120):
        bench.clock.now += 1
        sys_flag = (0, 0, 4, 8, 12)[n % 5]
        code = tag_hash(f"t{n}")
        text = f"TAGS\x01t{n}\x02"
        bench.put(store, "A", n % 2, properties=text, sys_flag=sys_flag, tags_code=code)
        bench.put(store, "SCHEDULE_TOPIC_XXXX", 3, properties="DELAY\x013\x02TAGS\x01t\x02")
        batch = encode_batch([(0, b"b", b"TAGS\x01b\x02"), (0, b"b", b"")])
        store.put_batch("A", 0, batch, "", born_timestamp=1, born_host=bytes(8))
    await store.close()
    before = {p: p.read_bytes() for p in (bench.root / "consumequeue").rglob("*") if p.is_file()}
    shutil.rmtree(bench.root / "consumequeue")
    if not clean:
        (bench.root / "abort").write_text("1")
    store = bench.open()
    await store.close()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("keep", [0, 1, 4, 7, 8, 50, 90, 150])
@pytest.mark.parametrize("junk", [b"\0", b"\xff", b"\xda\xa3\x20\xa7"])
async def test_a_torn_record_is_cut_and_its_remains_are_gone(
    bench: Any, caplog: Any, keep: int, junk: bytes
) -> None:
    """Whatever part of the last record is there, and whatever lies in place of the rest."""
    store = bench.open()
    fill(bench, store, 10)
    *_, last = fill(bench, store, 1)
    crashed = bench.copy("crashed")
    size = last.end_offset - last.physical_offset
    rest = (junk * size)[: size - keep]
    patch(crashed.segment(), last.physical_offset + keep, rest)
    opened = crashed.open()
    assert opened.commit_log.end == last.physical_offset
    assert crashed.bodies(opened) == bench.bodies(store)[:-1]
    assert opened.max_offset("Topic", 0) == 10
    told = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert any("cut" in record.getMessage() for record in told)
    file = opened.commit_log.files.mapped[0]
    assert not any(file.view[last.physical_offset :])
    assert crashed.put(opened, body=b"after").queue_offset == 10
    await opened.close()
    reopened = crashed.open()
    assert crashed.bodies(reopened)[10:] == [b"after"]
    await reopened.close()


@pytest.mark.parametrize("cut", [True, False], ids=["power cut", "kill"])
async def test_a_sector_of_properties_that_a_power_cut_took(bench: Any, cut: bool) -> None:
    """The CRC covers the body only. After a kill nothing is missing: zeros are the sender's."""
    store = bench.open()
    flushed = fill(bench, store, 5)[-1]
    store.start()
    assert await store.all_flushed()
    last = bench.put(store, properties="KEYS\x01" + "k" * 600 + "\x02")
    store.settle()
    crashed = bench.copy("crashed")
    patch(crashed.segment(), last.end_offset - 550, bytes(512))
    if cut:
        crashed.files.boot_id = lambda: b"another boot id."
    opened = crashed.open()
    assert opened.commit_log.end == (flushed.end_offset if cut else last.end_offset)
    assert opened.max_offset("Topic", 0) == (5 if cut else 6)
    assert await store.all_flushed()
    later = bench.copy("later")
    patch(later.segment(), last.end_offset - 550, bytes(512))
    later.files.boot_id = lambda: b"another boot id."
    assert later.open().commit_log.end == last.end_offset, "it had been flushed"


@pytest.mark.parametrize("cut", [True, False], ids=["power cut", "kill"])
async def test_a_sector_that_a_power_cut_took_among_thousands_of_records(
    bench: Any, cut: bool
) -> None:
    large = {"mapped_file_size_commit_log": 1024 * 1024}
    store = bench.open(**large, flush_interval_commit_log=3_600_000)
    fill(bench, store, 5)
    store.start()
    assert await store.all_flushed()
    before = fill(bench, store, 1500, queues=3)[-1]
    last = bench.put(store, properties="KEYS\x01" + "k" * 600 + "\x02")
    store.settle()
    crashed = bench.copy("crashed")
    patch(crashed.segment(), last.end_offset - 550, bytes(512))
    if cut:
        crashed.files.boot_id = lambda: b"another boot id."
    opened = crashed.open(**large)
    assert opened.commit_log.end == (before.end_offset if cut else last.end_offset)
    await opened.close()


async def test_remains_of_an_earlier_life_are_not_messages(bench: Any) -> None:
    """After a cut, a new record of the same size must not make the old ones behind it readable."""
    store = bench.open()
    results = fill(bench, store, 10)
    crashed = bench.copy("crashed")
    fifth = results[5]
    patch(crashed.segment(), fifth.physical_offset + 100, b"\xff")
    crashed.files.boot_id = lambda: REBOOTED
    crashed.clock.now = bench.clock.now
    opened = crashed.open()
    assert opened.max_offset("Topic", 0) == 5
    crashed.put(opened, body=b"n" * 105)
    assert opened.commit_log.end == fifth.end_offset
    again = crashed.copy("again")
    reopened = again.open()
    assert reopened.commit_log.end == fifth.end_offset
    assert again.bodies(reopened)[5:] == [b"n" * 105]
    await reopened.close()
    await opened.close()


async def test_remains_that_the_reference_left_are_no_damage(bench: Any, caplog: Any) -> None:
    """It does not wipe what it cuts off: good records, but older than the last message."""
    store = bench.open()
    results = fill(bench, store, 10)
    remains = bench.copy("remains").segment().read_bytes()
    crashed = bench.copy("crashed")
    patch(crashed.segment(), results[5].physical_offset, bytes(4096))
    crashed.files.boot_id = lambda: REBOOTED
    crashed.clock.now = bench.clock.now + 1000
    opened = crashed.open()
    end = crashed.put(opened, body=b"later").end_offset
    assert end < results[6].physical_offset
    await opened.close()
    patch(crashed.segment(), end, remains[end:4096])
    (crashed.root / "abort").write_text("1")
    crashed.files.boot_id = lambda: b"and another one."
    opened = crashed.open()
    assert opened.commit_log.end == end
    assert crashed.bodies(opened)[5:] == [b"later"]
    await opened.close()


async def test_unflushed_messages_behind_a_hole_are_dropped_loudly(bench: Any, caplog: Any) -> None:
    """A power failure may lose a page in the middle of what was not flushed. Without one, it is
    damage: what a killed process wrote is there."""
    store = bench.open()
    results = fill(bench, store, 30)
    crashed = bench.copy("crashed")
    patch(crashed.segment(), results[10].physical_offset, bytes(150))
    with pytest.raises(StoreCorrupt, match="the machine has not stopped since"):
        crashed.open()
    crashed.files.boot_id = lambda: REBOOTED
    opened = crashed.open()
    assert opened.max_offset("Topic", 0) == 10
    assert "19 messages after it" in caplog.text
    assert str(results[11].physical_offset) in caplog.text
    await opened.close()


@pytest.mark.parametrize("rebooted", [False, True])
async def test_a_write_that_the_killed_process_did_not_complete(
    bench: Any, caplog: Any, rebooted: bool
) -> None:
    """The first four bytes of a write come last. Only of a machine that ran on is it known that
    nobody was told of the messages."""
    store = bench.open()
    results = fill(bench, store, 30)
    crashed = bench.copy("killed")
    patch(crashed.segment(), results[10].physical_offset, bytes(4))
    if rebooted:
        crashed.files.boot_id = lambda: REBOOTED
    opened = crashed.open()
    assert opened.max_offset("Topic", 0) == 10
    (told,) = [r for r in caplog.records if "physical offset" in r.getMessage()]
    if rebooted:
        assert told.levelno == logging.ERROR
        assert "19 messages after it" in told.getMessage()
    else:
        assert told.levelno == logging.WARNING
        assert "20 messages that the last process did not complete" in told.getMessage()
    await opened.close()


@pytest.mark.parametrize("writer", ["master", "slave"])
@pytest.mark.parametrize("checked", [False, True])
async def test_what_looks_like_a_record_in_an_unfinished_one_is_none(
    bench: Any, caplog: Any, writer: str, checked: bool
) -> None:
    """A client can foresee where its message is stored. A master writes the first four bytes last,
    a slave what it receives in its order."""
    store = bench.open()
    first = bench.put(store, body=b"." * 100)
    whole = bench.segment().read_bytes()[: first.end_offset]
    body_at, at = whole.index(b"." * 100), first.end_offset
    made_up = bytearray(whole)
    struct.pack_into(">q", made_up, PHYSICAL_OFFSET_AT, at + body_at)
    bench.put(store, body=made_up + b"." * 100)
    store.settle()
    crashed = bench.copy("killed")
    log = crashed.segment()
    unwritten = at + body_at + len(made_up) + 50
    patch(log, unwritten, bytes(200))
    if writer == "master":
        patch(log, at, bytes(4))
    assert decode(log.read_bytes(), at + body_at).physical_offset == at + body_at

    if checked:
        report = check_store(crashed.config())
        assert report.starts
        assert not [problem for problem in report.problems if problem.part == "commitlog"]
        return
    opened = crashed.open()
    assert opened.commit_log.end == at
    assert "cut off a record that was not written completely" in caplog.text
    await opened.close()


@pytest.mark.parametrize("damage", ["body", "size", "magic", "physical offset", "properties"])
async def test_damage_in_flushed_messages_is_an_error(bench: Any, damage: str) -> None:
    """Good records follow, and the checkpoint says they were on the disk: this is no torn tail."""
    store = bench.open()
    results = fill(bench, store, 30)
    store.start()
    assert await store.all_flushed()
    bench = bench.copy("crashed")
    at = results[10].physical_offset
    place, content = {
        "body": (at + 95, b"?"),
        "size": (at, bytes(4)),
        "magic": (at + 4, b"\0"),
        "physical offset": (at + 35, b"\x77"),
        "properties": (results[11].physical_offset - 1, b"\x09"),
    }[damage]
    patch(bench.segment(), place, content)
    log = bench.segment().read_bytes()
    with pytest.raises(StoreCorrupt, match="19 good ones follow") as caught:
        bench.open()
    assert caught.value.path == bench.segment()
    assert caught.value.offset == at
    assert str(results[11].physical_offset) in str(caught.value)
    assert bench.segment().read_bytes() == log
    assert (bench.root / "abort").exists()
    with pytest.raises(StoreCorrupt):  # again: the failed opening left no lock behind
        bench.open()


async def test_damage_with_good_records_only_in_the_next_file(bench: Any) -> None:
    store = bench.open()
    results = fill(bench, store, 81)
    await store.close()
    last = results[-1].physical_offset
    store = bench.open()
    assert fill(bench, store, 20)[0].physical_offset == 16 * 1024
    crashed = bench.copy("crashed")
    patch(crashed.segment(), last + 100, b"\xff")
    with pytest.raises(StoreCorrupt, match="20 good ones follow") as caught:
        crashed.open()
    assert (caught.value.path, caught.value.offset) == (crashed.segment(), last)


async def test_an_old_store_is_not_walked_from_its_begin(bench: Any) -> None:
    """After a crash the walk begins at the checkpoint, so damage before it stays undiscovered, as
    with the reference."""
    store = bench.open()
    results = fill(bench, store, 300)
    bench.clock.now += 10_000
    fill(bench, store, 100)
    await store.close()
    (bench.root / "abort").write_text("1")
    patch(bench.segment(), results[10].physical_offset + 4, b"\0")
    opened = bench.open()
    assert opened.max_offset("Topic", 0) == 400


async def test_entries_behind_the_log_are_cut(bench: Any, caplog: Any) -> None:
    """The log lost its last messages, the queues had them already."""
    store = bench.open()
    fill(bench, store, 40, queues=2)
    crashed = bench.copy("crashed")
    where = bench.read_all(store, "Topic", 0)[15].physical_offset
    patch(crashed.segment(), where, bytes(16 * 1024 - where))
    opened = crashed.open()
    assert (opened.max_offset("Topic", 0), opened.max_offset("Topic", 1)) == (15, 15)
    assert "cut 5 entries" in caplog.text
    await opened.close()


@pytest.mark.parametrize("base", [400, 1600])
async def test_holes_in_a_consume_queue_are_filled_again(bench: Any, base: int) -> None:
    """Pages of a queue may be lost in a power failure while later ones are there."""
    store = bench.open()
    fill(bench, store, 90)
    crashed = bench.copy("crashed")
    patch(crashed.queue_file("Topic", 0, base), 40, bytes(40))
    opened = crashed.open()
    assert crashed.bodies(opened) == bench.bodies(store)
    await opened.close()


@pytest.mark.parametrize("later", [True, False])
async def test_entries_lost_before_the_checkpoint_need_the_whole_log(
    bench: Any, caplog: Any, later: bool
) -> None:
    """Found out by a later message of the queue, or by the entries that are left of it."""
    store = bench.open()
    for n in range(15):
        bench.put(store, "Quiet", body=b"%d" % n)
    fill(bench, store, 300)
    bench.clock.now += 10_000
    fill(bench, store, 100)
    if later:
        bench.put(store, "Quiet", body=b"late")
    expected = bench.bodies(store, "Quiet")
    await store.close()
    (bench.root / "abort").write_text("1")
    bench.files.boot_id = lambda: b"another boot id."
    patch(bench.queue_file("Quiet", 0), 80, bytes(20 if not later else 320))
    opened = bench.open()
    assert "from the whole commit log" in caplog.text
    assert bench.bodies(opened, "Quiet") == expected


async def test_stale_entries_behind_the_end_of_a_queue(bench: Any, caplog: Any) -> None:
    """The reference moves its end back without wiping what lies behind it."""
    store = bench.open()
    results = fill(bench, store, 10)
    await store.close()
    stale = struct.pack(">qiq", results[3].physical_offset + 7, 200, 0)
    patch(bench.queue_file("Topic", 0), 200, stale * 2)
    opened = bench.open()
    assert opened.max_offset("Topic", 0) == 10
    assert "cut 2 entries" in caplog.text


async def test_a_topic_that_began_anew_keeps_its_later_life(bench: Any) -> None:
    store = bench.open()
    for n in range(30):
        bench.put(store, body=b"old %d" % n)
    store.delete_topic("Topic")
    for n in range(5):
        bench.put(store, body=b"new %d" % n)
    expected = [b"new %d" % n for n in range(5)]
    for name in ("kept", "rebuilt"):
        crashed = bench.copy(name)
        if name == "rebuilt":
            shutil.rmtree(crashed.root / "consumequeue")
        opened = crashed.open()
        assert crashed.bodies(opened) == expected
        assert crashed.put(opened).queue_offset == 5
        await opened.close()


async def test_a_queue_whose_begin_has_expired(bench: Any) -> None:
    """Its first file begins with fillers, as the reference has it; reading skips them."""
    store = bench.open()
    fill(bench, store, 300)
    await store.close()
    bench.segment(0).unlink()
    before = bench.queue_file("Topic", 0, 2000).read_bytes()
    shutil.rmtree(bench.root / "consumequeue")
    opened = bench.open()
    first = decode(bytes(opened.record_at(16 * 1024)))
    low = opened.min_offset("Topic", 0)
    assert low == first.queue_offset > 20
    assert [r.queue_offset for r in bench.read_all(opened)] == list(range(low, 300))
    assert bench.queue_file("Topic", 0, 2000).read_bytes() == before
    base = low * 20 // 400 * 400
    content = bench.queue_file("Topic", 0, base).read_bytes()
    filler = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    assert content.startswith(filler * ((low * 20 - base) // 20))
    await opened.close()
    assert bench.open().min_offset("Topic", 0) == low


@pytest.mark.parametrize("entry", [(5000, 1 << 30), (-5000, 1 << 30), (5000, 7)])
async def test_damaged_entries_of_expired_messages_do_not_end_a_queue(
    bench: Any, entry: tuple[int, int]
) -> None:
    """Whoever believes the size in the last of them takes it for a message behind all others."""
    store = bench.open(mapped_file_size_consume_queue=2000)
    for _ in range(10):
        bench.put(store, "Mostly")
    fill(bench, store, 200)
    last = bench.put(store, "Mostly")
    await store.close()
    bench.segment(0).unlink()
    (bench.root / "checkpoint").unlink()
    damaged = struct.pack(">qiq", *entry, 0)
    patch(bench.queue_file("Mostly", 0), 4 * 20, damaged + bytes(5 * 20))
    (bench.root / "abort").write_text("1")
    opened = bench.open(mapped_file_size_consume_queue=2000)
    found = {r.queue_offset: r.physical_offset for r in bench.read_all(opened, "Mostly")}
    assert found == {10: last.physical_offset}
    await opened.close()


async def test_messages_of_kinds_that_have_no_place_do_no_harm(bench: Any, caplog: Any) -> None:
    """Inner batches, and topics that are no directory names, are stepped over and counted."""
    store = bench.open()
    bench.put(store, body=b"one")
    middle = bench.put(store, "Bad", body=b"xx")
    inner = bench.put(store, "Inner", body=b"yy")
    bench.put(store, body=b"two")
    crashed = bench.copy("crashed")
    data = crashed.segment().read_bytes()
    at = data.index(b"\x03Bad", middle.physical_offset)
    patch(crashed.segment(), at, b"\x03../")
    patch(crashed.segment(), inner.physical_offset + 36, (0xC0).to_bytes(4, "big"))
    for topic in ("Bad", "Inner"):
        shutil.rmtree(crashed.root / "consumequeue" / topic)
    opened = crashed.open()
    assert crashed.bodies(opened) == [b"one", b"two"]
    assert set(opened.queues) == {"Topic"}
    assert "2 records are of a kind that is not supported" in caplog.text
    await opened.close()


async def test_offsets_that_the_log_lost_stay_empty(bench: Any, caplog: Any) -> None:
    store = bench.open()
    results = fill(bench, store, 20)
    await store.close()
    shutil.rmtree(bench.root / "consumequeue")
    # The messages 5 to 9 become another topic's.
    for result in results[5:10]:
        content = bench.segment().read_bytes()
        at = content.index(b"\x05Topic", result.physical_offset)
        patch(bench.segment(), at, b"\x05Other")
    opened = bench.open()
    offsets = [record.queue_offset for record in bench.read_all(opened)]
    assert offsets == [*range(5), *range(10, 20)]
    assert "5 messages are missing" in caplog.text
    assert opened.get("Topic", 0, 5, 3).status.name == "MESSAGE_WAS_REMOVING"


async def test_a_queue_offset_that_cannot_be(bench: Any, caplog: Any) -> None:
    """A flipped bit in a record's head must not make files for billions of entries."""
    store = bench.open()
    results = fill(bench, store, 20)
    await store.close()
    shutil.rmtree(bench.root / "consumequeue")
    patch(bench.segment(), results[7].physical_offset + 22, b"\x03")
    opened = bench.open()
    offsets = [record.queue_offset for record in bench.read_all(opened)]
    assert offsets == [*range(7), *range(8, 20)]
    assert "it is damaged and has no entry" in caplog.text


async def test_a_log_that_is_gone_is_not_taken_for_an_empty_store(bench: Any) -> None:
    store = bench.open()
    fill(bench, store, 3)
    await store.close()
    shutil.rmtree(bench.root / "commitlog")
    with pytest.raises(StoreCorrupt, match="there is no commit log"):
        bench.open()


async def test_files_of_another_size_are_named(bench: Any) -> None:
    store = bench.open()
    fill(bench, store, 3)
    await store.close()
    with pytest.raises(FileSizeMismatch, match="mappedFileSizeCommitLog is 32768"):
        bench.open(mapped_file_size_commit_log=32_768)
    with pytest.raises(FileSizeMismatch, match="mappedFileSizeConsumeQueue is 800"):
        bench.open(mapped_file_size_consume_queue=800)
    assert bench.bodies(bench.open()) != []


async def test_a_missing_file_in_between_is_named(bench: Any) -> None:
    store = bench.open()
    fill(bench, store, 300)
    await store.close()
    bench.segment(16 * 1024).unlink()
    with pytest.raises(StoreCorrupt, match="00000000000000016384 before it is missing"):
        bench.open()


@pytest.mark.parametrize("where", ["commitlog", "consumequeue"])
async def test_an_empty_file_in_between_is_not_of_another_size(bench: Any, where: str) -> None:
    store = bench.open()
    fill(bench, store, 300)
    await store.close()
    path = bench.segment() if where == "commitlog" else bench.queue_file("Topic", 0, 400)
    path.write_bytes(b"")
    with pytest.raises(StoreCorrupt, match="the file is empty, but") as caught:
        bench.open()
    assert caught.value.path == path
    assert path.exists()


async def test_strange_files_are_left_alone(bench: Any, caplog: Any) -> None:
    store = bench.open()
    fill(bench, store, 3)
    await store.close()
    (bench.root / "commitlog" / "notes.txt").write_text("mine")
    (bench.root / "consumequeue" / "lost+found" / "0").mkdir(parents=True)
    (bench.root / "consumequeue" / "Topic" / "backup").mkdir()
    bench.segment(16 * 1024).touch()  # created, but the process ended there
    opened = bench.open()
    assert len(bench.bodies(opened)) == 3
    assert (bench.root / "commitlog" / "notes.txt").read_text() == "mine"
    assert not bench.segment(16 * 1024).exists()
    assert "notes.txt is not part of the store" in caplog.text


@pytest.mark.parametrize("written", ["neither", "blank"])
async def test_a_crash_between_two_files(bench: Any, written: str) -> None:
    """The next file is made before the blank ends the old one."""
    store = bench.open()
    results = fill(bench, store, 70)
    crashed = bench.copy("crashed")
    end = results[-1].end_offset
    crashed.segment(16 * 1024).write_bytes(bytes(16 * 1024))
    if written == "blank":
        left = 16 * 1024 - end
        patch(crashed.segment(), end, left.to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
    opened = crashed.open()
    assert crashed.bodies(opened) == bench.bodies(store)
    result = crashed.put(opened, body=b"next")
    assert result.physical_offset == (16 * 1024 if written == "blank" else end)
    await opened.close()
    assert crashed.bodies(crashed.open())[-1] == b"next"


async def test_a_blank_without_a_next_file(bench: Any) -> None:
    store = bench.open()
    results = fill(bench, store, 70)
    crashed = bench.copy("crashed")
    end = results[-1].end_offset
    patch(crashed.segment(), end, (16 * 1024 - end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
    opened = crashed.open()
    assert crashed.put(opened, body=b"next").physical_offset == end
    await opened.close()
    assert crashed.bodies(crashed.open())[-1] == b"next"


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 100])
async def test_the_end_of_a_file_has_room_for_a_blank(bench: Any, left: int) -> None:
    """Records end at least 8 bytes before the file does."""
    store = bench.open()
    overhead = bench.put(store).end_offset - 4
    body = b"x" * (16 * 1024 - left - store.commit_log.end - overhead)
    result = bench.put(store, body=body)
    assert result.end_offset == 16 * 1024 - left if left >= 8 else result.physical_offset == 16384
    bench.put(store)
    crashed = bench.copy("crashed")
    opened = crashed.open()
    assert len(crashed.bodies(opened)) == 3
    assert opened.record_at(0)[4:8] == MAGIC_V1.to_bytes(4, "big")
    await opened.close()


BATCH_TOPIC = {"topicName": "Batch", "attributes": {"queue.type": "BatchCQ"}}


async def test_no_entry_is_made_for_a_batch_topic_without_a_directory(bench: Any) -> None:
    """Its first messages may be in the commit log only, after a crash."""
    store = bench.open()
    for topic in ("Topic", "Batch"):
        bench.put(store, topic)
    store.settle()
    bench = bench.copy("crashed")
    shutil.rmtree(bench.root / "consumequeue")
    topics = {"Topic": {"topicName": "Topic", "attributes": {}}, "Batch": BATCH_TOPIC}
    (bench.root / "config").mkdir()
    (bench.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))

    store = bench.open()
    assert bench.bodies(store, "Topic") == [b"body"]
    assert bench.put(store, "Batch").status is PutStatus.MESSAGE_ILLEGAL
    assert [path.name for path in (bench.root / "consumequeue").iterdir()] == ["Topic"]
    assert not (bench.root / "batchconsumequeue").exists()


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_crash_stays_visible_to_the_broker_that_can_recover_foreign_queues(
    bench: Any, crashed: bool
) -> None:
    """Only the official broker makes their missing entries, from the checkpoint's time on."""
    store = bench.open()
    bench.put(store)
    if not crashed:
        await store.close()
    bench = bench.copy("official")
    (bench.root / "batchconsumequeue" / "Batch" / "0").mkdir(parents=True)
    entered = checkpoint(bench)[1]
    bench.clock.now += 60_000

    for _ in range(2):
        store = bench.open()
        bench.clock.now += 60_000
        bench.put(store)
        await store.close()
        assert (bench.root / "abort").exists() is crashed
        assert (checkpoint(bench)[1] == entered) is crashed
    assert len(bench.bodies(bench.open())) == 3


@pytest.mark.parametrize(
    "document",
    [
        "{}",
        '{"topicConfigTable":null}',
        '{"topicConfigTable":{"Topic":null}}',
        '{"topicConfigTable":{"Topic":{"attributes":{"queue.type":"SimpleCQ"}}}}',
    ],
)
async def test_topics_are_ordinary_unless_the_table_says_otherwise(
    bench: Any, document: str
) -> None:
    store = bench.open()
    bench.put(store)
    store.settle()
    bench = bench.copy("crashed")
    (bench.root / "config").mkdir()
    (bench.root / "config" / "topics.json").write_text(document)
    assert bench.bodies(bench.open()) == [b"body"]


async def test_no_entry_is_made_for_topics_with_batch_consume_queues(bench: Any) -> None:
    """The official broker does not open a store where a topic has queues of both kinds."""
    store = bench.open()
    for topic in ("Topic", "Batch"):
        bench.put(store, topic)
    store.settle()
    bench = bench.copy("crashed")
    shutil.rmtree(bench.root / "consumequeue" / "Batch")
    batch_queue = bench.root / "batchconsumequeue" / "Batch" / "0"
    batch_queue.mkdir(parents=True)
    (batch_queue / f"{0:020d}").write_bytes(b"official")

    store = bench.open()
    assert bench.bodies(store, "Topic") == [b"body"]
    assert not (bench.root / "consumequeue" / "Batch").exists()
    result = bench.put(store, "Batch")
    assert (result.status, result.remark) == (
        PutStatus.MESSAGE_ILLEGAL,
        "topic 'Batch' has batch consume queues, which are not served",
    )
    assert (batch_queue / f"{0:020d}").read_bytes() == b"official"


async def test_damage_in_a_whole_file_is_known_for_damage_after_a_power_cut(bench: Any) -> None:
    """The checkpoint reaches the disk with each file of the log, not only once a minute."""
    store = bench.open(flush_interval_consume_queue=1)
    store.start()
    results = fill(bench, store, 100)
    synced = asyncio.create_task(bench.files.next_sync("checkpoint"))
    await asyncio.sleep(0)
    assert await store.all_flushed()
    await synced
    crashed = bench.copy("crashed")
    crashed.files.boot_id = lambda: REBOOTED
    patch(crashed.segment(), results[0].physical_offset + 95, b"?")
    with pytest.raises(StoreCorrupt, match="and they had been flushed"):
        crashed.open()
    await store.close()
