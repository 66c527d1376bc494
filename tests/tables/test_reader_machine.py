"""Readers of a store to which anything may happen."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from tests.tables import reader_machine
from tests.tables.reader_machine import Readers, Step


def send(readers: Readers, count: int) -> None:
    readers.send(topic="T", queue_id=0, count=count, size=5, kind=1)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("reader", ["export", "read_files", "read_broker"])
def test_a_message_that_a_repair_found_lost_is_said_to_be_missing(
    reader: str, head: bool, last: bool
) -> None:
    readers = Readers(has_broker=True)
    try:
        send(readers, 6)
        getattr(readers, reader)()
        send(readers, 4)
        readers.lose(0 if last else 3, head)
        getattr(readers, reader)()
    finally:
        readers.close()


@pytest.mark.parametrize("reader", ["export", "read_files", "read_broker"])
@pytest.mark.parametrize("count", [4, 5, 6])
def test_a_topic_that_was_made_anew_is_read_however_many_messages_it_has(
    reader: str, count: int
) -> None:
    readers = Readers(has_broker=True)
    try:
        send(readers, 5)
        getattr(readers, reader)()
        readers.delete("T")
        send(readers, count)
        getattr(readers, reader)()
    finally:
        readers.close()


def sends(count: int) -> Step:
    return Step("send", {"topic": "T", "queue_id": 0, "count": count, "size": 5, "kind": 1})


READ = Step("read_files", {})
EXPORT = Step("export", {})
LOSE_NEWEST = Step("lose", {"number": 0})
DELETE = Step("delete", {"topic": "T"})
KEEP = Step("send", {"topic": "U", "queue_id": 0, "count": 1, "size": 5, "kind": 1})


def is_found(plant: str, *steps: Step) -> bool:
    """Whether the steps find a planted mistake."""
    with ExitStack() as made:
        for mistake in reader_machine.PLANTS[plant].mistake():
            made.enter_context(mistake)
        return isinstance(reader_machine.fault_of(list(steps), has_broker=False), AssertionError)


@pytest.mark.parametrize("reader", [READ, EXPORT])
def test_only_a_repair_can_name_a_message_in_the_place_of_one_that_was_read(reader: Step) -> None:
    """It has the offset of a message that was read and then lost; now it is lost as well."""
    lose_it = Step("lose", {"number": 8})
    twice_lost = sends(2), reader, LOSE_NEWEST, sends(9), lose_it, reader
    assert reader_machine.fault_of(list(twice_lost), has_broker=False) is None

    assert is_found("holes", sends(2), reader, LOSE_NEWEST, reader, sends(9), lose_it, reader)
    assert is_found("holes", sends(2), reader, sends(9), lose_it, reader)


def test_an_archive_keeps_what_is_before_offsets_that_were_given_twice() -> None:
    """A repair cuts off the newest archived message of a queue; the next one has its offset."""
    last_part = Step("send", {"topic": "U", "queue_id": 0, "count": 9, "size": 200, "kind": 3})
    sync, read = Step("sync", {}), Step("read_archive", {})
    before, after = [sends(11), last_part, sync], [Step("lose", {"number": 9}), sends(5), sync]
    assert reader_machine.fault_of([*before, *after, read], has_broker=False) is None
    assert reader_machine.fault_of([*before, read, *after, read, read], has_broker=False) is None

    assert is_found("archive-anew", *before, read, *after, read)


def test_a_batch_that_is_done_again_may_leave_out_a_queue_that_is_away() -> None:
    """It was planned with the messages of a queue that its topic has lost since."""
    one, two = (Step("resize", {"topic": "T", "queues": queues}) for queues in (1, 2))
    second = Step("send", {"topic": "T", "queue_id": 1, "count": 3, "size": 5, "kind": 1})
    read, killed = (Step("read_broker", {"killed": killed}) for killed in (False, True))
    assert reader_machine.fault_of([second, killed, one, read, two, read], has_broker=True) is None

    assert is_found("anew", second, killed, one, read)
    assert is_found("resized", second, read, one, second, read, two, second, read)


@pytest.mark.parametrize("reader", [READ, EXPORT])
def test_a_queue_that_a_repair_has_emptied_is_as_new_to_who_has_said_so(reader: Step) -> None:
    emptied = KEEP, sends(1), reader, LOSE_NEWEST, reader, sends(3), DELETE, reader
    assert reader_machine.fault_of(list(emptied), has_broker=False) is None

    # Who has not said so knows that there were messages.
    assert is_found("anew", KEEP, sends(1), reader, LOSE_NEWEST, sends(3), DELETE, reader)
    # So does who has read another one of the queue.
    assert is_found("anew", KEEP, sends(2), reader, LOSE_NEWEST, reader, sends(3), DELETE, reader)


def large(topic: str, count: int, queue_id: int = 0) -> Step:
    """Send messages of which seven fill a file of the log."""
    arguments = {"topic": topic, "queue_id": queue_id, "count": count, "size": 200, "kind": 0}
    return Step("send", arguments)


AGAIN = Step("delete", {"topic": "T", "again": True})
EXPIRE = Step("expire", {"files": 9})
SYNC, PRUNE = (Step("sync", {"prune": prune}) for prune in (False, True))
BROKER, ARCHIVE = Step("read_broker", {}), Step("read_archive", {})
READERS = {
    "files": (READ,),
    "export": (EXPORT,),
    "broker": (BROKER,),
    "archive": (PRUNE, ARCHIVE),
    "whole archive": (SYNC, ARCHIVE),
}


@pytest.mark.parametrize("reader", list(READERS.values())[:-1], ids=list(READERS)[:-1])
@pytest.mark.parametrize("topic", ["T", "U"])
def test_the_first_messages_of_a_new_queue_may_expire_before_it_is_read(
    reader: tuple[Step, ...], topic: str
) -> None:
    """Its topic has another queue that was read, or has none."""
    archived = reader[:-1]  # what was never archived is not missed there
    late = *reader, large("T", 24, 1), *archived, EXPIRE, *reader
    assert reader_machine.fault_of([large(topic, 1), *late], has_broker=True) is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pocketmq.spark.streams.stream_reader.newest_read", lambda _: {})
        patch.setattr("pocketmq.tables.message_source.newest_read", lambda _: {})
        assert reader_machine.fault_of([large(topic, 1), *late], has_broker=True) is not None


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("count", [8, 9, 10])
def test_the_first_messages_of_a_topic_that_was_created_again_may_expire_before_it_is_read(
    reader: tuple[Step, ...], count: int
) -> None:
    """Nine are gone: the old topic was read up to there, nearly so, or further."""
    again = AGAIN, large("T", 12), large("U", 4), *reader[:-1], EXPIRE, *reader
    assert reader_machine.fault_of([sends(count), *reader, *again], has_broker=True) is None


def test_every_message_is_read_once_or_said_to_be_missing() -> None:
    assert reader_machine.run(50) == 50


@pytest.mark.parametrize("plant", reader_machine.PLANTS)
def test_a_planted_mistake_is_found(plant: str) -> None:
    seed = reader_machine.PLANTS[plant].seed
    found = reader_machine.seed_that_finds(plant, seed, 1)
    # Other steps, or another store, need another seed.
    assert found == seed, f"python -m tests.tables.reader_machine --plant {plant} looks for one"
