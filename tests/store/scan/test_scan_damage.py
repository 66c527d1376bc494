"""Scans of stores that are not whole: crashed, cut short, expired, corrupt."""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.identity import pack_host
from pocketmq.message.sysflag import BORN_HOST_V6, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from pocketmq.store.errors import StoreCorrupt, StoreError
from pocketmq.store.scan.direct_scan import scan
from pocketmq.store.scan.errors import NoStore, RecordsLost, StoreRecovering
from pocketmq.store.scan.patience import Patience
from pocketmq.store.scan.planning.snapshot import State
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.topic_table import local_files
from tests.store.made_store import NOW, MadeStore, damage, held_open, rows_of, write


def offsets(root: Path) -> dict[tuple[str, int], list[int]]:
    """The queue offsets that a scan finds, by queue."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows_of(scan(root, ["topic", "queueId", "queueOffset", "body"])):
        found.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
    return found


def filled(root: Path, count: int = 100, **put: Any) -> tuple[MadeStore, list[int]]:
    store = MadeStore(root)
    return store, [store.put(body=b"body %d" % n, **put) for n in range(count)]


def segment_of(store: MadeStore, physical: int) -> tuple[Path, int]:
    base = physical // store.segment_size * store.segment_size
    return store.root / "commitlog" / f"{base:020d}", physical - base


# --- the tail -------------------------------------------------------------------------------------


def test_records_without_entries_are_found_in_the_log(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 60)
    for n in range(200):
        store.put("T" if n % 2 else "New", n % 3, b"tail %d" % n, entry=False)
    root = store.write()
    assert take_snapshot(root).state is State.CLEAN
    assert len(store.next_offsets) == 6
    assert offsets(root) == {key: list(range(end)) for key, end in store.next_offsets.items()}


@pytest.mark.parametrize("empty_queue", [False, True])
def test_a_log_without_consume_queues(tmp_path: Path, empty_queue: bool) -> None:
    store, _ = filled(tmp_path, 50, entry=False)
    if empty_queue:
        write(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", bytes(400))
    assert offsets(store.write()) == {("T", 0): list(range(50))}


def test_entries_that_a_crash_took_before_others(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for n in range(40):
        store.put(queue_id=0, entry=n < 10)
        store.put(queue_id=1)
    assert offsets(store.write(crashed=True)) == {
        ("T", 0): list(range(40)),
        ("T", 1): list(range(40)),
    }


def test_the_checkpoint_saves_reading_the_whole_log(tmp_path: Path) -> None:
    store, places = filled(tmp_path, 50)
    store.now += 60_000
    later = store.put(entry=False)
    root = store.write(crashed=True)
    # Were the walk to begin before the checkpoint's time, this would end it.
    path, at = segment_of(store, places[3])
    damage(path, at + 4)
    certain = NOW + 45 + 3000
    write(root / "checkpoint", struct.pack(">qq", certain, certain).ljust(4096, b"\0"))
    queue = take_snapshot(root).queues["T", 0]
    assert queue.tail.physical.tolist() == [later]
    assert queue.max_offset == 51


def test_transactions_that_are_not_committed_have_no_place_in_a_queue(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for sys_flag in (0, 0x4, 0x8, 0xC, 0xC0):
        offset = {0: 0, 0x8: 1}.get(sys_flag, 0)
        store.put(sys_flag=sys_flag, entry=False, queue_offset=offset)
    assert offsets(store.write()) == {("T", 0): [0, 1]}


def test_a_topic_that_began_anew(tmp_path: Path) -> None:
    """After a deletion the queue offsets start again; what is newer in the log counts."""
    store = MadeStore(tmp_path)
    old = [store.put(body=b"old %d" % n) for n in range(20)]
    new = [store.put(body=b"new %d" % n, entry=False, queue_offset=n) for n in range(5)]
    rows = rows_of(scan(store.write(crashed=True), ["queueOffset", "physicalOffset"]))
    assert [row["physicalOffset"] for row in rows] == new
    assert [row["queueOffset"] for row in rows] == list(range(5))
    assert old[0] < new[0]


@pytest.mark.parametrize("cut", [1, 3, 4, 8, 60, 90, 98])
@pytest.mark.parametrize("entry", [True, False])
@pytest.mark.parametrize("crashed", [True, False])
def test_a_torn_tail(tmp_path: Path, cut: int, entry: bool, crashed: bool) -> None:
    store, places = filled(tmp_path, 30, entry=entry)
    root = store.write(crashed=crashed, log_bytes=places[-1] + cut)
    assert offsets(root) == {("T", 0): list(range(29))}


def test_a_torn_record_in_a_file_of_full_size(tmp_path: Path) -> None:
    store, places = filled(tmp_path, 30, entry=False)
    store.log[places[-1] + 70 :] = bytes(len(store.log) - places[-1] - 70)
    assert offsets(store.write(crashed=True)) == {("T", 0): list(range(29))}


def test_a_tail_whose_body_is_not_its_own(tmp_path: Path) -> None:
    store, places = filled(tmp_path, 30, entry=False)
    store.log[places[20] + 90] ^= 1
    assert offsets(store.write(crashed=True)) == {("T", 0): list(range(20))}


def test_a_bad_place_before_records_that_the_queues_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, places = filled(tmp_path, 30)
    after = store.put(entry=False)
    store.log[places[10] + 4] ^= 0xFF
    root = store.write(crashed=True)
    snapshot = take_snapshot(root)
    assert snapshot.queues["T", 0].tail.physical.tolist() == [after]
    assert f"physical offset {places[10]}" in caplog.text
    with pytest.raises(StoreCorrupt, match="has its record 10 here"):
        list(scan(root))


def test_entries_of_an_earlier_life_behind_the_last(tmp_path: Path) -> None:
    store, places = filled(tmp_path, 10)
    size = places[1] - places[0]
    store.enter("T", 0, places[3], size)
    store.enter("T", 0, places[2], size)
    assert offsets(store.write()) == {("T", 0): list(range(10))}


def test_half_an_entry_at_the_end(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 10)
    root = store.write()
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: 20 * 9 + 7])
    assert offsets(root) == {("T", 0): list(range(10))}  # the tenth is found in the log


# --- open stores ----------------------------------------------------------------------------------


def test_what_has_no_entry_in_an_open_store_is_not_committed(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 10)
    store.put(entry=False)
    root = store.write()
    with held_open(root):
        assert take_snapshot(root).state is State.OPEN
        assert offsets(root) == {("T", 0): list(range(10))}


def emptied(store: MadeStore, offset: int) -> bytes:
    """Empty the entries from a queue offset on, as a recovery does; return what they were."""
    entries = store.entries["T", 0]
    whole = bytes(entries)
    entries[offset * 20 :] = bytes(len(whole) - offset * 20)
    store.write()
    return whole


@pytest.mark.parametrize("columns", [["queueOffset"], ["queueOffset", "body"]])
@pytest.mark.parametrize("strict", [True, False])
def test_entries_that_a_recovery_has_emptied_are_waited_for(
    tmp_path: Path, columns: list[str], strict: bool
) -> None:
    store, _ = filled(tmp_path, 30)
    store.write()
    with held_open(tmp_path):
        snapshot = take_snapshot(tmp_path)
        part = snapshot.queues["T", 0].slice()
        whole = emptied(store, 7)
        write(tmp_path / "abort", b"0")  # of the broker that was killed
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                store.entries["T", 0][:] = whole
                store.write()

        def reader() -> SliceReader:
            patience = Patience(lambda: sum(slept), sleep)
            return SliceReader(snapshot.files, columns, fail_on_data_loss=strict, patience=patience)

        found = reader()
        assert [row["queueOffset"] for row in rows_of(found.read(part))] == list(range(30))
        assert (len(slept), found.skipped) == (3, 0)
        emptied(store, 7)
        with pytest.raises(StoreRecovering, match="was killed, and has not recovered"):
            list(reader().read(part))
    # The broker was killed again while it recovered, and none has the store open.
    with pytest.raises(StoreRecovering, match="was killed, and has not recovered"):
        list(reader().read(part))


def test_entries_that_a_recovery_did_not_bring_back_are_lost(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 30)
    store.write()
    with held_open(tmp_path):
        files, part = local_files(tmp_path), take_snapshot(tmp_path).queues["T", 0].slice()
        emptied(store, 7)
        with pytest.raises(RecordsLost, match=r"T/0: the records 7 to 29 .* entries are empty"):
            list(SliceReader(files, ["body"]).read(part))
        lenient = SliceReader(files, ["body"], fail_on_data_loss=False)
        assert len(rows_of(lenient.read(part))) == 7
        assert lenient.skipped == 23
        shutil.rmtree(tmp_path / "consumequeue")
        lenient = SliceReader(files, ["body"], fail_on_data_loss=False)
        assert not rows_of(lenient.read(part))
        assert lenient.skipped == 30


@pytest.mark.skipif(sys.platform != "linux", reason="asks for locks as Linux has them")
def test_a_store_that_another_process_has_open(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 10)
    root = store.write(crashed=True)
    write(root / "lock", b"lock")
    assert take_snapshot(root).state is State.CRASHED
    holder = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(root / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:  # it has recovered
                write(root / "abort", str(process.pid).encode())

        patience = Patience(lambda: sum(slept), sleep)
        assert take_snapshot(root, patience=patience).state is State.OPEN
        assert len(slept) == 3
        write(root / "abort", b"0")
        with pytest.raises(StoreRecovering, match="has not recovered the ends of its queues"):
            take_snapshot(root, patience=Patience(lambda: sum(slept), slept.append))
        process.communicate()
    assert take_snapshot(root).state is State.CRASHED


# --- what is gone ---------------------------------------------------------------------------------


def test_expired_files_are_where_the_queues_begin(tmp_path: Path) -> None:
    store, places = filled(tmp_path, 300)
    root = store.write(entries_per_file=20)
    (root / "commitlog" / f"{0:020d}").unlink()
    first = next(n for n, place in enumerate(places) if place >= store.segment_size)
    assert offsets(root) == {("T", 0): list(range(first, 300))}
    # The consume queue's own files may have expired as well.
    for n in range(first // 20):
        (root / "consumequeue" / "T" / "0" / f"{400 * n:020d}").unlink()
    assert offsets(root) == {("T", 0): list(range(first, 300))}


def test_fillers_stand_for_no_record(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for _ in range(7):
        store.enter("T", 0, 0, 0x7FFFFFFF)
    store.next_offsets["T", 0] = 7
    store.put()
    store.put()
    for _ in range(3):
        store.enter("T", 0, 0, 0x7FFFFFFF)
    store.next_offsets["T", 0] = 12
    store.put()
    root = store.write(entries_per_file=5)
    assert offsets(root) == {("T", 0): [7, 8, 12]}
    assert take_snapshot(root).queues["T", 0].min_offset == 7


def test_files_that_expire_while_a_scan_is_under_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, places = filled(tmp_path, 300)
    root = store.write(entries_per_file=500)
    part = take_snapshot(root).queues["T", 0].slice()
    (root / "commitlog" / f"{0:020d}").unlink()
    lost = sum(place < store.segment_size for place in places)
    with pytest.raises(RecordsLost, match=f"T/0: the records 0 to {lost - 1} are gone"):
        list(SliceReader(local_files(root), ["body"]).read(part))
    reader = SliceReader(local_files(root), ["queueOffset"], fail_on_data_loss=False)
    found = [row["queueOffset"] for row in rows_of(reader.read(part))]
    assert found == list(range(lost, 300))
    assert reader.skipped == lost
    assert f"T/0: left out {lost} records" in caplog.text
    (root / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    with pytest.raises(RecordsLost, match="T/0: the records 0 to 299 are gone: no file in"):
        list(SliceReader(local_files(root), ["body"]).read(part))


@pytest.mark.parametrize("name", ["", "commitlog"])
def test_what_is_no_store(tmp_path: Path, name: str) -> None:
    path = tmp_path / "here" / name
    path.mkdir(parents=True)
    with pytest.raises(NoStore, match=re.escape(f"no store at {path}")):
        take_snapshot(path)


def test_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert offsets(tmp_path) == {}
    write(tmp_path / "commitlog" / f"{0:020d}", bytes(4096))
    write(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", bytes(400))
    write(tmp_path / "consumequeue" / "T" / "notes.txt", b"not a queue")
    assert offsets(tmp_path) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="counts descriptors")
def test_thousands_of_queues_do_not_need_as_many_descriptors(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    store = MadeStore(tmp_path, segment_size=4096)
    for n in range(600):
        store.put(f"T{n % 300}", n % 2, entry=n < 590)
    root = store.write(crashed=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some are in use by now, whatever for.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 200, hard))
    gc.disable()  # descriptors are let go of at once, not when garbage is collected
    try:
        found = offsets(root)
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sum(map(len, found.values())) == 600


# --- what is corrupt ------------------------------------------------------------------------------

# Where to change a byte of a record with an IPv4 host, topic "T" and a body of 8 bytes.
PLACES = {
    "size": (3, "do not add up|reaches out|are left"),
    "magic": (7, "magic"),
    "crc": (11, "CRC"),
    "queue id": (15, "the record of T/"),
    "queue offset": (27, "the record of T/0 offset"),
    "physical offset": (35, "the record of T/0"),
    "body length": (87, "do not add up|body of"),
    "body": (90, "CRC"),
    "topic length": (96, "topic of"),
    "properties length": (99, "do not add up"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_corrupt_record_is_named_or_left_out(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, places = filled(tmp_path, 300, properties={"TAGS": "TagA"})
    root = store.write()
    path, at = segment_of(store, places[250])
    distance, reason = PLACES[place]
    damage(path, at + distance)
    with pytest.raises(
        StoreCorrupt, match=f"at byte {at}: T/0 has its record 250 .*({reason})"
    ) as (caught):
        list(scan(root))
    assert (caught.value.path, caught.value.offset) == (path, at)
    part = take_snapshot(root).queues["T", 0].slice()
    reader = SliceReader(local_files(root), ["queueOffset", "body"], fail_on_data_loss=False)
    found = [row["queueOffset"] for row in rows_of(reader.read(part))]
    assert found == [n for n in range(300) if n != 250]
    assert reader.skipped == 1
    assert f"left out 1 records; the first: {path} at byte {at}" in caplog.text


def test_bodies_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    store, places = filled(tmp_path, 10)
    root = store.write()
    path, at = segment_of(store, places[5])
    damage(path, at + 90)
    assert len(rows_of(scan(root, ["queueOffset", "tags"]))) == 10


@pytest.mark.parametrize(
    ("physical", "size"), [(2**40, 110), (-5, 110), (0, 40), (0, 2**30), (16_384, 110)]
)
def test_entries_that_point_anywhere(tmp_path: Path, physical: int, size: int) -> None:
    store, places = filled(tmp_path, 30)
    entries = store.entries["T", 0]
    struct.pack_into(">qi", entries, 20 * 7, physical, size)
    root = store.write()
    with pytest.raises(StoreCorrupt, match=r"outside the commit log|has its record 7 here"):
        list(scan(root))
    part = take_snapshot(root).queues["T", 0].slice()
    reader = SliceReader(local_files(root), ["queueOffset"], fail_on_data_loss=False)
    found = [row["queueOffset"] for row in rows_of(reader.read(part))]
    assert found == [n for n in range(30) if n != 7]
    assert places[-1] < store.segment_size


@pytest.mark.parametrize("columns", [["queueOffset"], ["body"]])
def test_a_missing_file_of_the_log_is_named(tmp_path: Path, columns: list[str]) -> None:
    store, places = filled(tmp_path, 500)
    root = store.write()
    gone = [at for at, place in enumerate(places) if 16_384 <= place < 2 * 16_384]
    (root / "commitlog" / f"{16_384:020d}").unlink()
    lost = rf"T/0: the records {gone[0]} to \d+ are gone: no file in {root}/commitlog has the"
    part = take_snapshot(root).queues["T", 0].slice()
    with pytest.raises(RecordsLost, match=f"{lost} physical offset {places[gone[0]]}"):
        list(SliceReader(local_files(root), columns).read(part))
    lenient = SliceReader(local_files(root), columns, fail_on_data_loss=False)
    assert len(rows_of(lenient.read(part))) == 500 - len(gone)
    assert lenient.skipped == len(gone)


def test_bodies_that_inflate_to_very_much(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    bodies = [bytes([n]) * (300_000 if n else 3_000_000) for n in range(12)]
    for body in bodies:
        store.put(body=compress(body, CompressionType.ZLIB), sys_flag=0x301)
    root = store.write()
    reader = SliceReader(local_files(root), ["body"], most_inflated=1_000_000)
    batches = list(reader.read(take_snapshot(root).queues["T", 0].slice()))
    assert [row["body"] for row in rows_of(batches)] == bodies
    assert max(batch.nbytes for batch in batches[1:]) < 1_100_000


def test_a_body_that_does_not_decompress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = MadeStore(tmp_path)
    store.put(body=compress(b"fine" * 100, CompressionType.ZSTD), sys_flag=0x201)
    store.put(body=b"this is no zstd", sys_flag=0x201)
    store.put(body=b"plain")
    root = store.write()
    with pytest.raises(StoreCorrupt, match=r"T/0 has its record 1 here .*ZSTD"):
        list(scan(root))
    part = take_snapshot(root).queues["T", 0].slice()
    reader = SliceReader(local_files(root), ["body"], fail_on_data_loss=False)
    assert [row["body"] for row in rows_of(reader.read(part))] == [b"fine" * 100, b"plain"]
    assert "left out 1 records" in caplog.text


places = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255))


@given(
    changes=st.lists(st.tuples(st.booleans(), places), max_size=8),
    cut=st.none() | st.floats(0, 1),
    crashed=st.booleans(),
)
@example(changes=[(True, (0.951171875, 1))], cut=None, crashed=False)
def test_any_damage_is_an_error_or_left_out(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[bool, tuple[float, int]]],
    cut: float | None,
    crashed: bool,
) -> None:
    """Neither wrong entries nor wrong records make a scan read where nothing is."""
    store = MadeStore(tmp_path_factory.mktemp("damaged"), segment_size=2048)
    for n in range(40):
        body = b"body %d " % n * (n % 5)
        packed = compress(body, CompressionType.ZLIB) if n % 7 == 0 else body
        store.put(
            queue_id=n % 2,
            body=packed,
            properties={"TAGS": "TagA", "KEYS": "k1 k2"},
            entry=n < 35,
            sys_flag=0x301 if n % 7 == 0 else 0,
        )
    for in_log, (place, byte) in changes:
        data = store.log if in_log else store.entries["T", 0]
        data[int(place * len(data))] = byte
    log_bytes = None if cut is None else int(cut * len(store.log))
    root = store.write(crashed=crashed, log_bytes=log_bytes)
    try:
        rows_of(scan(root))
    except StoreError:
        assert changes
    snapshot = take_snapshot(root)
    reader = SliceReader(
        local_files(root), ["queueOffset", "body", "properties"], fail_on_data_loss=False
    )
    for queue in snapshot.queues.values():
        part = queue.slice()
        found = [row["queueOffset"] for row in rows_of(reader.read(part))]
        assert len(found) <= max(len(part), 0)
    assert reader.skipped <= 40


@pytest.mark.parametrize("seed", range(5))
def test_a_log_alone_tells_what_the_queues_did(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    made = MadeStore(tmp_path, segment_size=65_536)
    for _ in range(1_000):
        body = b"x" * chosen.randrange(1, 90)
        match chosen.randrange(9):
            case 0:  # in no queue
                made.put("P", 0, body, entry=False, sys_flag=TRANSACTION_PREPARED)
            case 1:
                host = pack_host("2001:db8::1", 40001)
                made.put("V6", 0, body, sys_flag=BORN_HOST_V6, born_host=host)
            case _:
                made.put("TUV"[chosen.randrange(3)], chosen.randrange(3), body)
    root = made.write()
    known = {
        name: [queue.entry(offset) for offset in range(queue.max_offset)]
        for name, queue in take_snapshot(root).queues.items()
    }
    shutil.rmtree(root / "consumequeue")
    alone = take_snapshot(root)
    assert alone.queues.keys() == known.keys()
    for name, entries in known.items():
        tail = alone.queues[name].tail
        assert tail.offset.tolist() == list(range(len(entries)))
        assert list(zip(tail.physical.tolist(), tail.size.tolist(), strict=True)) == entries
        places = [alone.place(physical) for physical in tail.physical.tolist()]
        times = [place.store_timestamp for place in places if place is not None]
        assert tail.store_timestamp.tolist() == times


def test_a_record_that_says_it_comes_much_later_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Recovery leaves it out, too: the log has no room for the messages before it."""
    store, _ = filled(tmp_path, 20)
    for n in range(20, 40):
        store.put(entry=False, queue_offset=n + 2**24 if n in {25, 39} else n)
    assert offsets(store.write()) == {("T", 0): [*range(25), *range(26, 39)]}
    assert "T/0: left out 2 damaged records of the commit log; the first: " in caplog.text
    assert "message 16777241, but the queue ends at 25" in caplog.text
    assert "T/0: left out 1 records; the first: T/0: the records " in caplog.text


def test_a_record_that_says_it_came_much_earlier_hides_no_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Recovery lets it win, as if the queue began anew."""
    store, _ = filled(tmp_path, 20)
    store.put(entry=False, queue_offset=4)
    assert offsets(store.write()) == {("T", 0): [*range(5)]}
    assert "T/0: left out the messages 4 to 19, since the record at physical" in caplog.text


@pytest.mark.parametrize("entry", [True, False])
def test_offsets_without_a_message_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: bool
) -> None:
    """As a repair leaves them, and a crash after it, which takes entries away. They are no error,
    since the repair has told of them."""
    store, _ = filled(tmp_path, 20)
    for _ in range(3):
        if entry:
            store.enter("T", 0, 0, FILLER_SIZE)
        store.next_offsets["T", 0] += 1
        store.put("lost", entry=False, sys_flag=TRANSACTION_ROLLBACK)
    for n in range(20):
        store.put(body=b"more %d" % n, entry=entry)
    root = store.write()
    assert offsets(root) == {("T", 0): [*range(20), *range(23, 43)]}
    assert "T/0: left out 3 records; the first: T/0: the records 20 to " in caplog.text
