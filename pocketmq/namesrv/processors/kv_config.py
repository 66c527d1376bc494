"""The key-value configuration over the wire."""

from __future__ import annotations

from pocketmq.message import fastjson
from pocketmq.namesrv.kv_config import KVConfig, KVConfigError
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.request import Request, Response


class KVConfigProcessor:
    """PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE."""

    def __init__(self, kv_config: KVConfig, long: LongRequests) -> None:
        self._kv_config = kv_config
        self._long = long

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the codes of this family."""
        dispatcher.register(RequestCode.PUT_KV_CONFIG, self.put, PutKVConfigRequestHeader)
        dispatcher.register(RequestCode.GET_KV_CONFIG, self.get, GetKVConfigRequestHeader)
        dispatcher.register(RequestCode.DELETE_KV_CONFIG, self.delete, DeleteKVConfigRequestHeader)
        dispatcher.register(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            self.get_list_by_namespace,
            GetKVListByNamespaceRequestHeader,
        )

    async def put(self, request: Request[PutKVConfigRequestHeader]) -> Response:
        """Set a value, and answer when it is in the file."""
        header = request.header
        try:
            await self._kv_config.put(header.namespace, header.key, header.value)
        except KVConfigError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        return Response()

    def get(self, request: Request[GetKVConfigRequestHeader]) -> Response:
        """One value."""
        header = request.header
        value = None
        if header.namespace is not None and header.key is not None:
            value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            return Response(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Response(header=GetKVConfigResponseHeader(value))

    async def delete(self, request: Request[DeleteKVConfigRequestHeader]) -> Response:
        """Remove a value if it is there."""
        header = request.header
        if header.namespace is None or header.key is None:
            return Response()
        try:
            await self._kv_config.delete(header.namespace, header.key)
        except KVConfigError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        return Response()

    async def get_list_by_namespace(
        self, request: Request[GetKVListByNamespaceRequestHeader]
    ) -> Response:
        """Return all values of a namespace."""
        namespace = request.header.namespace
        entries = None if namespace is None else self._kv_config.namespace(namespace)
        if entries is None:
            return Response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        table = await self._long.run(request, fastjson.encode_steps(entries))
        return Response(body=fastjson.encode({"table": table}))
