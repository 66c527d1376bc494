"""What replication costs, for pairs of this broker and of the official one.

Two figures for each pair, master and slave on the same processors:

- `follow`: how fast an empty slave copies a log that is in the master's page cache, in MB/s, and
  until it has entered all of it into its queues;
- `cost`: how many single messages a second an ASYNC_MASTER takes with a slave beside it, as a share
  of what it takes without one. The two are measured in turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.filled_store import write_store
from bench.generator import LoadGenerator
from bench.work_directory import work_directory
from tests.interop.harness import ours
from tests.interop.harness.official import Server, Unavailable
from tests.interop.harness.replicas import (
    Group,
    log_end,
    runtime_info,
    wait_connected,
    wait_copied,
)

SEGMENT = 1 << 30
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 6_000_000,
}
LOAD = ("send", "-conns", "4", "-inflight", "64")


def main() -> int:
    options = arguments()
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-replication-"))
        try:
            generator = LoadGenerator.build(directory)
        except Unavailable as missing:
            print(missing)
            return 1
        filled = directory / "filled"
        write_store(filled, int(options.gib * 2**30), options.body)
        print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
        for pair in options.pairs:
            master, slave = pair.split("-")
            copied, entered = follow(directory / pair, filled, master, slave)
            print(f"{pair}: copied at {copied:.0f} MB/s, entered at {entered:.0f} MB/s")
            alone, beside = cost(directory / f"{pair}-cost", generator, master, slave, options)
            print(
                f"{pair}: {alone:.0f} messages/s alone, {beside:.0f} with a slave: "
                f"{beside / alone:.2f}",
                flush=True,
            )
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__)
    parser.add_argument("--pairs", nargs="+", default=["ours-ours", "official-official"])
    parser.add_argument("--gib", type=float, default=0.9, help="size of the copied log (0.9)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (1024)")
    parser.add_argument("--messages", type=int, default=100_000, help="of a run of sends (100000)")
    parser.add_argument("--rounds", type=int, default=3, help="runs without and with a slave (3)")
    return parser.parse_args()


def group_of(directory: Path) -> Group:
    directory.mkdir()
    return Group(directory, ours.start_name_server(directory))


def follow(directory: Path, filled: Path, master: str, slave: str) -> tuple[float, float]:
    """Return MB/s of log until a slave has it, and until it has entered it."""
    group = group_of(directory)
    store = directory / "0" / f"{'broker' if master == 'ours' else 'official-broker'}-group/store"
    shutil.copytree(filled, store)
    group.start(master, 0, **SETTINGS)
    group.start(slave, 1, **SETTINGS)
    end = log_end(group.master)
    began = copied = 0.0
    while not copied:
        have = copied_by(group.slave)
        now = time.monotonic()
        began = began or (now if have else 0.0)
        copied = now if have >= end else 0.0
        time.sleep(0.01)
    while behind(group.slave) > 0:
        time.sleep(0.01)
    entered = time.monotonic()
    group.kill_all()
    group.namesrv.process.kill()
    return end / 1e6 / (copied - began), end / 1e6 / (entered - began)


def copied_by(slave: Server) -> int:
    """Return where a slave's log ends; 0 while an official one starts, which answers nothing."""
    try:
        return log_end(slave)
    except ValueError:
        return 0


def behind(slave: Server) -> int:
    """Return how many bytes of its log a slave has not entered into its queues."""
    figures = runtime_info(slave)
    # The other figure counts the index, too, for which this broker takes its time.
    return int(figures.get("haReceivedUnchecked", figures["dispatchBehindBytes"]))


def cost(
    directory: Path,
    generator: LoadGenerator,
    master: str,
    slave: str,
    options: argparse.Namespace,
) -> tuple[float, float]:
    """Return the middle rates of sends without and with a slave."""
    group = group_of(directory)
    group.start(master, 0, **SETTINGS)
    group.start(slave, 1, **SETTINGS)
    rates: dict[bool, list[float]] = {False: [], True: []}
    count = str(options.messages)
    wait_connected(group)
    generator.run(group.master.address, "warm", *LOAD, "-n", count)
    for _ in range(options.rounds):
        for with_slave in (True, False):
            if with_slave != group.slave.process.running:
                if with_slave:
                    group.restart(1)
                else:
                    group.slave.process.terminate()
            if with_slave:
                wait_connected(group)
                wait_copied(group, timeout=300)
            run = generator.run(group.master.address, "bench", *LOAD, "-n", count)
            rates[with_slave].append(float(run["per_second"]))
    group.kill_all()
    group.namesrv.process.kill()
    return statistics.median(rates[False]), statistics.median(rates[True])


if __name__ == "__main__":
    raise SystemExit(main())
