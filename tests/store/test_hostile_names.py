"""A store may be a copy from somebody else: no name in its files, and no link, leads out of it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import Message
from pocketmq.store.errors import NotAFile, StoreError
from tests.cli.running import Running
from tests.store.made_store import MadeStore

NAMES = ("../../victim", "../victim", "..", ".", "a/b", "/etc", "a\0b", "")


def hostile_store(root: Path) -> MadeStore:
    """Return a store whose log and tables name topics and queues that are no directories."""
    made = MadeStore(root, segment_size=16_384)
    made.put("orders", 0, b"good", entry=False)
    for name in NAMES:
        if name:
            made.put(name, 0, b"hostile", entry=False)
    made.put("orders", -1, b"a queue below zero", entry=False)
    made.write()
    config = root / "config"
    config.mkdir(exist_ok=True)
    topic = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    (config / "topics.json").write_text(
        json.dumps(
            {
                "topicConfigTable": {name: topic | {"topicName": name} for name in NAMES},
                "deletedTopics": dict.fromkeys(NAMES, 10**9),
            }
        )
    )
    (config / "consumerOffset.json").write_text(
        json.dumps({"offsetTable": {f"{name}@{name}": {"0": 1, "-1": 5} for name in NAMES}})
    )
    (config / "delayOffset.json").write_text(json.dumps({"offsetTable": {"-1": 5, "99": 3}}))
    return made


def surroundings(directory: Path, store: Path) -> dict[str, bytes | None]:
    """Return what lies in a directory, without a store in it."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
        if not path.is_relative_to(store)
    }


FORGED = "x\nFORGED line\x1b[2J"


def forging_store(root: Path) -> Path:
    """Return a store in which names of files and topics would begin new lines."""
    made = MadeStore(root, segment_size=16_384)
    made.put("orders", 0, b"good", entry=False)
    made.put(FORGED, 0, b"hostile", entry=False)
    made.write()
    (root / "commitlog" / FORGED).write_bytes(b"strange")
    for directory in (root / FORGED, root / "consumequeue" / FORGED / "0"):
        directory.mkdir(parents=True)
    (root / "consumequeue" / FORGED / "0" / f"{0:020}").write_bytes(b"\1" * 100)
    return root


def is_forged(text: str) -> bool:
    return "\x1b" in text or any(line.startswith("FORGED") for line in text.splitlines())


@pytest.mark.parametrize("command", ["check", "snapshot"])
def test_names_forge_no_lines_of_a_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = forging_store(tmp_path / "store")
    target = [str(tmp_path / "copy")] if command == "snapshot" else []
    main(["store", command, str(root), *target])
    output = capsys.readouterr()
    assert "FORGED" in output.out
    assert not is_forged(output.out + output.err)


def test_names_forge_no_lines_of_a_log(tmp_path: Path) -> None:
    root = forging_store(tmp_path / "store")
    settings = {"listenPort": 0, "storePathRootDir": root, "mappedFileSizeCommitLog": 16_384}
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with Running("broker", *given) as broker:
        broker.wait_for("FORGED")
        broker.wait_for("listening")
        broker.stop()
        assert not is_forged("\n".join(broker.err))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "in" / "store"
    root.mkdir(parents=True)
    hostile_store(root)
    for place in (tmp_path, tmp_path / "in"):
        (place / "victim" / "0").mkdir(parents=True)
        (place / "victim" / "0" / f"{0:020}").write_bytes(b"precious")
    return root


@pytest.mark.parametrize(
    "command", [["check"], ["repair", "--dry-run"], ["repair"], ["dump", "--topic", "../../victim"]]
)
def test_commands_for_stores_stay_inside(
    store: Path, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = surroundings(tmp_path, store)
    main(["store", command[0], str(store), *command[1:]])
    assert surroundings(tmp_path, store) == before


def test_a_snapshot_stays_inside_its_target(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    before = surroundings(tmp_path, store)
    assert main(["store", "snapshot", str(store), str(target)]) == 0
    after = surroundings(tmp_path, store)
    assert {path for path in after if not Path(path).is_relative_to(target)} == before.keys()


async def test_a_broker_opens_a_hostile_copy_and_stays_inside(store: Path, tmp_path: Path) -> None:
    before = surroundings(tmp_path, store)
    properties = {"mappedFileSizeCommitLog": "16384"}
    async with EmbeddedServer(store=store, properties=properties) as server:
        assert server.store == store
    assert surroundings(tmp_path, store) == before


async def test_looping_links_that_have_foreign_names(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with (
        EmbeddedServer(store=root) as server,
        Producer("tests", namesrv=server.namesrv) as producer,
    ):
        sent = await producer.send(Message("orders", b"good"))
    queue = root / "consumequeue" / "orders" / str(sent.queue.queue_id)
    for directory in (root / "commitlog", queue.parent, queue):
        (directory / "loop").symlink_to("loop")
    async with (
        EmbeddedServer(store=root) as server,
        PullConsumer("tests", namesrv=server.namesrv, start="begin") as consumer,
    ):
        await consumer.subscribe("orders")
        assert [message.body for message in await consumer.poll(timeout=60)] == [b"good"]


LINKED = {
    "lock": NotAFile,
    "checkpoint": NotAFile,
    f"commitlog/{0:020}": NotAFile,
    f"consumequeue/orders/0/{0:020}": NotAFile,
    "config/topics.new": None,
    "config/topics.json.tmp": None,
    "queuebounds.tmp": None,
    "queuebegins.tmp": None,
    "abort.tmp": None,
}


@pytest.mark.parametrize("place", LINKED)
async def test_a_link_in_place_of_a_file_is_not_written_through(place: str, tmp_path: Path) -> None:
    root, victim = tmp_path / "store", tmp_path / "victim"
    properties = {"mappedFileSizeCommitLog": "16384"}
    hostile_store(root)
    async with (
        EmbeddedServer(store=root, properties=properties) as server,
        Producer("tests", namesrv=server.namesrv) as producer,
    ):
        await producer.send(Message("orders", b"good"))
    path = root / place
    content = b"\xaa" * (path.stat().st_size if path.exists() else 8)
    victim.write_bytes(content)
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    (root / "abort").write_text("0")
    refusal = LINKED[place]
    with contextlib.ExitStack() as stack:
        if refusal is not None:
            stack.enter_context(pytest.raises(refusal, match=f"{path} is a symbolic link"))
        async with EmbeddedServer(store=root, properties=properties) as server:
            server.broker.tables.topics.create_if_absent("another", 1)
    with contextlib.suppress(StoreError):
        main(["store", "repair", str(root)])
    assert victim.read_bytes() == content
