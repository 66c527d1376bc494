"""A group of brokers of both makes under an official controller."""

from __future__ import annotations

import itertools
from pathlib import Path

from pocketmq.message.record import iter_records

from . import wire
from .controllers import Controllers, spawn_replica
from .official import Server
from .ports import OFFICIAL_BROKER_SPAN, free_block
from .sending import send

MIB = 1 << 20
SETTINGS = {"mappedFileSizeCommitLog": MIB, "slaveReadEnable": True}
TOPIC = "T"
_names = itertools.count(1)


class Group:
    """Members by name, each with a directory and a port of its own."""

    def __init__(self, directory: Path, controllers: Controllers, namesrv: Server) -> None:
        self.name = f"group{next(_names)}"
        self.members: dict[str, Server] = {}
        self.controllers = controllers
        self.namesrv = namesrv
        self._directory = directory / self.name
        self._ports: dict[str, int] = {}
        self._sent = 0

    def start(self, name: str, make: str, **settings: object) -> Server:
        """Start a member; a store that it has from before may be another make's."""
        port = self._ports.setdefault(name, free_block(OFFICIAL_BROKER_SPAN))
        server = spawn_replica(
            make, self._directory, self.namesrv.address, self.controllers,
            group=self.name, member=name, port=port,
            settings={**SETTINGS, "storePathRootDir": self.store(name),
                      "storePathCommitLog": self.store(name) / "commitlog", **settings},
        )  # fmt: skip
        self.members[name] = server
        return server

    def store(self, name: str) -> Path:
        return self._directory / f"store-{name}"

    def wait(self, *members: int) -> None:
        self.controllers.wait_for_set(self.name, set(members), 90)

    def leads(self, name: str) -> None:
        """Until a member takes messages."""
        wire.until(lambda: self.send_one(name), f"{name} takes messages", 60, 0.1)

    def send_one(self, name: str) -> bool:
        answer = send(self.members[name].address, TOPIC, f"message {self._sent}".encode())
        if answer.code:
            return False
        assert int(answer.ext_fields["queueOffset"]) == self._sent
        self._sent += 1
        return True

    def send(self, name: str, count: int) -> None:
        assert all(self.send_one(name) for _ in range(count))

    def stored(self, name: str) -> dict[int, bytes]:
        """Body by queue offset, of what was sent to `TOPIC`."""
        return {
            record.queue_offset: bytes(record.body)
            for path in sorted((self.store(name) / "commitlog").iterdir())
            for record in iter_records(path.read_bytes())
            if record.topic == TOPIC
        }

    def check(self, *names: str) -> None:
        """All that was sent is there, at its place."""
        wanted = {n: f"message {n}".encode() for n in range(self._sent)}
        for name in names:
            wire.until(lambda name=name: self.stored(name) == wanted, f"{name} has all", 30)  # type: ignore[misc]

    def kill(self, name: str) -> None:
        self.members.pop(name).process.kill()

    def close(self) -> None:
        for member in self.members.values():
            member.process.kill()
