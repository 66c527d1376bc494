"""Configuration: KV config of the name servers, settings and runtime figures of all servers."""

from __future__ import annotations

from collections.abc import Mapping

from pocketmq.client.admin.servers import Servers
from pocketmq.client.errors import RemotingError
from pocketmq.client.parameters import MOST_OFFSET, text, texts_by_name, whole
from pocketmq.client.routes.route import MASTER_ID, PERM_READ, PERM_WRITE
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.table import BrokerStatsData, KVTable
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from pocketmq.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from pocketmq.remoting.settings.properties_file import format_properties, parse_properties


class ConfigAdmin(Servers):
    """Admin's methods for configuration."""

    # KV config. Its namespaces have nothing to do with the client's option `namespace`.

    async def config(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty if it does not exist."""
        header = GetKVListByNamespaceRequestHeader(namespace=text("namespace", namespace))
        try:
            answer = await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except RemotingError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return KVTable.decode(answer.body).table

    async def get_config(self, namespace: str, key: str) -> str | None:
        """Return one value; None if it does not exist."""
        header = GetKVConfigRequestHeader(
            namespace=text("namespace", namespace), key=text("key", key)
        )
        try:
            answer = await self._ask(RequestCode.GET_KV_CONFIG, header)
        except RemotingError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return GetKVConfigResponseHeader.from_ext(answer.ext_fields).value

    async def put_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value at every name server."""
        await self._tell(
            RequestCode.PUT_KV_CONFIG,
            PutKVConfigRequestHeader(
                namespace=text("namespace", namespace),
                key=text("key", key),
                value=text("value", value, empty=True),
            ),
        )

    async def delete_config(self, namespace: str, key: str) -> None:
        """Remove a value from every name server; no error if it does not exist."""
        await self._tell(
            RequestCode.DELETE_KV_CONFIG,
            DeleteKVConfigRequestHeader(
                namespace=text("namespace", namespace), key=text("key", key)
            ),
        )

    # Settings of the servers, by their official names

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return the settings of a broker group's master; raises BrokerNotFound."""
        masters = await self._masters(broker=text("broker", broker))
        answers = await self._each(masters, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(bytes(answers[broker].body).decode())

    async def update_broker_config(
        self,
        settings: Mapping[str, str],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Change settings of one `broker`, of every master of `cluster`, or of every master. It
        depends on the broker which settings take effect at once. Return the names of the brokers.
        Raises NoPermission for a setting that may not be changed."""
        body = format_properties(texts_by_name("settings", settings)).encode()
        masters = await self._masters(cluster, broker)
        return list(await self._each(masters, RequestCode.UPDATE_BROKER_CONFIG, body=body))

    async def drain_broker(self, broker: str) -> list[str]:
        """Set brokerPermission to 4 (read) on every member of a broker group that is registered
        now. Return their addresses; raise BrokerNotFound.

        Producers choose other brokers after their next route update (within 30 s); consumers
        continue. The members keep the setting after a restart, so a later master is drained too.
        """
        return await self._set_permission(broker, PERM_READ)

    async def undrain_broker(self, broker: str) -> list[str]:
        """Set brokerPermission to 6 (read and write) on every member of a broker group that is
        registered now. Return their addresses; raise BrokerNotFound. The brokers register their
        topics again, which also ends `wipe_write_perm`."""
        return await self._set_permission(broker, PERM_READ | PERM_WRITE)

    async def wipe_write_perm(self, broker: str) -> None:
        """Remove the write permission of a broker group's topics at every name server; for a broker
        that does not answer. Raises BrokerNotFound.

        It is restored when the broker registers changed topics or restarts, and by
        `undrain_broker`.
        """
        await self._members(broker)
        await self._tell(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name=broker),
        )

    async def _set_permission(self, broker: str, permission: int) -> list[str]:
        members = {
            broker if member == MASTER_ID else f"{broker} (replica {member})": address
            for member, address in sorted((await self._members(broker)).items())
        }
        body = format_properties({"brokerPermission": str(permission)}).encode()
        await self._each(members, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        return list(members.values())

    async def namesrv_config(self) -> dict[str, str]:
        """Return the settings of the name server in use."""
        answer = await self._ask(RequestCode.GET_NAMESRV_CONFIG)
        return parse_properties(bytes(answer.body).decode())

    async def update_namesrv_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of every name server; raises NoPermission for one that may not be
        changed."""
        body = format_properties(texts_by_name("settings", settings)).encode()
        await self._tell(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    # Runtime figures

    async def broker_runtime(self, broker: str, *, member: int = MASTER_ID) -> dict[str, str]:
        """Return the runtime figures of a broker group's master, or of the `member` with another
        broker id, as `mqadmin brokerStatus` prints them; raises BrokerNotFound."""
        address = await self._member(
            text("broker", broker), whole("member", member, 0, MOST_OFFSET)
        )
        answers = await self._each({broker: address}, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answers[broker].body).table

    async def broker_replication(self, broker: str) -> HARuntimeInfo:
        """Return the replication state of a broker group's slaves, as `mqadmin haStatus` prints
        it."""
        masters = await self._masters(broker=text("broker", broker))
        answers = await self._each(masters, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(answers[broker].body)

    async def broker_stats(self, name: str, key: str) -> dict[str, BrokerStatsData]:
        """Return a counter of each broker that has it, over the last minute, hour and day.

        Examples: TOPIC_PUT_NUMS of a topic, GROUP_GET_NUMS of "topic@group", BROKER_PUT_NUMS of a
        cluster. Raises RemoteSystemError if no broker has it.
        """
        header = ViewBrokerStatsDataRequestHeader(
            stats_name=text("name", name), stats_key=text("key", key)
        )
        answers = await self._each(
            await self._masters(),
            RequestCode.VIEW_BROKER_STATS_DATA,
            header,
            absent=ResponseCode.SYSTEM_ERROR,
        )
        return {broker: BrokerStatsData.decode(answer.body) for broker, answer in answers.items()}
