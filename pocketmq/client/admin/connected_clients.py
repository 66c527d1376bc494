"""The clients that are connected to a cluster: consumers by group, and producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.traffic import each
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.remoting.bodies.consumer import ConsumerConnection
from pocketmq.remoting.codes import release_of

_ROLES: Final = {
    "CONSUME_ACTIVELY": "pull consumer",
    "CONSUME_PASSIVELY": "push consumer",
    "CONSUME_POP": "pop consumer",
}


class ConnectedClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client in one of its groups; `release`: of RocketMQ, such as 5.5.0."""

    group: str
    role: str
    client_id: str
    address: str
    language: str
    release: str


async def online(admin: Admin, group: str) -> ConsumerConnection | None:
    """Return the connected clients of a group; None if there are none."""
    try:
        return await admin.consumers(group)
    except ConsumerNotOnline:
        return None


async def connected_clients(
    admin: Admin, groups: Iterable[str] | None = None
) -> list[ConnectedClient]:
    """Return every connected client, or those of some groups; consumers first, sorted by group."""

    async def consumers(group: str) -> ConsumerConnection:
        return await online(admin, group) or ConsumerConnection()

    wanted = None if groups is None else set(groups)
    found = await each(
        [name for name in await admin.groups() if wanted is None or name in wanted], consumers
    )
    clients = [
        ConnectedClient(
            group=group,
            role=_ROLES.get(connected.consume_type, "consumer"),
            client_id=client.client_id,
            address=client.client_addr,
            language=client.language,
            release=release_of(client.version),
        )
        for group, connected in found.items()
        for client in connected.connection_set
    ]
    return clients + [
        ConnectedClient(
            group=group,
            role="producer",
            client_id=producer.client_id,
            address=producer.remote_ip.removeprefix("/"),
            language=producer.language,
            release=release_of(producer.version),
        )
        for group, producers in (await admin.producer_groups()).items()
        if wanted is None or group in wanted
        for producer in producers
    ]
