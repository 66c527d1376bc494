"""Measure how fast `pocketmq store check` reads a commit log that is in the page cache.

Each round checks the whole store. `log` is the part that reads the commit log with its checksums;
the rest compares the queues and the index with it, and runs recovery.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from bench.filled_store import write_store
from bench.work_directory import work_directory
from pocketmq.store.check.log_check import LogCheck
from pocketmq.store.check.store_check import check_store, sized
from pocketmq.store.config import StoreConfig


def main() -> int:
    options = arguments()
    with ExitStack() as cleanup:
        root = options.store
        if root is None:
            root = cleanup.enter_context(work_directory("pocketmq-check-"))
        if not (root / "commitlog").is_dir():
            print(f"writing {options.gib:g} GiB of messages of {options.body} bytes to {root}")
            write_store(root, int(options.gib * 2**30), options.body)
        config = sized(StoreConfig(store_path_root_dir=str(root)))
        check_store(config)  # so that the files are in the page cache
        print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
        for name, measured in (("whole check", check), ("log", check_log)):
            rates = [measured(config) for _ in range(options.rounds)]
            print(
                f"{name:<12} best {max(rates):.2f}, median {statistics.median(rates):.2f}, "
                f"least {min(rates):.2f} GB/s of log"
            )
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the log (2)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (1024)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (7)")
    parser.add_argument("--store", type=Path, help="keep the store here, or use the one there")
    return parser.parse_args()


def check(config: StoreConfig) -> float:
    """Check the whole store; return GB of log per second."""
    began = time.perf_counter()
    report = check_store(config)
    seconds = time.perf_counter() - began
    log = report.parts[0]
    assert log.begin is not None
    assert log.end is not None
    return (log.end - log.begin) / seconds / 1e9


def check_log(config: StoreConfig) -> float:
    """Check the log alone; return GB of log per second."""
    began = time.perf_counter()
    log = LogCheck(
        config.commit_log_directory, config.mapped_file_size_commit_log, flushed=None, open=False
    )
    log.run(lambda base, records, codes: None)
    return (log.end - log.begin) / (time.perf_counter() - began) / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
