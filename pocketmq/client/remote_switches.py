"""The selector's switches, read from the name server's KV config with each route poll."""

from __future__ import annotations

import logging

from pocketmq.client.errors import RemotingError
from pocketmq.client.routes.name_servers import NameServers
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.client.selector.switches import CLIENT_CONFIG_NAMESPACE, Switches
from pocketmq.remoting.bodies.table import KVTable
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import GetKVListByNamespaceRequestHeader

log = logging.getLogger(__name__)


class RemoteSwitches:
    """Sets a selector's switches to the local values, overridden by those of the name server."""

    def __init__(self, name_servers: NameServers, selector: QueueSelector) -> None:
        self._name_servers = name_servers
        self._selector = selector
        self._local = selector.switches

    async def read(self) -> Switches:
        """Read the switches once and apply them. If no name server answers, nothing changes."""
        header = GetKVListByNamespaceRequestHeader(namespace=CLIENT_CONFIG_NAMESPACE)
        try:
            answer = await self._name_servers.request(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
            table = KVTable.decode(answer.body).table
        except RemotingError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            table = {}
        switches = self._local.overridden(table)
        if switches != self._selector.switches:
            log.info("switches of the queue selector: %s", switches)
            self._selector.apply(switches)
        return switches
