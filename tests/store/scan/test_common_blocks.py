"""Short queues that are read together give what each of them gives alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.tags import tag_hash
from pocketmq.store.errors import StoreError
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.columns import COLUMNS
from pocketmq.store.scan.records.topic_table import local_files
from tests.store.made_store import NOW, MadeStore, damage, rows_of

SELECTIONS = (
    Selection(),
    Selection(queue_offset=Range(1, 4)),
    Selection(store_timestamp=Range(NOW + 20, NOW + 90)),
    Selection(born_timestamp=Range(NOW + 20, NOW + 90)),
    Selection(tag_codes=frozenset([tag_hash("even")])),
)
PROJECTIONS = (
    tuple(COLUMNS),
    ("queueOffset", "physicalOffset"),
    ("topic", "queueId", "tags"),
    ("body", "properties"),
)


def store_of(root: Path, chance: random.Random) -> None:
    """Short queues of some topics, and a longer one; perhaps damaged."""
    store = MadeStore(root)
    queues = [(topic, number) for topic in ("A", "Bc", "D" * 40) for number in range(4)]
    for number in range(150):
        topic, queue_id = chance.choice(queues) if number % 3 else queues[0]
        tag = "even" if number % 2 else "odd"
        body = chance.randbytes(chance.choice((0, 1, 40, 400)))
        store.put(topic, queue_id, body, {"TAGS": tag}, born_timestamp=NOW + number)
    store.write()
    for _ in range(chance.choice((0, 0, 1, 3))):
        file = chance.choice(sorted((root / "commitlog").iterdir()))
        damage(file, chance.randrange(len(store.log) % store.segment_size or 100))


def rows(reader: SliceReader, slices: list[QueueSlice], *, together: bool) -> list[dict[str, Any]]:
    if together:
        return rows_of(reader.read_all(slices))
    return [row for wanted in slices for row in rows_of(reader.read(wanted))]


@pytest.mark.parametrize("seed", range(40))
def test_queues_read_together_give_what_each_gives_alone(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store_of(tmp_path, chance)
    request = ScanRequest(selection=chance.choice(SELECTIONS))
    try:
        found = list(
            plan(take_snapshot(tmp_path, QueueChoice(request.wants)), request, PartitionLimits())
        )
    except StoreError:  # of a damaged log whose end cannot be read
        return
    slices = [wanted for partition in found for wanted in partition]
    columns = chance.choice(PROJECTIONS)
    strict: list[object] = []
    for together in (True, False):
        try:
            reader = SliceReader(local_files(tmp_path), columns, selection=request.selection)
            strict.append(rows(reader, slices, together=together))
        except StoreError as error:
            strict.append(str(error))
    assert strict[0] == strict[1]
    lenient = []
    for together in (True, False):
        reader = SliceReader(
            local_files(tmp_path), columns, selection=request.selection, fail_on_data_loss=False
        )
        lenient.append((rows(reader, slices, together=together), reader.skipped))
    assert lenient[0] == lenient[1]
