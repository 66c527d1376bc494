"""The clients that are connected: consumers by their groups, and producers."""

from __future__ import annotations

from typing import Final

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.traffic import each
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.dashboard.views.listing import Listing, page_of
from pocketmq.remoting.bodies.consumer import ConsumerConnection
from pocketmq.remoting.codes import release_of

_TYPES: Final = {
    "CONSUME_ACTIVELY": "pull consumer",
    "CONSUME_PASSIVELY": "push consumer",
    "CONSUME_POP": "pop consumer",
}


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """A client in one of its groups."""

    group: str
    role: str
    client_id: str
    address: str
    language: str
    release: str


async def clients_view(admin: Admin, *, text: str = "", page: int = 1) -> Listing[ClientRow]:
    """A page of the clients of all groups that have `text` in one of their fields."""
    rows = await client_rows(admin)
    wanted = text.strip().lower()
    return page_of(
        [
            row
            for row in rows
            if any(wanted in getattr(row, name).lower() for name in row.__struct_fields__)
        ],
        page,
    )


async def client_rows(admin: Admin) -> list[ClientRow]:
    """Every client that is connected, in the order of groups, consumers first."""

    async def consumers(group: str) -> ConsumerConnection:
        try:
            return await admin.consumers(group)
        except ConsumerNotOnline:
            return ConsumerConnection()

    found = await each(await admin.groups(), consumers)
    rows = [
        ClientRow(
            group=group,
            role=_TYPES.get(connected.consume_type, "consumer"),
            client_id=client.client_id,
            address=client.client_addr,
            language=client.language,
            release=release_of(client.version),
        )
        for group, connected in found.items()
        for client in connected.connection_set
    ]
    return rows + [
        ClientRow(
            group=group,
            role="producer",
            client_id=producer.client_id,
            address=producer.remote_ip.removeprefix("/"),
            language=producer.language,
            release=release_of(producer.version),
        )
        for group, producers in (await admin.producer_groups()).items()
        for producer in producers
    ]
