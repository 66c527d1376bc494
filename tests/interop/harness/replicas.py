"""A master and its slave of either make, and comparisons of what they hold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from . import official, ours, wire
from .official import Server
from .ports import OFFICIAL_BROKER_SPAN, free_block

GET_BROKER_RUNTIME_INFO = 28
GET_BROKER_HA_STATUS = 907
SUCCESS = 0
SYSTEM_ERROR = 1
MIB = 1 << 20

#: What starts a member; "newest" is the official broker of the newest release.
SPAWN: Mapping[str, Callable[..., Server]] = {
    "ours": ours.spawn_broker,
    "official": official.spawn_broker,
    "newest": partial(official.spawn_broker, version=official.NEWEST),
}

#: Small files, quick heartbeats, and reads from slaves.
SETTINGS: Mapping[str, object] = {
    "brokerClusterName": "replicas",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": MIB,
    "mappedFileSizeConsumeQueue": 20_000,
    "haSendHeartbeatInterval": 1000,
    "haHousekeepingInterval": 5000,
    "slaveReadEnable": True,
    "timerWheelEnable": False,
}


class Group:
    """A broker group in one directory: a master, and slaves by their ids."""

    def __init__(self, directory: Path, namesrv: Server, name: str = "group") -> None:
        self.directory = directory
        self.namesrv = namesrv
        self.name = name
        self.members: dict[int, Server] = {}
        self._makes: dict[int, str] = {}
        self._settings: dict[int, dict[str, object]] = {}
        self._stores: dict[int, Path | None] = {}

    @property
    def master(self) -> Server:
        return self.members[0]

    @property
    def slave(self) -> Server:
        return self.members[1]

    def start(
        self, make: str, broker_id: int, *, store: Path | None = None, **settings: object
    ) -> Server:
        """Start a member, and wait until it listens; `store` may be another make's."""
        role = "ASYNC_MASTER" if broker_id == 0 else "SLAVE"
        port = free_block(OFFICIAL_BROKER_SPAN)
        own = {"brokerId": broker_id, "brokerRole": role, "listenPort": port} | settings
        own.setdefault("haListenPort", int(str(own["listenPort"])) + 1)
        self._makes[broker_id] = make
        self._stores[broker_id] = store
        self._settings[broker_id] = own
        return self.restart(broker_id)

    def restart(self, broker_id: int, **changes: object) -> Server:
        """Start a member again that has ended, with the same settings and some changes."""
        own = self._settings[broker_id]
        own.update(changes)
        make = self._makes[broker_id]
        server = SPAWN[make](
            self.directory / str(broker_id),
            self.namesrv.address,
            name=self.name,
            store=self._stores[broker_id],
            port=int(str(own["listenPort"])),
            settings={**SETTINGS, **own},
        )
        self.members[broker_id] = server
        server.process.wait_for("listening|boot success", 120)
        return server

    def ha_address(self, broker_id: int = 0) -> str:
        return f"127.0.0.1:{self._settings[broker_id]['haListenPort']}"

    def stop_all(self) -> None:
        for server in self.members.values():
            server.process.terminate()

    def kill_all(self) -> None:
        for server in self.members.values():
            server.process.kill()


def runtime_info(server: Server) -> dict[str, str]:
    """What brokerStatus shows. The official broker refuses to until it has its first sample of the
    store, a second after its start: NoSuchElementException."""
    answer = wire.call(server.address, GET_BROKER_RUNTIME_INFO)
    if answer.code == SYSTEM_ERROR and "NoSuchElementException" in (answer.remark or ""):
        time.sleep(1)
        answer = wire.call(server.address, GET_BROKER_RUNTIME_INFO)
    assert answer.code == SUCCESS, answer
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def log_end(server: Server) -> int:
    return int(runtime_info(server)["commitLogMaxOffset"])


def ha_status(server: Server) -> dict[str, Any]:
    """What haStatus shows."""
    status: dict[str, Any] = json.loads(wire.call(server.address, GET_BROKER_HA_STATUS).body)
    return status


def wait_connected(group: Group, count: int = 1) -> None:
    """Until so many slaves are connected to the master."""
    wire.until(
        lambda: len(ha_status(group.master).get("haConnectionInfo") or ()) == count,
        f"{count} slaves connected",
        90,
        0.2,
    )


def wait_copied(group: Group, broker_id: int = 1, timeout: float = 60) -> int:
    """Until a slave has all of the master's log, and entered it; return where it ends."""
    end = log_end(group.master)
    slave = group.members[broker_id]
    wire.until(lambda: log_end(slave) >= end, f"the slave has {end} bytes", timeout, 0.1)
    wire.until(
        lambda: int(runtime_info(slave)["dispatchBehindBytes"]) == 0, "all is entered", timeout, 0.1
    )
    return end


def commit_log(server: Server, end: int) -> dict[int, bytes]:
    """The files of a commit log up to the physical offset `end`, by their begins."""
    assert server.store is not None
    files = {}
    for path in sorted((server.store / "commitlog").glob("[0-9]*")):
        begin = int(path.name)
        if begin < end:
            files[begin] = path.read_bytes()[: end - begin]
    return files


def has_bytes(server: Server, offset: int) -> bool:
    """Whether something was written behind the physical offset `offset`, whole or not."""
    assert server.store is not None
    base = offset - offset % MIB
    path = server.store / "commitlog" / f"{base:020d}"
    return any(path.read_bytes()[offset - base : offset - base + 100])


def queues(server: Server) -> dict[str, bytes]:
    """The entries of every consume queue, by topic, queue and file; queues without entries are left
    out."""
    assert server.store is not None
    top = server.store / "consumequeue"
    found = {
        str(path.relative_to(top)): path.read_bytes().rstrip(b"\0")
        for path in sorted(top.glob("*/*/[0-9]*"))
    }
    return {name: entries for name, entries in found.items() if entries}


def assert_equal_files(group: Group, broker_id: int = 1) -> None:
    """Compare commit logs and consume queues byte by byte, where the slave has them. A master that
    stores something meanwhile, such as a delayed message, is read again."""
    end = -1
    while end != log_end(group.master):
        end = wait_copied(group, broker_id)
        copied = commit_log(group.members[broker_id], end)
        original = commit_log(group.master, end)
        copied_queues, queues_of_master = queues(group.members[broker_id]), queues(group.master)
    assert copied
    for begin, data in copied.items():
        assert data == original[begin], f"the files at {begin} differ"
    if copied.keys() == original.keys():
        only_one_has = sorted(copied_queues.keys() ^ queues_of_master.keys())
        assert not only_one_has
        for name, entries in copied_queues.items():
            assert entries == queues_of_master[name], f"the queue {name} differs"
