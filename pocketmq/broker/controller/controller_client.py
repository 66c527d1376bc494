"""A broker's requests to its controllers. Reference: BrokerOuterAPI, ReplicasManager.

Only the leader of the controllers answers; each of them tells its address. Heartbeats go to all of
them, so that a new leader knows the brokers at once. All requests to a controller share one
connection: when it closes, the controller considers this broker dead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from pocketmq.broker.controller.identity_file import Application, GroupIdentity
from pocketmq.broker.controller.replica import RoleTold
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    SyncStateSet,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError, RemotingConnectError, RemotingError, error_for
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    Header,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from pocketmq.remoting.pool import ConnectionPool

log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 3.0
HEARTBEAT_TIMEOUT_SECONDS: Final = 1.0
_MOST_BODY: Final = 64 << 10  # bytes of an answer: hundreds of members
NO_PRIORITY: Final = 2**31 - 1


class Standing(NamedTuple):
    """A member's values that decide elections.

    Attributes:
        epoch: the newest epoch of the log; -1 if there is none.
        end: physical offset of the end of the log.
        confirmed: the confirmOffset.
    """

    epoch: int
    end: int
    confirmed: int


class ControllerClient:
    """The controllers at `addresses`, for the broker at `broker_address` in `cluster` and `group`.

    They have `timeout` seconds for an answer. `heartbeat_timeout` (ms) is how long they keep the
    broker without a heartbeat, `priority` its priority in elections (the lowest value wins);
    `clock` gives milliseconds.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        addresses: Sequence[str],
        cluster: str,
        group: str,
        broker_address: str,
        *,
        heartbeat_timeout: int = 10_000,
        priority: int = NO_PRIORITY,
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._pool = pool
        self._addresses = list(addresses)
        self._cluster = cluster
        self._group = group
        self._broker_address = broker_address
        self._heartbeat_timeout = heartbeat_timeout
        self._priority = priority
        self._timeout = timeout
        self._clock = clock
        self._lines = LimitedLog(log)
        self._leader = ""
        self._silent: set[str] = set()  # controllers that get no heartbeats

    @property
    def leader(self) -> str:
        """The last known address of the leader."""
        return self._leader

    async def find_leader(self) -> str:
        """Ask the controllers for their leader, and store its address.

        Raises RemotingConnectError if no controller knows it.
        """
        faults = []
        # Ask the known leader first: its answer is the most reliable, unless it is down.
        known = [address for address in self._addresses if address == self._leader]
        for address in dict.fromkeys((*known, *self._addresses)):
            try:
                answer = await self._pool.request(
                    address, RequestCode.CONTROLLER_GET_METADATA_INFO, timeout=self._timeout
                )
            except RemotingError as error:
                faults.append(f"{address}: {error}")
                continue
            if answer.code:
                faults.append(f"{address}: {error_for(answer.code, answer.remark)}")
                continue
            header = GetMetaDataResponseHeader.from_ext(answer.ext_fields)
            if header.controller_leader_address:
                if header.controller_leader_address != self._leader:
                    log.warning("controller leader is %s", header.controller_leader_address)
                self._leader = header.controller_leader_address
                return self._leader
            faults.append(f"{address}: it knows no leader")
        self._leader = ""
        raise RemotingConnectError("no controller leads: " + "; ".join(faults))

    async def next_id(self) -> int:
        """Return the id that a new member can apply for. Raises RemotingError."""
        header = GetNextBrokerIdRequestHeader(self._cluster, self._group)
        answer = await self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        found = GetNextBrokerIdResponseHeader.from_ext(answer.ext_fields).next_broker_id
        if found is None:
            raise error_for(ResponseCode.SYSTEM_ERROR, "the controller gave no id", self._leader)
        return found

    async def apply(self, application: Application) -> bool:
        """Apply for an id; return whether this broker has got it. Raises RemotingError."""
        header = ApplyBrokerIdRequestHeader(
            self._cluster, self._group, application.broker_id, application.check_code
        )
        answer = await self._ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            header,
            also=(ResponseCode.CONTROLLER_BROKER_ID_INVALID,),
        )
        return answer.code == 0

    async def other_address(self, identity: GroupIdentity) -> str | None:
        """Return the address of another live broker with this id; None if there is none.

        If this broker's own address has changed, the former address counts as live for at most
        controllerHeartBeatTimeoutMills. Call this before `register`, which sets the address. Raises
        RemotingError.
        """
        answer = await self._ask(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, Header(), msgspec.json.encode([self._group])
        )
        if not answer.body:
            return None
        group = BrokerReplicasInfo.decode(answer.body).replicas_info_table.get(self._group)
        if group is None:
            return None
        for member in (*group.in_sync_replicas, *group.not_in_sync_replicas):
            if member.broker_id == identity.broker_id and member.alive:
                address = member.broker_address
                return None if address == self._broker_address else address
        return None

    async def register(self, identity: GroupIdentity) -> RoleTold | None:
        """Register this broker's address; return the group's master, None if it has none.

        Raises RemotingError; with the code CONTROLLER_BROKER_NEED_TO_BE_REGISTERED if the
        controller does not know the id.
        """
        header = RegisterBrokerToControllerRequestHeader(
            self._cluster, self._group, identity.broker_id, self._broker_address, self._clock()
        )
        answer = await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        told = RegisterBrokerToControllerResponseHeader.from_ext(answer.ext_fields)
        return _role(told.master_broker_id, told.master_address, told.master_epoch, answer)

    async def elect(self, identity: GroupIdentity) -> RoleTold | None:
        """Ask for an election; return the master, which may be the same; None if there is none.

        Raises RemotingError.
        """
        header = ElectMasterRequestHeader(
            self._cluster, self._group, identity.broker_id, False, self._clock()
        )
        answer = await self._ask(
            RequestCode.CONTROLLER_ELECT_MASTER,
            header,
            also=(
                ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
                ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
                ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            ),
        )
        told = ElectMasterResponseHeader.from_ext(answer.ext_fields)
        members: Iterable[int] | None = None
        if answer.body:
            members = ElectMasterResponseBody.decode(answer.body).sync_state_set
        if not told.master_broker_id or not told.master_address or told.master_epoch is None:
            return None
        return RoleTold(
            told.master_broker_id,
            told.master_address,
            told.master_epoch,
            None if members is None else frozenset(members),
            told.sync_state_set_epoch or 0,
        )

    async def replica_info(self) -> tuple[int, RoleTold | None]:
        """Return the master epoch of the group, and its master; None while it has none.

        Raises RemotingError; with the code CONTROLLER_BROKER_METADATA_NOT_EXIST if the controller
        does not know the group.
        """
        header = GetReplicaInfoRequestHeader(self._group)
        answer = await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        told = GetReplicaInfoResponseHeader.from_ext(answer.ext_fields)
        role = _role(told.master_broker_id, told.master_address, told.master_epoch, answer)
        return told.master_epoch or 0, role

    async def alter_set(
        self, role: RoleTold, members: frozenset[int], set_epoch: int
    ) -> tuple[frozenset[int], int]:
        """Ask for another SyncStateSet to replace that of `set_epoch`; return the new set and its
        epoch. `role` is the role of this broker, the master. Raises RemotingError."""
        header = AlterSyncStateSetRequestHeader(
            self._group, role.master_id, role.master_epoch, self._clock()
        )
        body = SyncStateSet(sorted(members), set_epoch).encode()
        answer = await self._ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        told = SyncStateSet.decode(answer.body)
        return frozenset(told.sync_state_set), told.sync_state_set_epoch

    async def heartbeat(self, identity: GroupIdentity, standing: Standing) -> None:
        """Send a heartbeat, with the end of the log, to every controller."""
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self._cluster,
            broker_addr=self._broker_address,
            broker_name=self._group,
            broker_id=identity.broker_id,
            epoch=standing.epoch,
            max_offset=standing.end,
            confirm_offset=standing.confirmed,
            heartbeat_timeout_mills=self._heartbeat_timeout,
            election_priority=self._priority,
        )
        await asyncio.gather(*(self._beat(address, header) for address in self._addresses))

    async def _beat(self, address: str, header: BrokerHeartbeatRequestHeader) -> None:
        try:
            await self._pool.send_oneway(
                address, RequestCode.BROKER_HEARTBEAT, header, timeout=HEARTBEAT_TIMEOUT_SECONDS
            )
        except RemotingError as error:
            self._silent.add(address)
            self._lines.warning(
                "controller %s gets no heartbeats: %s", address, error, cause=address
            )
        else:
            if address in self._silent:
                self._silent.discard(address)
                log.warning("controller %s receives heartbeats again", address)

    async def _ask(
        self,
        code: RequestCode,
        header: Header,
        body: bytes = b"",
        *,
        also: tuple[ResponseCode, ...] = (),
    ) -> Command:
        """Ask the leader. Answers with a code in `also` do not raise."""
        leader = self._leader or await self.find_leader()
        try:
            answer = await self._pool.request(leader, code, header, body, timeout=self._timeout)
        except RemotingError:
            self._leader = ""
            raise
        if answer.code and answer.code not in also:
            if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self._leader = ""
            raise error_for(answer.code, answer.remark, leader)
        if len(answer.body) > _MOST_BODY:
            raise BodyError(
                f"the answer to {code.name} has {len(answer.body)} bytes, {_MOST_BODY} are allowed",
                leader,
            )
        return answer


def _role(
    master_id: int | None, address: str | None, epoch: int | None, answer: Command
) -> RoleTold | None:
    if not master_id or not address or epoch is None:
        return None
    members: frozenset[int] | None = None
    set_epoch = 0
    if answer.body:
        told = SyncStateSet.decode(answer.body)
        members, set_epoch = frozenset(told.sync_state_set), told.sync_state_set_epoch
    return RoleTold(master_id, address, epoch, members, set_epoch)
