"""How a broker gets its id and its role, and what it does when things go wrong on the way."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pocketmq.broker.controller.controller_client import TIMEOUT_SECONDS, ControllerClient, Standing
from pocketmq.broker.controller.group_member import GroupMember, MemberPeriods
from pocketmq.broker.controller.identity_file import Application, GroupIdentity, IdentityFile
from pocketmq.broker.controller.replica import AskForSet, RoleRefused, RoleTold
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import GetNextBrokerIdResponseHeader
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.request import Response

from .controller_stub import PATIENCE, ControllerStub

QUICK = MemberPeriods(heartbeat=0.02, role=0.05, first_role=0.02, leader=0.05, retry=0.05)


Answer = tuple[frozenset[int], int]
REFUSED = "refused"


class Taker:
    """Takes every role, unless `refusal` says why not."""

    def __init__(self) -> None:
        self.identity: GroupIdentity | None = None
        self.master_epoch = 0
        self.refusal = ""
        self.is_fit = True
        self.roles: asyncio.Queue[RoleTold] = asyncio.Queue()
        self.answers: asyncio.Queue[Answer | str | None] = asyncio.Queue()

    @property
    def standing(self) -> Standing | None:
        return Standing(3, 1000, 900) if self.is_fit else None

    def begin(self, identity: GroupIdentity) -> None:
        self.identity = identity

    async def take_role(self, told: RoleTold) -> None:
        if self.refusal:
            raise RoleRefused(self.refusal)
        if told.master_epoch > self.master_epoch:
            self.master_epoch = told.master_epoch
            self.roles.put_nowait(told)

    def set_answered(self, told: tuple[frozenset[int], int] | None) -> None:
        self.answers.put_nowait(told)

    def set_refused(self) -> None:
        self.answers.put_nowait(REFUSED)


class Group:
    """A controller, and members made by `member`."""

    def __init__(self, directory: Path) -> None:
        self.controller = ControllerStub()
        self.pool = ConnectionPool()
        self.members: list[GroupMember] = []
        self.timeout = TIMEOUT_SECONDS
        self._directory = directory
        self._codes = itertools.count(1)

    def client(self, name: str = "a", *addresses: str) -> ControllerClient:
        return ControllerClient(
            self.pool,
            addresses or (self.controller.address,),
            "c",
            "g",
            f"{name}:1",
            timeout=self.timeout,
        )

    def files(self, name: str = "a") -> IdentityFile:
        return IdentityFile(self._directory / name, "c", "g")

    def member(self, name: str = "a", *addresses: str) -> tuple[GroupMember, Taker]:
        taker = Taker()
        member = GroupMember(
            self.client(name, *addresses),
            self.files(name),
            taker,
            lambda: f"{name};{next(self._codes)}",
            periods=lambda: QUICK,
        )
        self.members.append(member)
        return member, taker


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    group = Group(tmp_path)
    await group.controller.server.start()
    yield group
    for member in group.members:
        await member.stop()
    await group.pool.close()
    await group.controller.server.stop()


async def role_of(taker: Taker) -> RoleTold:
    async with asyncio.timeout(PATIENCE):
        return await taker.roles.get()


async def answer_of(taker: Taker) -> Answer | str | None:
    async with asyncio.timeout(PATIENCE):
        return await taker.answers.get()


class Lines(logging.Handler):
    """The lines of the broker's log, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put_nowait(record.getMessage())

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while text not in await self._lines.get():
                pass


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("pocketmq.broker.controller")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


async def test_the_first_member_becomes_master(group: Group) -> None:
    member, taker = group.member()
    member.start()
    assert await role_of(taker) == RoleTold(1, "a:1", 1, frozenset({1}), 1)
    assert member.identity == taker.identity == GroupIdentity("c", "g", 1)
    assert group.files().load() == GroupIdentity("c", "g", 1)
    assert group.files().applied() is None
    heartbeat = group.controller.heartbeats[0]
    assert (heartbeat.broker_id, heartbeat.epoch, heartbeat.max_offset) == (1, 3, 1000)
    assert heartbeat.confirm_offset == 900


async def test_the_second_one_follows(group: Group) -> None:
    first, taker = group.member("a")
    first.start()
    await role_of(taker)
    second, other = group.member("b")
    second.start()
    assert (await role_of(other))[:3] == (1, "a:1", 1)
    assert second.identity == GroupIdentity("c", "g", 2)


# --- crashes on the way to an id (ReplicasManagerRegisterTest) --------------------------------


async def test_after_a_crash_before_the_application_the_id_is_applied_for(group: Group) -> None:
    group.files().apply(Application(1, "a;0"))
    member, taker = group.member()
    member.start()
    assert (await role_of(taker)).master_id == 1
    assert group.controller.ids == {1: "a;0"}
    assert RequestCode.CONTROLLER_GET_NEXT_BROKER_ID not in group.controller.asked


async def test_after_a_crash_behind_the_application_the_id_is_kept(group: Group) -> None:
    group.files().apply(Application(1, "a;0"))
    group.controller.ids[1] = "a;0"
    member, taker = group.member()
    member.start()
    assert (await role_of(taker)).master_id == 1
    assert group.controller.ids == {1: "a;0"}


async def test_after_a_crash_before_the_temporary_file_is_gone(group: Group) -> None:
    group.files().confirm(1)
    group.files().apply(Application(1, "a;0"))
    group.controller.ids[1] = "a;0"
    member, taker = group.member()
    member.start()
    assert (await role_of(taker)).master_id == 1
    assert RequestCode.CONTROLLER_APPLY_BROKER_ID not in group.controller.asked


async def test_an_id_that_another_one_got_first_is_given_up(group: Group) -> None:
    group.files().apply(Application(1, "a;0"))
    group.controller.ids[1] = "b;0"
    member, taker = group.member()
    member.start()
    await role_of(taker)
    assert member.identity == GroupIdentity("c", "g", 2)


async def test_members_that_start_together_get_different_ids(group: Group) -> None:
    made = [group.member(name) for name in "abc"]
    for member, _ in made:
        member.start()
    for _, taker in made:
        await role_of(taker)
    assert {member.identity.broker_id for member, _ in made if member.identity} == {1, 2, 3}


async def test_a_changed_address_is_told(group: Group) -> None:
    group.files("moved").confirm(1)
    group.controller.ids[1] = "a;0"
    group.controller.addresses[1] = "a:1"
    member, taker = group.member("moved")
    member.start()
    await role_of(taker)
    assert group.controller.addresses == {1: "moved:1"}


async def test_a_copied_identity_is_not_used_while_the_other_broker_lives(
    group: Group, lines: Lines
) -> None:
    member, taker = group.member()
    member.start()
    await role_of(taker)
    group.files("copy").confirm(1)
    copy, told = group.member("copy")
    copy.start()
    await lines.wait_for("the broker at a:1 has this broker's id 1")
    assert group.controller.addresses == {1: "a:1"}
    assert told.roles.empty()
    await member.stop()
    group.controller.decides.gone(1)  # then it is a broker that has moved, as far as one can see
    await role_of(told)
    assert group.controller.addresses == {1: "copy:1"}


async def test_the_identity_of_another_group_is_refused(
    group: Group, tmp_path: Path, lines: Lines
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "brokerIdentity").write_text("c#another#1")
    member, _ = group.member()
    member.start()
    await lines.wait_for("brokerName is g")
    assert group.controller.asked == []


async def test_an_id_that_the_controller_does_not_know_is_said(group: Group, lines: Lines) -> None:
    group.files().confirm(7)
    member, _ = group.member()
    member.start()
    await lines.wait_for("CONTROLLER_BROKER_NEED_TO_BE_REGISTERED")


# --- afterwards -------------------------------------------------------------------------------


async def test_a_lost_order_is_found_by_asking(group: Group) -> None:
    member, taker = group.member()
    member.start()
    await role_of(taker)
    group.controller.ids[2] = "b;0"
    group.controller.addresses[2] = "b:1"
    group.controller.decides.master, group.controller.decides.epoch = 2, 2
    assert (await role_of(taker))[:3] == (2, "b:1", 2)


async def test_without_a_master_an_election_is_asked_for(group: Group) -> None:
    member, taker = group.member()
    member.start()
    await role_of(taker)
    decides = group.controller.decides
    decides.master, decides.epoch = 0, decides.epoch + 1
    assert (await role_of(taker))[:3] == (1, "a:1", 3)


async def test_a_silent_member_is_elected_if_nobody_else_can_be(group: Group, lines: Lines) -> None:
    member, taker = group.member()
    member.start()
    await role_of(taker)
    taker.refusal = "a restart ended its epoch"
    await lines.wait_for("a restart ended its epoch")
    controller = group.controller
    # Its questions come after its last heartbeat.
    asked = len(controller.asked)
    await controller.until(lambda: len(controller.asked) > asked + 1)
    controller.decides.gone(1)
    controller.decides.elect(controller.now)
    assert not controller.decides.master
    controller.asked.clear()
    await controller.until(lambda: RequestCode.CONTROLLER_ELECT_MASTER in controller.asked)
    taker.refusal = ""
    assert (await role_of(taker)).master_id == 1


async def test_an_order_of_the_controller_is_taken(group: Group) -> None:
    member, taker = group.member()
    member.start()
    await role_of(taker)
    member.told(RoleTold(9, "z:1", 50))
    assert (await role_of(taker)).master_id == 9


async def test_a_refused_role_ends_the_heartbeats(group: Group) -> None:
    member, taker = group.member()
    taker.refusal = "a power cut"
    member.start()
    controller = group.controller
    await controller.until(lambda: RequestCode.CONTROLLER_GET_REPLICA_INFO in controller.asked)
    count = len(controller.heartbeats)
    controller.asked.clear()
    await controller.until(lambda: len(controller.asked) > 2)
    assert len(controller.heartbeats) == count
    taker.refusal = ""
    await role_of(taker)
    await controller.until(lambda: len(controller.heartbeats) > count)


async def test_the_set_is_changed_or_not(group: Group) -> None:
    member, taker = group.member()
    member.start()
    role = await role_of(taker)
    group.controller.decides.heartbeat(2, 0, 1, 0)
    member.ask_for_set(role, AskForSet(frozenset({1, 2}), 1))
    assert await answer_of(taker) == (frozenset({1, 2}), 2)
    member.ask_for_set(role, AskForSet(frozenset({1, 3}), 2))  # 3 does not live
    assert await answer_of(taker) == REFUSED
    member.ask_for_set(role, AskForSet(frozenset({1}), 1))  # an old epoch
    assert await answer_of(taker) == REFUSED
    group.controller.leads = False  # it may have done it before it lost its place
    member.ask_for_set(role, AskForSet(frozenset({1}), 2))
    assert await answer_of(taker) is None


# --- the leader of the controllers ------------------------------------------------------------


async def test_the_leader_is_found_through_any_controller(group: Group) -> None:
    other = ControllerStub()
    await other.server.start()
    other.leads, other.leader = False, group.controller.address
    try:
        client = group.client("a", "127.0.0.1:1", other.address)
        assert await client.find_leader() == group.controller.address
        assert await client.next_id() == 1
    finally:
        await other.server.stop()


async def test_a_leader_that_no_longer_leads_is_left(group: Group) -> None:
    other = ControllerStub()
    await other.server.start()
    try:
        client = group.client("a", group.controller.address, other.address)
        assert await client.find_leader() == group.controller.address
        group.controller.leads = False
        other.ids[5] = "x"
        with pytest.raises(RemotingError, match="NOT_LEADER"):
            await client.next_id()
        assert await client.next_id() == 6
        assert client.leader == other.address
    finally:
        await other.server.stop()


async def test_no_leader_is_an_error_that_names_all(group: Group) -> None:
    group.controller.leads = False
    client = group.client("a", group.controller.address, "127.0.0.1:1")
    with pytest.raises(RemotingError, match=r"it knows no leader; 127\.0\.0\.1:1"):
        await client.find_leader()


def huge_sets(stub: ControllerStub) -> None:
    stub.lies = lambda code: Response(body=b"[%b]" % (b"1," * (4 << 20)))


def silence(stub: ControllerStub) -> None:
    stub.lies = lambda code: None


def ids_of_others(stub: ControllerStub) -> None:
    stub.lies = lambda code: (
        Response(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken")
        if code == RequestCode.CONTROLLER_APPLY_BROKER_ID
        else Response(header=GetNextBrokerIdResponseHeader(next_broker_id=1))
    )


def nonsense(stub: ControllerStub) -> None:
    fields = dict.fromkeys(("nextBrokerId", "masterBrokerId", "masterEpoch"), "-" * 100_000)
    stub.lies = lambda code: Response(ext_fields=fields, body=b"[" * 1_000)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (huge_sets, "8388610 bytes, 65536 are allowed"),
        (silence, "no answer"),
        (ids_of_others, "broker id 1 is another broker's"),
        (nonsense, "gave no id"),
    ],
)
async def test_a_controller_that_lies_is_said_and_asked_again(
    group: Group,
    lines: Lines,
    lie: Callable[[ControllerStub], None],
    said: str,
) -> None:
    lie(group.controller)
    if lie is silence:
        group.timeout = 0.2
    member, taker = group.member()
    member.start()
    await lines.wait_for("controllers do not accept this broker")
    await group.controller.until(lambda: len(group.controller.asked) > 6)
    assert said in member.trouble
    assert len(member.trouble) < 1_000
    assert taker.roles.empty()
    group.controller.lies = None
    assert (await role_of(taker)).master_id == 1


async def test_heartbeats_reach_every_controller_over_one_connection(group: Group) -> None:
    other = ControllerStub()
    await other.server.start()
    other.leads, other.leader = False, group.controller.address
    try:
        member, taker = group.member("a", group.controller.address, other.address)
        member.start()
        await role_of(taker)
        await other.until(lambda: len(other.heartbeats) > 4)
        await group.controller.until(lambda: len(group.controller.heartbeats) > 4)
        assert len(group.controller.server.connections) == 1
        assert len(other.server.connections) == 1
    finally:
        await other.server.stop()


async def test_a_member_that_cannot_lead_sends_no_heartbeats(group: Group, lines: Lines) -> None:
    member, taker = group.member()
    member.start()
    await role_of(taker)
    taker.is_fit = False
    await lines.wait_for("so that another member is elected")
    # Its questions for the role go on, and come after a heartbeat of before.
    asked = len(group.controller.asked)
    await group.controller.until(lambda: len(group.controller.asked) > asked + 1)
    heard = len(group.controller.heartbeats)
    await group.controller.until(lambda: len(group.controller.asked) > asked + 3)
    assert len(group.controller.heartbeats) == heard
