"""Measure the read of an archive, against plain ranged reads of the same objects plus parsing.

The objects lie in a directory, or under a URL of your own. Both sides take turns: the plain one
reads all objects of the log by ranges, then scans the store that they came from. The speed of a
sync is measured beside a plain copy. The target is 0.8.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from bench.filled_store import write_store
from bench.work_directory import work_directory
from pocketmq.archive.archives import brokers_under
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import read_manifest
from pocketmq.archive.sparse_log import REQUEST, REQUESTS
from pocketmq.archive.sync import broker_folder, sync
from pocketmq.store.scan.direct_scan import scan
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.columns import COLUMNS

TARGET = 0.8


def main() -> int:
    options = arguments()
    with work_directory("pocketmq-archive-") as work:
        root = work / "store"
        write_store(root, int(options.gib * 2**30), options.body)
        location = Location(options.url or f"file://{work}/archive")
        copied = timed(lambda: shutil.copytree(root, work / "copy"))
        shutil.rmtree(work / "copy")
        synced = timed(lambda: upload(root, location))
        print(f"sync {synced:.2f} s, plain copy {copied:.2f} s: {copied / synced:.2f} of its speed")
        ours, plain = [], []
        for _ in range(options.rounds):
            ours.append(timed(lambda: read_archive(location)))
            plain.append(timed(lambda: read_plainly(location, root)))
        ratio = median(plain) / median(ours)
        print(f"archive {median(ours):.2f} s, plain ranges plus parsing {median(plain):.2f} s")
        print(f"ratio {ratio:.2f}, target {TARGET}")
        return 0 if ratio >= TARGET else 1


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def upload(root: Path, location: Location) -> None:
    sync(root, location.open(), everything=True, clock=lambda: time.time_ns() // 1_000_000)


def read_archive(location: Location) -> int:
    rows = 0
    for broker in brokers_under(location):
        store = broker.look()
        for slices in plan(store, ScanRequest(), PartitionLimits()):
            reader = SliceReader(store.files.needed_for(slices), list(COLUMNS))
            rows += sum(batch.num_rows for part in slices for batch in reader.read(part))
    return rows


def read_plainly(location: Location, root: Path) -> int:
    objects = broker_folder(location.open(), root)
    manifest = read_manifest(objects)
    assert manifest is not None, "it was uploaded"
    with ThreadPoolExecutor(REQUESTS) as pool:
        for part in manifest.parts:
            with objects.opened(part.log.name) as file:
                starts = range(0, part.log.size, REQUEST)
                read = pool.map(lambda at, file=file: len(file.read_at(REQUEST, at)), starts)
                assert sum(read) == part.log.size
    return sum(batch.num_rows for batch in scan(root))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=0.25, help="size of the store")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="where to upload to (default: a directory)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
