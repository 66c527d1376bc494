"""Groups of both makes under an official controller."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pocketmq.message.record import iter_records

from .failover.campaign import Campaign
from .harness import wire
from .harness.controllers import Controllers, spawn_replica
from .harness.official import JavaPeer, Server
from .harness.ports import OFFICIAL_BROKER_SPAN, free_block

MIB = 1 << 20
SETTINGS = {"mappedFileSizeCommitLog": MIB, "slaveReadEnable": True}
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
        body = f"message {self._sent}".encode()
        answer = wire.call(
            self.members[name].address, 10,
            {
                "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": "0",
                "bornTimestamp": "0", "flag": "0", "properties": "", "reconsumeTimes": "0",
                "unitMode": "false", "batch": "false",
            },
            body, timeout=10,
        )  # fmt: skip
        if answer.code:
            return False
        assert int(answer.ext_fields["queueOffset"]) == self._sent
        self._sent += 1
        return True

    def send(self, name: str, count: int) -> None:
        assert all(self.send_one(name) for _ in range(count))

    def stored(self, name: str) -> dict[int, bytes]:
        """Body by queue offset."""
        return {
            record.queue_offset: bytes(record.body)
            for path in sorted((self.store(name) / "commitlog").iterdir())
            for record in iter_records(path.read_bytes())
            if record.topic == "T"
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


@pytest.fixture(scope="module")
def controllers(jars: Path, directory: Path) -> Iterator[Controllers]:
    controllers = Controllers(directory)
    controllers.wait()
    yield controllers
    controllers.close()


@pytest.fixture
def group(directory: Path, controllers: Controllers, our_namesrv: Server) -> Iterator[Group]:
    group = Group(directory, controllers, our_namesrv)
    yield group
    group.close()


@pytest.mark.long  # the way of a store below has the same steps, in one group
@pytest.mark.parametrize("makes", [("ours", "official"), ("official", "ours")])
def test_each_make_follows_and_leads_the_other(
    group: Group, makes: tuple[str, str], admin: JavaPeer
) -> None:
    a, b = makes
    group.start("a", a)
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    group.send("a", 5)
    group.start("b", b)
    group.wait(1, 2)
    group.send("a", 5)
    group.kill("a")
    assert group.controllers.wait_for_master(group.name, but=1) == 2
    group.leads("b")
    group.send("b", 5)
    group.start("a", a)
    group.wait(1, 2)
    group.send("b", 5)
    group.check("a", "b")
    ours_ = group.members["a" if a == "ours" else "b"]
    _check_commands(group, ours_, admin, master=2, other="a")


def _check_commands(
    group: Group, ours_: Server, admin: JavaPeer, *, master: int, other: str
) -> None:
    """What mqadmin says of a group of which one member is ours; and the role moves from the
    `master` (1 or 2) to the `other` one."""
    namesrv, controller = group.namesrv.address, group.controllers.address
    epochs = admin.mqadmin("getBrokerEpoch", "-n", namesrv, "-b", group.name)
    assert epochs.count("Epoch: EpochEntry{epoch=1") == 2, epochs
    in_sync = admin.mqadmin("getSyncStateSet", "-a", controller, "-b", group.name)
    assert in_sync.count("InSyncReplica") == 2, in_sync
    status = admin.mqadmin("haStatus", "-n", namesrv, "-b", ours_.address)
    assert "CommitLogMaxOffset\t" in status, status
    wanted = 3 - master
    admin.mqadmin(
        "electMaster", "-a", controller, "-b", str(wanted), "-bn", group.name,
        "-c", "DefaultCluster",
    )  # fmt: skip
    assert group.controllers.wait_for_master(group.name, but=master) == wanted
    group.leads(other)


def test_a_single_broker_becomes_a_group_and_moves_to_official_brokers_and_back(
    group: Group, admin: JavaPeer
) -> None:
    single: Mapping[str, object] = {"enableControllerMode": False, "brokerId": 0}
    group.start("a", "ours", **single, brokerRole="ASYNC_MASTER")
    group.leads("a")
    group.send("a", 20)
    assert group.members.pop("a").process.terminate() == 0
    group.start("a", "ours")
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    # An official broker gets all that was there before the first controller.
    group.start("b", "official")
    group.wait(1, 2)
    group.send("a", 5)
    group.check("a", "b")
    # The role moves by a command; ours follows the official broker.
    _check_commands(group, group.members["a"], admin, master=1, other="b")
    group.wait(1, 2)
    group.send("b", 5)
    group.check("a", "b")
    group.kill("a")
    # The store of ours under an official broker, and the other way round.
    group.start("a", "official")
    group.wait(1, 2)
    group.kill("b")
    group.leads("a")
    group.start("b", "ours")
    group.wait(1, 2)
    group.send("a", 5)
    group.check("a", "b")
    # Ours takes over from the official broker, and goes back to being alone.
    group.kill("a")
    group.leads("b")
    group.send("b", 5)
    assert group.members.pop("b").process.terminate() == 0
    group.start("b", "ours", **single, brokerRole="ASYNC_MASTER")
    group.leads("b")
    group.check("b")


@pytest.mark.crash
def test_no_acknowledged_message_is_lost_when_masters_are_killed(
    tmp_path: Path, controllers: Controllers
) -> None:
    """A sample; `python -m tests.interop.failover` has longer ones, with more members."""
    campaign = Campaign(tmp_path, ["ours", "ours", "ours"], controllers)
    outcome = campaign.run(20.0, every=5.0, stops=False)
    assert outcome.is_whole, outcome.report()
    assert outcome.acknowledged > 100
    assert outcome.after_kill


@pytest.mark.long  # against a stub of the controller, CI runs the same
def test_a_copied_identity_takes_no_role(group: Group) -> None:
    a = group.start("a", "ours")
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    group.store("copy").mkdir(parents=True)
    shutil.copy(group.store("a") / "brokerIdentity", group.store("copy"))
    copy = group.start("copy", "ours")
    line = f"the broker at {a.address} has this broker's id 1"
    wire.until(lambda: line in copy.process.log.read_text(), "the copy says so", 30)
    group.send("a", 5)
