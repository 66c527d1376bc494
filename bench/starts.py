"""`python -m bench.starts`: how long our broker takes from its start until it listens.

For stores of several sizes: with files of 1 GiB that are whole but sparse (a message and a blank
each), with many queues, after a clean stop, and after a SIGKILL with messages behind the
checkpoint. Prints the median of several starts, in seconds, what the broker has open then, and what
the queues take up on the disk.

With `--load SECONDS` instead: starts after three SIGKILLs in a row, the first one so long into a
run of small messages at the full rate, with timers and transactions in flight. With `--power-cut`
as well: opening these stores as after a power cut that took the entries of all messages from the
queues, or none of them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pocketmq
from pocketmq.client.admin.admin import Admin
from pocketmq.message import record_layout as layout
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.checksum import body_crc
from pocketmq.message.identity import pack_host
from pocketmq.store.config import StoreConfig
from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.message_store import MessageStore
from tests.interop.harness import ours
from tests.interop.harness.official import Server

from .bytecode import compile_package
from .contenders import SEGMENT
from .generator import LoadGenerator
from .processes import cpu_seconds, resident_megabytes
from .work_directory import work_directory

HOST: Final = pack_host("127.0.0.1", 10911)
ENTRY: Final = struct.Struct(">qiq")
BODY: Final = b"." * 1024
RECENT: Final = 100_000
"""Messages in the last file of the log that are flushed, ..."""
PER_TOPIC: Final = 8
TIMED: Final = 10_000


class Case(NamedTuple):
    """A store to start from."""

    gigabytes: int  # files of the commit log
    queues: int


LOADED: Final = (8, 10_000)
"""Queues of the stores that are killed under load."""
SMALL: Final = 20
"""Bytes of a body, of records of about 170."""
ENDLESS: Final = 1_000_000_000

CASES: Final = (Case(1, 8), Case(10, 8), Case(200, 8), Case(10, 10_000))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=3, help="starts of each kind (3)")
    parser.add_argument(
        "--tail", type=int, default=20_000, help="messages before each SIGKILL (20000)"
    )
    parser.add_argument(
        "--case", type=int, nargs=2, metavar=("GB", "QUEUES"), help="only a store of this size"
    )
    parser.add_argument(
        "--load", type=float, metavar="SECONDS", help="SIGKILL so long into a run at the full rate"
    )
    parser.add_argument(
        "--power-cut", action="store_true", help="with --load: open the store as after a power cut"
    )
    parser.add_argument("--keep", type=Path, help="keep stores and logs here, in a new directory")
    options = parser.parse_args()
    compile_package()
    cases = CASES if options.case is None else (Case(*options.case),)
    with work_directory("pocketmq-starts-", options.keep) as directory:
        namesrv = ours.start_name_server(directory)
        if options.load is not None:
            generator = LoadGenerator.build(directory)
            print(f"{'queues':>7} {'MB':>8}  seconds (of CPU time) of starts after three SIGKILLs")
            for queues in LOADED:
                line = killed_under_load(directory, namesrv, generator, queues, options.load)
                print(line, flush=True)
                if options.power_cut:
                    print(power_cut(directory / f"loaded-{queues}"), flush=True)
            return
        print(f"{'GB':>5} {'queues':>7} {'clean':>7} {'killed':>7}  behind the checkpoint", end="")
        print(f" {'MB':>7} {'fds':>6} {'maps':>6} {'KiB a queue':>12}")
        for case in cases:
            home = directory / f"{case.gigabytes}-{case.queues}"
            store = home / "broker-ours" / "store"
            make_store(store, case)
            print(measured(home, namesrv, store, case, options.starts, options.tail), flush=True)


def measured(home: Path, namesrv: Server, store: Path, case: Case, starts: int, tail: int) -> str:
    """Return the line of one store."""

    def seconds() -> tuple[float, Server]:
        settings = {"mappedFileSizeCommitLog": SEGMENT}
        server = ours.start_broker(home, namesrv.address, store=store, settings=settings)
        return server.process.waited, server

    with stopped(seconds()[1]):
        pass  # the tables of topics are written
    clean, killed = [], []
    for _ in range(starts):
        took, server = seconds()
        clean.append(took)
        with stopped(server):
            figures = (
                f"{resident_megabytes(server.process.pid):7.1f} "
                f"{len(list(Path(f'/proc/{server.process.pid}/fd').iterdir())):6} "
                f"{Path(f'/proc/{server.process.pid}/maps').read_text().count(chr(10)):6}"
            )
    for _ in range(starts):
        _, server = seconds()
        asyncio.run(send(server.address, namesrv.address, tail, case.queues))
        server.process.kill()
        took, server = seconds()
        killed.append(took)
        with stopped(server):
            pass
    queue_files = list((store / "consumequeue").glob("T*/*/*"))
    blocks = sum(path.stat().st_blocks * 512 for path in queue_files) / max(1, len(queue_files))
    return (
        f"{case.gigabytes:5} {case.queues:7} {statistics.median(clean):7.2f} "
        f"{statistics.median(killed):7.2f}  {tail:13} messages {figures} {blocks / 1024:12.0f}"
    )


def killed_under_load(
    directory: Path, namesrv: Server, generator: LoadGenerator, queues: int, seconds: float
) -> str:
    """Return the line of one store."""
    home = directory / f"loaded-{queues}"
    store = home / "broker-ours" / "store"

    def start() -> Server:
        settings = {"mappedFileSizeCommitLog": SEGMENT}
        return ours.start_broker(home, namesrv.address, store=store, settings=settings)

    server = start()
    topics = ("-topics", str(max(1, queues // PER_TOPIC)), "-queues", str(PER_TOPIC))
    runs = (
        ("send", "-topic", "loaded", "-size", str(SMALL), "-inflight", "256", *topics),
        ("transact", "-topic", "half", "-conns", "1", "-inflight", "4", "-size", str(SMALL)),
    )
    asyncio.run(send_timed(namesrv.address))
    # All that is sent within the run, and a kill that ends the generators as well.
    loads = [
        subprocess.Popen(
            [generator.program, mode, "-addr", server.address, "-n", str(ENDLESS), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for mode, *options in runs
    ]  # fmt: skip
    time.sleep(seconds)
    server.process.kill()
    for load in loads:
        load.kill()
        load.wait()
    starts = []
    for _ in range(3):
        server = start()
        starts.append(f"{server.process.waited:6.2f} ({cpu_seconds(server.process.pid):4.2f})")
        server.process.kill()
    server = start()
    with stopped(server):
        stored = asyncio.run(log_end(namesrv.address)) / 1e6
    return f"{queues:7} {stored:8.0f}  " + " ".join(starts)


def power_cut(home: Path) -> str:
    """Return the line of opening one store after a power cut: nothing to enter, and everything."""
    root = home / "broker-ours" / "store"
    figures = []
    for lost in (False, True):
        # A process that does not close the store.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures.append(pool.apply(opened_after_power_cut, (root, lost)))
    (_, opening, _), (records, cpu, seconds) = figures
    return (
        f"        after a power cut: {opening:.2f} s of CPU time with nothing to enter; "
        f"{cpu:.2f} s ({seconds:.2f} s on the clock) with {records} records: "
        f"{records / (cpu - opening) / 1e6:.2f} million a second, "
        f"{records / cpu / 1e6:.2f} with the opening"
    )


def opened_after_power_cut(root: Path, lost: bool) -> tuple[int, float, float]:
    """Open a store whose whole log is on the disk, and all entries, or with `lost` none that
    counts. Return its messages, and seconds of CPU time and on the clock."""
    checkpoint = Checkpoint(OtherBoot(), root / "checkpoint")
    checkpoint.open()
    checkpoint.last_write = 0 if lost else checkpoint.confirm_physical_offset
    checkpoint.entered_offset = 1 if lost else checkpoint.confirm_physical_offset
    checkpoint.clear_mark()
    checkpoint.sync()
    checkpoint.close()
    (root / "abort").touch()
    config = StoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=SEGMENT)
    store = MessageStore(config, store_host=HOST)
    # As in a broker (`remoting.service`).
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    began, began_cpu = time.perf_counter(), time.process_time()
    store.open()
    cpu, seconds = time.process_time() - began_cpu, time.perf_counter() - began
    messages = sum(
        queue.max_offset for queues in store.queues.values() for queue in queues.values()
    )
    return messages, cpu, seconds


class OtherBoot(Files):
    """The machine before it was started again."""

    def boot_id(self) -> bytes:
        return b"\1" * 16


async def log_end(namesrv: str) -> int:
    """Return how many bytes the broker has stored."""
    async with Admin(namesrv=namesrv) as admin:
        return int((await admin.broker_runtime("ours"))["commitLogMaxOffset"])


async def send_timed(namesrv: str) -> None:
    """Send messages that are due in an hour."""
    async with pocketmq.Producer("starts", namesrv=namesrv) as producer:
        for _ in range(TIMED // 100):
            messages = [pocketmq.Message("timed", BODY, delay=3600.0) for _ in range(100)]
            await asyncio.gather(*map(producer.send, messages))


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop a broker at the end."""
    yield
    server.process.terminate()


async def send(broker: str, namesrv: str, count: int, queues: int) -> None:
    """Send messages over all queues."""
    async with pocketmq.Producer("starts", namesrv=namesrv) as producer:
        topics = max(1, queues // PER_TOPIC)
        for begin in range(0, count, 100):
            topic = f"T{begin // 100 % topics}"
            await producer.send_batch([pocketmq.Message(topic, BODY) for _ in range(100)])


def make_store(root: Path, case: Case) -> None:
    """Write a store that was stopped cleanly."""
    entries = bytearray()
    for number in range(case.gigabytes - 1):
        entries += write_sparse(root / "commitlog", number)
    if entries:
        path = root / "consumequeue" / "old" / "0" / f"{0:020d}"
        path.parent.mkdir(parents=True)
        path.write_bytes(entries)
        with path.open("r+b") as file:
            file.truncate(StoreConfig().consume_queue_file_size)
    asyncio.run(fill(root, case.queues))


def write_sparse(directory: Path, number: int) -> bytes:
    """Write a file of the log with one message and a blank; return the message's entry."""
    directory.mkdir(parents=True, exist_ok=True)
    topic, base = b"old", number * SEGMENT
    size = layout.record_size(len(BODY), len(topic), 0, 0, 1)
    content = bytearray(size + 8)
    now = 1_700_000_000_000 + number
    layout.encode_into(
        content, 0, size=size, magic=layout.MAGIC_V1, body_crc=body_crc(BODY), queue_id=0, flag=0,
        queue_offset=number, physical_offset=base, sys_flag=0, born_timestamp=now, born_host=HOST,
        store_timestamp=now, store_host=HOST, reconsume_times=0, prepared_transaction_offset=0,
        body=BODY, topic=topic, properties=b"",
    )  # fmt: skip
    content[size:] = struct.pack(">iI", SEGMENT - size, layout.BLANK_MAGIC)
    path = directory / f"{base:020d}"
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(SEGMENT)
    return ENTRY.pack(base, size, 0)


async def fill(root: Path, queues: int) -> None:
    """Put a message into each queue, and as many as there shall be in the last file."""
    store = MessageStore(StoreConfig(store_path_root_dir=str(root)), store_host=HOST)
    store.open()
    store.start()
    batch = encode_batch([(0, BODY, b"")] * 100)
    for number in range(RECENT // 100):
        store.put_batch("recent", 0, batch, "", born_timestamp=1, born_host=HOST)
        if number % 100 == 0:
            await asyncio.sleep(0)
    for number in range(queues):
        result = store.put(
            f"T{number // PER_TOPIC}", number % PER_TOPIC, BODY, "", born_timestamp=1,
            born_host=HOST, tags_code=0,
        )  # fmt: skip
        assert result.ok, result.remark
        if number % 100 == 0:
            await asyncio.sleep(0)
    await store.close()


if __name__ == "__main__":
    main()
