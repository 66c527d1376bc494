"""Groups of both makes under an official controller."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .failover.campaign import Campaign
from .harness import wire
from .harness.controller_group import Group
from .harness.controllers import Controllers
from .harness.official import JavaPeer, Server
from .harness.reading import bodies_in
from .harness.sending import commit, send, send_half


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
    # Transactions are not checked on the way.
    settings: dict[str, object] = {
        "transactionTimeOut": 3_600_000, "messageDelayLevel": "20s 2h"
    }  # fmt: skip
    single = settings | {
        "enableControllerMode": False, "brokerId": 0, "brokerRole": "ASYNC_MASTER"
    }  # fmt: skip
    group.start("a", "ours", **single)
    group.leads("a")
    group.send("a", 20)
    assert send(group.members["a"].address, "Whole", b"plain").code == 0
    half = send_half(group.members["a"].address, "Whole", b"half")
    assert half.code == 0
    for level in ("0", "1", "2"):  # at once; on the way, or behind it; and later than that
        late = send(group.members["a"].address, "Late", level.encode(), DELAY=level)
        assert late.code == 0
    assert group.members.pop("a").process.terminate() == 0
    group.start("a", "ours", **settings)
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    # An official broker gets all that was there before the first controller.
    group.start("b", "official", **settings)
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
    group.start("a", "official", **settings)
    group.wait(1, 2)
    group.kill("b")
    group.leads("a")
    group.start("b", "ours", **settings)
    group.wait(1, 2)
    group.send("a", 5)
    group.check("a", "b")
    # Ours takes over from the official broker, and goes back to being alone.
    group.kill("a")
    group.leads("b")
    group.send("b", 5)
    assert group.members.pop("b").process.terminate() == 0
    last = group.start("b", "ours", **single)
    group.leads("b")
    group.check("b")
    # The transaction ends here, and one delayed message is delivered; the other one waits.
    assert bodies_in(last.address, "Whole") == [b"plain"]
    assert commit(last.address, half).code == 0
    wire.until(
        lambda: bodies_in(last.address, "Whole") == [b"plain", b"half"], "the commit is seen"
    )
    wire.until(lambda: set(bodies_in(last.address, "Late")) == {b"0", b"1"}, "it is delivered")


@pytest.mark.crash
def test_no_acknowledged_message_is_lost_when_masters_are_killed(
    tmp_path: Path, controllers: Controllers
) -> None:
    """A sample; `python -m tests.interop.failover` has longer ones, with more members."""
    campaign = Campaign(tmp_path, ["ours", "ours", "ours"], controllers)
    outcome = campaign.run(10.0, every=4.0, stops=False)
    assert outcome.is_whole, outcome.report()
    assert outcome.acknowledged > 50
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
