"""Settings of members and controllers that decide who leads, and what of a log is kept, with the
official controller and members of both makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import wire
from .harness.controller_group import MIB, TOPIC, Group
from .harness.controllers import Controllers
from .harness.official import Server
from .harness.sending import send

BOTH_WAYS = pytest.mark.parametrize("makes", [("ours", "official"), ("official", "ours")])


@pytest.mark.long("2")
@pytest.mark.parametrize("preferred", [2, 3])
def test_of_members_alike_the_one_with_the_lowest_number_leads(
    group: Group, preferred: int
) -> None:
    """brokerElectionPriority."""
    group.start("1", "ours")
    group.controllers.wait_for_master(group.name)
    for member in (2, 3):
        priority = 3 if member == preferred else 9
        group.start(str(member), "ours", brokerElectionPriority=priority)
        group.wait(*range(1, member + 1))
    group.kill("1")
    assert group.controllers.wait_for_master(group.name, but=1) == preferred
    group.leads(str(preferred))


@pytest.mark.long
@BOTH_WAYS
def test_a_learner_of_the_other_make(group: Group, makes: tuple[str, str]) -> None:
    """asyncLearner: it has everything, and is never in the SyncStateSet."""
    master, learner = makes
    group.start("a", master)
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    group.send("a", 5)
    group.start("b", learner, asyncLearner=True)
    group.check("b")
    group.send("a", 5)  # without waiting for it
    group.check("a", "b")
    assert group.controllers.group(group.name)["syncStateSet"] == [1]
    group.kill("a")
    wire.until(
        lambda: group.controllers.group(group.name).get("masterBrokerId") != "1",
        "the controller has no master",
    )
    assert not group.send_one("b")
    group.start("a", master)
    group.leads("a")
    group.check("a", "b")


@pytest.mark.long
@BOTH_WAYS
def test_a_member_of_the_other_make_begins_with_the_newest_file(
    group: Group, makes: tuple[str, str]
) -> None:
    """syncFromLastFile."""
    master, slave = makes
    group.start("a", master)
    group.controllers.wait_for_master(group.name)
    address = group.members["a"].address
    wire.until(lambda: not send(address, "Large", b"x" * 600_000).code, "a takes messages", 60)
    for _ in range(2):
        assert send(address, "Large", b"x" * 600_000).code == 0
    group.start("b", slave, syncFromLastFile=True)
    group.wait(1, 2)
    group.send("a", 5)
    group.check("a", "b")
    newest = f"{2 * MIB:020d}"
    files = [path.name for path in (group.store("b") / "commitlog").iterdir()]
    assert min(files) == newest
    original, copied = (
        (group.store(name) / "commitlog" / newest).read_bytes().rstrip(b"\0") for name in "ab"
    )
    assert copied == original
    group.kill("a")
    assert group.controllers.wait_for_master(group.name, but=1) == 2
    group.leads("b")


def test_only_a_member_of_the_set_leads(group: Group) -> None:
    """Without enableElectUncleanMaster all of the set are waited for (DLedgerControllerTest)."""
    group.start("a", "ours")
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    group.start("b", "ours")
    group.wait(1, 2)
    group.send("a", 5)
    group.kill("b")
    group.wait(1)
    group.send("a", 3)
    group.kill("a")
    b = group.start("b", "ours")
    line = f"the group {group.name} has no master, and no member that may become one is online"
    wire.until(lambda: line in b.process.log.read_text(), "b has asked for an election")
    assert not group.send_one("b")
    group.start("a", "ours")
    group.leads("a")
    group.wait(1, 2)
    group.send("a", 2)
    group.check("a", "b")


@pytest.fixture
def unclean(tmp_path: Path, jars: Path, own_namesrv: Server) -> Iterator[Group]:
    """A group whose controller takes any member for the master when none of the set lives."""
    controllers = Controllers(tmp_path, enableElectUncleanMaster=True)
    controllers.wait()
    group = Group(tmp_path, controllers, own_namesrv)
    yield group
    group.close()
    controllers.close()


@pytest.mark.long
@BOTH_WAYS
def test_the_tail_of_the_other_make_is_cut_after_an_unclean_election(
    unclean: Group, makes: tuple[str, str]
) -> None:
    """enableElectUncleanMaster: what only the lost master had gives way to its successor's."""
    group = unclean
    a, b = makes
    group.start("a", a)
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    group.start("b", b)
    group.wait(1, 2)
    group.send("a", 10)
    group.check("a", "b")
    group.kill("b")
    group.wait(1)
    for number in range(3):  # acknowledged by a set of one
        assert send(group.members["a"].address, TOPIC, b"only here %d" % number).code == 0
    assert len(group.stored("a")) == len(group.stored("b")) + 3
    group.kill("a")
    group.start("b", b)
    assert group.controllers.wait_for_master(group.name, but=1) == 2
    group.leads("b")
    group.send("b", 5)
    group.start("a", a)
    group.wait(1, 2)
    group.send("b", 5)
    group.check("a", "b")
    original, copied = (
        (group.store(name) / "commitlog" / f"{0:020d}").read_bytes() for name in "ba"
    )
    assert copied.rstrip(b"\0") == original.rstrip(b"\0")
    # The other one leads again, on the log that was cut.
    group.kill("b")
    assert group.controllers.wait_for_master(group.name, but=2) == 1
    group.leads("a")
    group.check("a")
