"""A controller over TCP that decides as the simulated one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from pocketmq.remoting.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
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
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer

from .simulation import Controller

PATIENCE = 90.0
"""Seconds."""


class ControllerStub:
    """One controller; `leader` is the address that it calls the leader's, "" for its own.

    Attributes:
        decides: the state, which tests may change.
        ids: check code by given id.
        addresses: of registered brokers by id.
        asked: the codes of all requests but heartbeats.
        heartbeats: all that came.
        now: milliseconds; heartbeats are dated with it.
        keeps_set: refuses every other SyncStateSet.
        lies: answers all but the question for the leader in place of this; None for no answer.
    """

    def __init__(self) -> None:
        self.decides = Controller()
        self.ids: dict[int, str] = {}
        self.addresses: dict[int, str] = {}
        self.heartbeats: list[BrokerHeartbeatRequestHeader] = []
        self.asked: list[int] = []
        self.leader = ""
        self.leads = True
        self.keeps_set = False
        self.lies: Callable[[int], Response | None] | None = None
        self.now = 0
        self._connections: dict[int, object] = {}  # of the last heartbeat of each broker
        self._happened = asyncio.Event()
        dispatcher = Dispatcher()
        for code, handle, header in (
            (RequestCode.CONTROLLER_GET_METADATA_INFO, self._metadata, Header),
            (
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                self._next_id,
                GetNextBrokerIdRequestHeader,
            ),
            (RequestCode.CONTROLLER_APPLY_BROKER_ID, self._apply, ApplyBrokerIdRequestHeader),
            (
                RequestCode.CONTROLLER_REGISTER_BROKER,
                self._register,
                RegisterBrokerToControllerRequestHeader,
            ),
            (RequestCode.CONTROLLER_ELECT_MASTER, self._elect, ElectMasterRequestHeader),
            (RequestCode.CONTROLLER_GET_REPLICA_INFO, self._info, GetReplicaInfoRequestHeader),
            (
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
                self._alter,
                AlterSyncStateSetRequestHeader,
            ),
            (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, self._members, Header),
            (RequestCode.BROKER_HEARTBEAT, self._heartbeat, BrokerHeartbeatRequestHeader),
        ):
            dispatcher.register(code, self._guarded(int(code), handle), header)
        self.server = RemotingServer(dispatcher)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is asked after each request."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    def _guarded(self, code: int, handle: Any) -> Any:
        def guarded(request: Request[Any]) -> Response | None:
            self._happened.set()
            if code == RequestCode.BROKER_HEARTBEAT:
                handle(request)
                return None
            self.asked.append(code)
            if not self.leads and code != RequestCode.CONTROLLER_GET_METADATA_INFO:
                return Response(ResponseCode.CONTROLLER_NOT_LEADER, "not leader")
            if self.lies is not None and code != RequestCode.CONTROLLER_GET_METADATA_INFO:
                return self.lies(code)
            answer: Response = handle(request)
            return answer

        return guarded

    def _metadata(self, request: Request[Header]) -> Response:
        leader = self.leader or (self.address if self.leads else "")
        return Response(header=GetMetaDataResponseHeader("g", "n0", leader, self.leads, ""))

    def _next_id(self, request: Request[GetNextBrokerIdRequestHeader]) -> Response:
        number = max(self.ids, default=0) + 1
        return Response(header=GetNextBrokerIdResponseHeader(next_broker_id=number))

    def _apply(self, request: Request[ApplyBrokerIdRequestHeader]) -> Response:
        number, code = request.header.applied_broker_id, request.header.register_check_code
        if self.ids.setdefault(number, code) != code:
            return Response(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken")
        return Response()

    def _register(self, request: Request[RegisterBrokerToControllerRequestHeader]) -> Response:
        if request.header.broker_id not in self.ids:
            return Response(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "unknown id")
        master = self.decides.master
        before = self.addresses.get(master)  # it answers before it enters the new address
        self.addresses[request.header.broker_id] = request.header.broker_address
        if master not in self.decides.alive(self.now):
            return Response(header=RegisterBrokerToControllerResponseHeader())
        return Response(
            header=RegisterBrokerToControllerResponseHeader(
                master_broker_id=master,
                master_address=before,
                master_epoch=self.decides.epoch,
                sync_state_set_epoch=self.decides.set_epoch,
            ),
            body=self._set(),
        )

    def _elect(self, request: Request[ElectMasterRequestHeader]) -> Response:
        code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        if not self.decides.master:
            self.decides.elect(self.now, first=request.header.broker_id)
            code = ResponseCode.SUCCESS
        master = self.decides.master
        if not master:
            return Response(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, "no candidate")
        return Response(
            code,
            header=ElectMasterResponseHeader(
                master, self.addresses.get(master), self.decides.epoch, self.decides.set_epoch
            ),
            body=ElectMasterResponseBody(None, sorted(self.decides.members)).encode(),
        )

    def _info(self, request: Request[GetReplicaInfoRequestHeader]) -> Response:
        master = self.decides.master or None
        return Response(
            header=GetReplicaInfoResponseHeader(
                master, self.addresses.get(master) if master else None, self.decides.epoch
            ),
            body=self._set(),
        )

    def _alter(self, request: Request[AlterSyncStateSetRequestHeader]) -> Response:
        header, wanted = request.header, SyncStateSet.decode(request.body)
        told = None
        if not self.keeps_set:
            told = self.decides.alter(
                header.master_broker_id,
                header.master_epoch,
                frozenset(wanted.sync_state_set),
                wanted.sync_state_set_epoch,
                self.now,
            )
        if told is None:
            return Response(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "refused")
        return Response(header=AlterSyncStateSetResponseHeader(told[1]), body=self._set())

    def _members(self, request: Request[Header]) -> Response:
        tables: dict[str, ReplicasInfo] = {}
        alive = self.decides.alive(self.now)
        for name in msgspec.json.decode(request.body, type=list[str]):
            tables[name] = ReplicasInfo(
                not_in_sync_replicas=[
                    ReplicaIdentity(
                        alive=number in alive,
                        broker_address=address,
                        broker_id=number,
                        broker_name=name,
                    )
                    for number, address in self.addresses.items()
                ]
            )
        return Response(body=BrokerReplicasInfo(tables).encode())

    def _heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> None:
        header = request.header
        self.heartbeats.append(header)
        number = header.broker_id
        if number is None:
            return
        self.decides.heartbeat(number, self.now, header.epoch or 0, header.max_offset or 0)
        connection = request.connection
        if self._connections.get(number) is not connection:
            self._connections[number] = connection
            connection.add_close_callback(partial(self._closed, number))

    def _closed(self, number: int, connection: object) -> None:
        """Its process has died, unless a later one has sent heartbeats on another connection."""
        if self._connections.get(number) is connection:
            del self._connections[number]
            self.decides.gone(number)

    def _set(self) -> bytes:
        return SyncStateSet(sorted(self.decides.members), self.decides.set_epoch).encode()
