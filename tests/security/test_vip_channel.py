"""The VIP channel, a port of its own, asks for signatures as the broker's own port does."""

from __future__ import annotations

from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.interop.harness.ports import free_block
from tests.security.conftest import ADMIN, NOBODY, PROPERTIES, Connect, create_nobody


async def test_the_vip_channel_knows_users_and_grants(connect: Connect) -> None:
    port = free_block((-2, 0))
    async with EmbeddedServer(listen_port=port, properties=PROPERTIES) as server:
        await create_nobody(server, connect)
        codes = {}
        for user in (None, NOBODY, ADMIN):
            connection = await connect(f"127.0.0.1:{port - 2}", user)
            answer = await connection.request(RequestCode.GET_BROKER_CONFIG)
            codes[user] = answer.code
    refused = ResponseCode.NO_PERMISSION
    assert codes == {None: refused, NOBODY: refused, ADMIN: ResponseCode.SUCCESS}
