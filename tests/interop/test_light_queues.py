"""Light queues: our broker and official ones of two releases store the same, and go on with each
other's stores; an official client pulls from ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.limits import HALF_TOPIC
from pocketmq.message.record import Record, iter_records

from .harness import official, ours, replicas, wire
from .harness.official import NEWEST, VERSION, JavaPeer, Server
from .harness.process import killed_at_the_end
from .harness.reading import bodies_in, read_queue
from .harness.replicas import Group
from .harness.sending import commit, send

FILES = {"mappedFileSizeCommitLog": 131072, "mappedFileSizeConsumeQueue": 4000}
ON: dict[str, Any] = {"enableLmq": True, "enableMultiDispatch": True}
A, B = "%LMQ%a", "%LMQ%$orders$b"
RELEASES = pytest.mark.parametrize("version", [VERSION, NEWEST])


def start(
    make: str, directory: Path, namesrv: Server, version: str, name: str, store: Path
) -> Server:
    settings = FILES | ON
    if make == "ours":
        return ours.start_broker(
            directory, namesrv.address, name=name, store=store, settings=settings
        )
    try:
        official.jars(version)
    except official.Unavailable as missing:
        pytest.skip(str(missing))
    return official.start_broker(
        directory, namesrv.address, name=name, store=store, settings=settings, version=version
    )


def dispatch(broker: Server, number: int, *names: str) -> wire.Answer:
    answer = send(
        broker.address, "orders", b"%d" % number, INNER_MULTI_DISPATCH=",".join(names),
        UNIQ_KEY=f"U{number}", TAGS=f"tag{number % 3}",
    )  # fmt: skip
    assert answer.code == 0, answer.remark
    return answer


def has(broker: Server, expected: dict[str, list[bytes]]) -> bool:
    return all(bodies_in(broker.address, name) == bodies for name, bodies in expected.items())


def logged(store: Path) -> list[Record]:
    """The messages to the topic in a log."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    records = (record for file in files for record in iter_records(file.read_bytes()))
    return [record for record in records if record.topic == "orders"]


def queue_file(store: Path, name: str) -> bytes:
    (path,) = (store / "consumequeue" / name / "0").iterdir()
    return path.read_bytes()


@RELEASES
def test_both_store_the_same(official_namesrv: Server, tmp_path: Path, version: str) -> None:
    """The reference writes properties in the order of its hash table, and ours in that in which
    they came; these are as many bytes."""
    stores = {make: tmp_path / make / "store" for make in ("ours", "official")}
    for make, store in stores.items():
        name = f"same-{make}-{version}"
        broker = start(make, tmp_path / make, official_namesrv, version, name, store)
        try:
            for number in range(10):
                dispatch(broker, number, *((A, B) if number % 2 else (B,)))
                send(broker.address, "orders", b"plain", UNIQ_KEY="P")
            wire.until(partial(has, broker, {B: [b"%d" % n for n in range(10)]}), "all entered")
        finally:
            assert broker.process.terminate() == 0 or make == "official"
    theirs, own = (logged(stores[make]) for make in ("official", "ours"))
    assert len(theirs) == len(own) == 20
    for expected, found in zip(theirs, own, strict=True):
        their_properties, properties = dict(expected.properties), dict(found.properties)
        assert properties == their_properties
        place = (found.physical_offset, found.size, found.queue_offset, bytes(found.body))
        assert place == (
            expected.physical_offset, expected.size, expected.queue_offset, bytes(expected.body)
        )  # fmt: skip
    for name in ("orders", A, B):
        assert queue_file(stores["ours"], name) == queue_file(stores["official"], name)


@pytest.mark.long
@RELEASES
@pytest.mark.parametrize("stop", ["terminate", "kill"])
def test_each_goes_on_with_the_store_of_the_other(
    official_namesrv: Server, tmp_path: Path, version: str, stop: str
) -> None:
    store = tmp_path / "store"
    sent: dict[str, list[bytes]] = {A: [], B: [], "orders": []}
    number = 0
    for life, make in enumerate(("official", "ours", "official", "ours")):
        name = f"turns-{version}-{stop}"
        broker = start(make, tmp_path / str(life), official_namesrv, version, name, store)
        try:
            wire.until(partial(has, broker, sent), f"what was there is at {make}")
            for _ in range(30):
                dispatch(broker, number, *((A, B) if number % 2 else (B,)))
                for queue in (A, B, "orders") if number % 2 else (B, "orders"):
                    sent[queue].append(b"%d" % number)
                number += 1
            wire.until(partial(has, broker, sent), f"all is at {make}")
            found = read_queue(broker.address, A, 0)
            assert [
                record.properties["INNER_MULTI_QUEUE_OFFSET"].split(",")[0] for record in found
            ] == [str(n) for n in range(len(found))]
        finally:
            if stop == "kill":
                broker.process.kill()
            else:
                broker.process.terminate()


def test_a_half_message_of_an_official_broker_is_in_the_queue_twice(
    official_namesrv: Server, tmp_path: Path
) -> None:
    """It takes an offset there before it is committed. Whoever opens the store must keep that."""
    store = tmp_path / "store"
    broker = start("official", tmp_path / "1", official_namesrv, VERSION, "half", store)
    try:
        dispatch(broker, 0, A)
        half = send(
            broker.address, "orders", b"half", sys_flag=4, TRAN_MSG="true", PGROUP="p",
            UNIQ_KEY="u", INNER_MULTI_DISPATCH=A,
        )  # fmt: skip
        assert half.code == 0
        wire.until(lambda: len(bodies_in(broker.address, A)) == 2, "it is there")
    finally:
        broker.process.kill()
    broker = start("ours", tmp_path / "2", official_namesrv, VERSION, "half", store)
    try:
        assert commit(broker.address, half).code == 0
        found = read_queue(broker.address, A, 0)
        assert [record.topic for record in found] == ["orders", HALF_TOPIC, "orders"]
        assert [record.properties["INNER_MULTI_QUEUE_OFFSET"] for record in found] == [
            "0", "1", "2",
        ]  # fmt: skip
    finally:
        broker.process.kill()


@pytest.mark.parametrize("pair", ["ours-official", "official-ours"])
def test_a_slave_of_the_other_make_has_the_same(jars: Path, tmp_path: Path, pair: str) -> None:
    with killed_at_the_end():
        group = Group(tmp_path, ours.start_name_server(tmp_path))
        master, slave = (
            group.start(make, number, **ON) for number, make in enumerate(pair.split("-"))
        )
        replicas.wait_connected(group)
        sent: dict[str, list[bytes]] = {A: [], B: [], "orders": []}
        for number in range(40):
            names = (A, B) if number % 2 else (B,)
            dispatch(master, number, *names)
            for name in (*names, "orders"):
                sent[name].append(b"%d" % number)
        wire.until(partial(has, master, sent), "all is at the master")
        wire.until(partial(has, slave, {A: sent[A], B: sent[B]}), "the slave has light queues")
        replicas.assert_equal_files(group)


def test_an_official_client_pulls_from_ours(
    official_namesrv: Server, java: JavaPeer, tmp_path: Path
) -> None:
    broker = start("ours", tmp_path, official_namesrv, VERSION, "pulled", tmp_path / "store")
    try:
        for number in range(40):
            dispatch(broker, number, *((A, B) if number % 2 else (B,)))
        queues = [
            {"topic": name, "brokerName": broker.broker_name, "queueId": 0}
            for name in ("orders", A, B)
        ]
        answer: Any = java(
            "pull", namesrv=official_namesrv.address, group="%LMQ%g", topics=["orders"],
            queues=queues[1:],
        )  # fmt: skip
        assert [(row["topic"], row["min"], row["max"]) for row in answer["queues"]] == [
            ("orders", 0, 40), (A, 0, 20), (B, 0, 40),
        ]  # fmt: skip
        assert len(answer["messages"]) == 100
        dispatched = {each["properties"]["INNER_MULTI_DISPATCH"] for each in answer["messages"]}
        assert dispatched == {B, f"{A},{B}"}
    finally:
        assert broker.process.terminate() == 0
