"""What follows from the facts about a member: ready or not, and the reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.health import DiskState, MasterLink, MemberHealth, MemberRole
from pocketmq.broker.health_check import existing
from tests.unprivileged import unprivileged

MASTER, SLAVE, FENCED = MemberRole.MASTER, MemberRole.SLAVE, MemberRole.FENCED
DISK = DiskState("/data", 1 << 30, 40, 90)
LINK = MasterLink("10.0.0.1:10911", connected=True, seconds=3.0, lag=0, most_lag=100)


def slave(link: MasterLink = LINK, disk: DiskState = DISK) -> MemberHealth:
    return MemberHealth(SLAVE, 6, disk, link=link, refusal="this broker is a slave")


def test_a_slave_in_sync_is_ready_and_takes_no_sends() -> None:
    health = slave()
    assert (health.ready, health.accepts_sends, health.reasons) == (True, False, ())


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (LINK._replace(connected=False, seconds=12.4), "the master 10.0.0.1:10911 for 12 s"),
        (LINK._replace(connected=False, trouble="refused"), "for 3 s: refused"),
        (LINK._replace(master=""), "the master of this slave is not known"),
        (LINK._replace(lag=None), "has not reported the end of its log yet"),
        (LINK._replace(lag=100), "100 bytes behind the master 10.0.0.1:10911"),
        (LINK._replace(in_set=False), "not in the SyncStateSet"),
        (LINK._replace(trouble="it cannot be stored"), "is not copied: it cannot be stored"),
    ],
)  # fmt: skip
def test_a_slave_that_is_not_in_sync_says_why(link: MasterLink, said: str) -> None:
    health = slave(link)
    assert not health.ready
    [reason] = health.problems
    assert said in reason


def test_a_slave_just_below_the_bound_is_in_sync() -> None:
    assert slave(LINK._replace(lag=99, in_set=True)).ready


@pytest.mark.parametrize("role", [MASTER, SLAVE])
@pytest.mark.parametrize(
    ("disk", "said"),
    [
        (DISK._replace(free=0, used_percent=100), "the disk of /data is full: 0 bytes are free"),
        (DISK._replace(trouble="no room for /data/x"), "no room for /data/x"),
        (DISK._replace(trouble="EIO", flush_failed=True), "EIO; only a restart of this broker"),
    ],
)
def test_a_full_or_failing_disk_is_the_reason_in_each_role(
    role: MemberRole, disk: DiskState, said: str
) -> None:
    health = MemberHealth(role, 6, disk, link=LINK if role is SLAVE else None)
    assert (health.ready, health.accepts_sends) == (False, False)
    assert said in health.problems[0]


def test_above_the_warning_level_a_master_goes_on_with_a_remark() -> None:
    health = MemberHealth(MASTER, 6, DISK._replace(used_percent=91))
    assert (health.ready, health.accepts_sends) == (True, True)
    assert "91 % full" in health.remarks[0]


def test_a_drained_broker_is_ready_and_says_that_it_takes_no_sends() -> None:
    health = MemberHealth(MASTER, 4, DISK)
    assert (health.ready, health.accepts_sends) == (True, False)
    assert health.remarks == ("drained: brokerPermission is 4, so producers choose others",)


def test_missing_copies_are_a_remark_until_the_store_refuses_sends() -> None:
    lacking = MemberHealth(MASTER, 6, DISK, copies=1, copies_needed=2)
    assert lacking.ready
    assert lacking.remarks == ("sends wait for 2 copies, but only 1 are in sync",)
    refusing = lacking._replace(refusal="too few replicas keep up")
    assert (refusing.ready, refusing.accepts_sends) == (False, False)


@given(
    role=st.sampled_from(MemberRole),
    permission=st.integers(0, 7),
    disk=st.builds(
        DiskState, st.just("/d"), st.integers(0, 1 << 40), st.integers(0, 100), st.just(90),
        st.sampled_from(("", "EIO")), st.booleans(),
    ),
    link=st.none() | st.builds(
        MasterLink, st.sampled_from(("", "m:1")), st.booleans(), st.floats(0, 1e6),
        st.none() | st.integers(0, 1000), st.just(100), st.none() | st.booleans(),
    ),
    refusal=st.sampled_from(("", "too few")),
    unregistered=st.sampled_from(("", "registered at none of n:1")),
    copies=st.integers(1, 3),
    copies_needed=st.integers(1, 3),
)  # fmt: skip
def test_whatever_is_not_ready_has_a_reason_and_never_takes_sends_without_a_disk(
    role: MemberRole,
    permission: int,
    disk: DiskState,
    link: MasterLink | None,
    refusal: str,
    unregistered: str,
    copies: int,
    copies_needed: int,
) -> None:
    health = MemberHealth(
        role, permission, disk, None, link, refusal, unregistered, copies, copies_needed
    )
    assert health.ready == (not health.problems)
    assert all(health.reasons)
    if health.accepts_sends:
        assert role is MASTER
        assert not disk.problem
        assert not refusal
    if role is not SLAVE and refusal:
        assert refusal in health.problems


def test_the_disk_of_a_closed_directory_is_that_of_its_parent(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with unprivileged():
        assert existing(closed / "commitlog") == closed
