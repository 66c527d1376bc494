"""The online producers: producer groups and the connections of their members.

Heartbeats fill this table. Admin requests read it, transaction checks choose a member from it, and
replies find the requester in it. Reference: broker ProducerManager.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pocketmq.broker.tables.consumer_groups import ClientInfo
from pocketmq.broker.tables.memberships import REMOVED_AT_ONCE, Memberships
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.monotonic import MonotonicClock
from pocketmq.remoting.serving.long_requests import Steps

log = logging.getLogger(__name__)


class ProducerGroups:
    """All producer groups with a live member."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Any, ClientInfo]] = {}
        self._memberships = Memberships("producer group", self.unregister, LimitedLog(log))
        self._by_id: dict[str, ClientInfo] = {}
        self._turn = itertools.count()

    def clients(self, group: str) -> Iterable[ClientInfo] | None:
        """Return the members of `group`; None if the group does not exist."""
        members = self._groups.get(group)
        return None if members is None else members.values()

    def all(self) -> Mapping[str, Iterable[ClientInfo]]:
        """Return every group with its members."""
        return {group: members.values() for group, members in self._groups.items()}

    def find(self, client_id: str) -> ClientInfo | None:
        """Return the member of any group with this client id and the most recent heartbeat."""
        return self._by_id.get(client_id)

    def available(self, group: str, topic: str) -> ClientInfo | None:
        """Return a member to check a transaction of `topic`, members in rotation; None if there is
        none. The member must have permission to publish to the topic, because any client can claim
        a group, and the check contains the message."""
        members = list(self._groups.get(group, {}).values())
        start = next(self._turn)
        for n in range(len(members)):
            client = members[(start + n) % len(members)]
            if (
                client.connection.writable
                and not client.connection.closed
                and client.may_publish(topic)
            ):
                return client
        return None

    def register(self, group: str, client: ClientInfo) -> None:
        """Register a client in one producer group of its heartbeat."""
        connection = client.connection
        if not self._memberships.add(group, connection, client.caller):
            return
        before = self._groups.setdefault(group, {}).get(connection)
        if before is not None and before.client_id != client.client_id:
            self._forget_id(before)
        self._groups[group][connection] = client
        self._by_id[client.client_id] = client

    def unregister(self, group: str, connection: Any) -> None:
        """Remove a member, and the group with its last member."""
        members = self._groups.get(group)
        if members is None:
            return
        client = members.pop(connection, None)
        self._memberships.remove(group, connection)
        if client is not None and not self._named_by(client, self._memberships.of(connection)):
            self._forget_id(client)
        if not members:
            del self._groups[group]

    def _named_by(self, client: ClientInfo, groups: Iterable[str]) -> bool:
        """Tell whether the client is a member of one of `groups` with the same id."""
        members = (self._groups[group].get(client.connection) for group in groups)
        return any(member and member.client_id == client.client_id for member in members)

    def _forget_id(self, client: ClientInfo) -> None:
        known = self._by_id.get(client.client_id)
        if known is not None and known.connection is client.connection:
            del self._by_id[client.client_id]

    def expire(self, silent_ms: int) -> Steps[None]:
        """Remove the clients that sent no heartbeat for `silent_ms`, in steps."""
        now, looked_at = self._clock(), 0
        for group in list(self._groups):
            for connection in list(self._groups.get(group, ())):
                looked_at += 1
                if not looked_at % REMOVED_AT_ONCE:
                    yield
                # It may have been heard, or have left, since the first step.
                client = self._groups.get(group, {}).get(connection)
                if client is not None and now - client.seen > silent_ms:
                    self.unregister(group, connection)
