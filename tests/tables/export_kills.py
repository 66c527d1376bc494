"""Kills `pocketmq export --to` again and again while messages are stored, and counts.

    python -m tests.tables.export_kills --kills 50 --format delta

Each export is killed (SIGKILL) at any moment of its work, and the next one goes on. At the end
each message has to be in the table once.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.spark.stream_store import GrowingStore
from tests.tables.rows_in import dead_letters_in, rows_in

PROJECT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """How many messages there are, and whether each was stored and exported once."""

    stored: int
    rows: int
    distinct: int
    kills: int


def run(directory: Path, kills: int, format: str, seed: int = 1) -> Outcome:
    """Start exports until so many were killed before they ended, then let one finish."""
    chance = random.Random(seed)
    store = GrowingStore(directory / "store", segment_size=1 << 24)
    schema = directory / "bodies.schema"
    schema.write_text("id bigint")
    arguments = [
        "export", "--to", str(directory / "table"), "--store", str(store.root),
        "--format", format, "--file-size", "0.02", "--decode", "json", "--schema", str(schema),
    ]  # fmt: skip
    killed = stored = 0
    while killed < kills:
        for number in range(4000):
            body = b"broken" if number % 1000 == 0 else b'{"id":%d}' % number
            store.put("T", number % 2, body)
        stored += 4000
        store.write()
        with subprocess.Popen(
            [sys.executable, "-m", "pocketmq", *arguments],
            cwd=PROJECT, stderr=subprocess.DEVNULL, text=True,
        ) as export:  # fmt: skip
            await_file(export, directory / "table" / "_pocketmq" / "staged")
            time.sleep(chance.random() * 0.3)
            export.kill()
        killed += export.returncode != 0
    subprocess.run([sys.executable, "-m", "pocketmq", *arguments], cwd=PROJECT, check=True)
    rows = rows_in(directory / "table", format) + dead_letters_in(directory / "table")
    distinct = {(row["queueId"], row["queueOffset"]) for row in rows}
    return Outcome(stored, len(rows), len(distinct), killed)


def await_file(export: subprocess.Popen[str], staged: Path) -> None:
    """Wait until an export has begun to write a file, or has ended."""
    left = set(staged.glob("*"))  # of the one before
    while export.poll() is None and not set(staged.glob("*")) - left:
        time.sleep(0.001)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tables.export_kills", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pocketmq-kills-") as directory:
        outcome = run(Path(directory), options.kills, options.format, options.seed)
    print(outcome)
    return 0 if outcome.stored == outcome.rows == outcome.distinct else 1


if __name__ == "__main__":
    sys.exit(main())
