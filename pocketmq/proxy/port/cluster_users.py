"""The users and access lists of a cluster, read from its brokers.

A proxy reads all of them when it starts, and again every ten seconds, so a change at a broker takes
effect here within ten seconds. While no broker answers, the last known ones apply. Before the first
answer, all calls are refused.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from pocketmq.auth.errors import AuthError
from pocketmq.auth.settings import inner_user
from pocketmq.auth.store import AclInfo, AuthTables, UserInfo
from pocketmq.client.instance import ClientInstance
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.cluster import ClusterInfo
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError, error_for
from pocketmq.remoting.headers.auth import ListAclsRequestHeader, ListUsersRequestHeader
from pocketmq.remoting.headers.base import Header

log = logging.getLogger("pocketmq.proxy")

INTERVAL: Final = 10.0

T = TypeVar("T")


class ClusterUsers:
    """Keeps `tables` in sync with the brokers; `credentials` is the setting of that name."""

    def __init__(
        self, instance: ClientInstance, credentials: str, *, interval: float = INTERVAL
    ) -> None:
        self._interval = interval
        self.tables = AuthTables(Path())  # never written
        self.tables.inner = inner_user(credentials)
        self._instance = instance
        self._log = LimitedLog(log)
        self._task: KeptTask | None = None

    async def start(self) -> None:
        """Read them now, and then periodically."""
        await self._try_to_read()
        self._task = KeptTask(self._run, "users of the cluster")

    async def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    async def read(self) -> None:
        """Read them from the first broker that answers. Raises RemotingError."""
        answer = await self._instance.name_servers.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        table = ClusterInfo.decode(answer.body).broker_addr_table
        last: RemotingError = RemotingError(1, "the name servers know no broker")
        for broker in table.values():
            address = broker.broker_addrs.get(0)
            if address is None:
                continue
            try:
                users = await self._ask(
                    address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(), list[UserInfo]
                )
                acls = await self._ask(
                    address, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader(), list[AclInfo]
                )
                self.tables.adopt(users, acls)
                return
            except RemotingError as error:
                last = error
        raise last

    async def _ask(self, address: str, code: int, header: Header, kind: type[T]) -> T:
        answer = await self._instance.pool.request(address, code, header)
        if answer.code:
            raise error_for(answer.code, answer.remark, address)
        try:
            found: T = msgspec.json.decode(answer.body or b"[]", type=kind)
        except msgspec.MsgspecError:
            # The error text may contain a password.
            raise AuthError(f"the answer of {address} to request {code} cannot be read") from None
        return found

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._try_to_read()

    async def _try_to_read(self) -> None:
        try:
            await self.read()
        except RemotingError as error:
            self._log.warning("the users of the brokers cannot be read: %s", error)
