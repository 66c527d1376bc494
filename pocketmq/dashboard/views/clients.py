"""A list of the connected clients."""

from __future__ import annotations

from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import ConnectedClient, connected_clients
from pocketmq.dashboard.views.listing import Listing, page_of


async def clients_view(admin: Admin, *, text: str = "", page: int = 1) -> Listing[ConnectedClient]:
    """Return a page of the clients of all groups with `text` in one of their fields."""
    wanted = text.strip().lower()
    return page_of(
        [
            client
            for client in await connected_clients(admin)
            if any(wanted in getattr(client, name).lower() for name in client.__struct_fields__)
        ],
        page,
    )
