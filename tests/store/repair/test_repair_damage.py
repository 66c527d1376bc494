"""Repairs of stores that were damaged at random: what was not hit is served, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import StoreError
from pocketmq.store.repair.store_repair import repair_store
from tests.store.check.test_store_check import FILE, filled
from tests.store.repair.test_store_repair import TOPICS

Hits = list[tuple[int, int]]


def overwrite(path: Path, dice: random.Random, content: bytes) -> tuple[int, int]:
    """Put `content` somewhere into a file; return the range as offsets of its run."""
    old = bytearray(path.read_bytes())
    at = dice.randrange(len(old))
    content = content[: len(old) - at]
    old[at : at + len(content)] = content
    path.write_bytes(old)
    return int(path.name) + at, int(path.name) + at + len(content)


def damage_log(path: Path, dice: random.Random) -> tuple[int, int]:
    """Damage a file of the log; return which physical offsets that hit."""
    base, size = int(path.name), path.stat().st_size if path.exists() else 0
    kind = dice.choice(["flip", "junk", "zeros", "cut", "remove", "empty"])
    if not size:
        return base, base + FILE
    if kind == "flip":
        return overwrite(path, dice, bytes([dice.randrange(256)]))
    if kind == "junk":
        return overwrite(path, dice, dice.randbytes(dice.randint(1, 3_000)))
    if kind == "zeros":
        return overwrite(path, dice, bytes(dice.randint(1, 9_000)))
    kept = dice.randrange(size) if kind == "cut" else 0
    path.write_bytes(path.read_bytes()[:kept])
    if kind == "remove":
        path.unlink()
    return base + kept, base + FILE


def damage_queue(root: Path, dice: random.Random) -> None:
    path = dice.choice(sorted((root / "consumequeue").glob("*/*/*")))
    if dice.random() < 0.3:
        path.unlink()
    else:
        length = dice.randint(1, 100)
        overwrite(path, dice, dice.choice([dice.randbytes(length), bytes(length)]))


@pytest.mark.parametrize("seed", range(25))
async def test_what_was_not_hit_is_served(bench: Any, seed: int) -> None:
    dice = random.Random(seed)
    await filled(bench)
    store = bench.open()
    good = {
        (*key, record.queue_offset): (bytes(record.body), record.physical_offset, record.size)
        for key in TOPICS
        for record in bench.read_all(store, *key)
    }
    await store.close()
    if dice.random() < 0.5:
        (bench.root / "abort").write_text("1")
    segments = sorted((bench.root / "commitlog").iterdir())
    hits: Hits = []
    for _ in range(dice.randint(1, 4)):
        kind = dice.choice(["log", "log", "log", "queue", "checkpoint", "start"])
        if kind == "log":
            hits.append(damage_log(dice.choice(segments), dice))
        elif kind == "queue":
            damage_queue(bench.root, dice)
        elif kind == "checkpoint":
            (bench.root / "checkpoint").write_bytes(b"short")
        else:
            try:
                await bench.open().close()
            except StoreError:
                bench.opened.pop()
    repair_store(bench.config())
    report = check_store(bench.config())
    assert (report.problems, report.starts) == ([], True)
    store = bench.open()
    found = {
        (*key, record.queue_offset): (bytes(record.body), record.physical_offset, record.size)
        for key in TOPICS
        for record in bench.read_all(store, *key)
    }
    assert {key: place[0] for key, place in found.items()}.items() <= {
        key: place[0] for key, place in good.items()
    }.items()
    for key, (body, begin, size) in good.items():
        if not any(low < begin + size and begin < high for low, high in hits):
            assert found[key] == (body, begin, size)
