"""The broker's settings as admins see and change them: GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG.

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from pocketmq.broker.live_config import LiveConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.headers import GetBrokerConfigResponseHeader, Header
from pocketmq.remoting.properties_file import config_properties, format_properties, parse_properties
from pocketmq.remoting.request import Request, Response

#: What tools look for and is no setting here: a broker has no slaves.
FIXED: Final = {"brokerRole": "ASYNC_MASTER", "slaveReadEnable": "false"}


class SettingsProcessor:
    """Requests about the settings of one broker.

    `announced()` waits (bounded) until the name servers know of the latest changes.
    """

    def __init__(self, live: LiveConfig, announced: Callable[[], Awaitable[None]]) -> None:
        self._live = live
        self._announced = announced
        self._writing = asyncio.Lock()

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the settings' codes here."""
        dispatcher.register(RequestCode.UPDATE_BROKER_CONFIG, self.update)
        dispatcher.register(RequestCode.GET_BROKER_CONFIG, self.get)

    def get(self, request: Request[Header]) -> Response:
        """All settings as properties text, sorted by name, and what other brokers can set."""
        text = format_properties(FIXED | config_properties(self._live.config))
        version = msgspec.json.encode(self._live.data_version).decode()
        return Response(header=GetBrokerConfigResponseHeader(version=version), body=text.encode())

    async def update(self, request: Request[Header]) -> Response:
        """Change settings: all that are named, or none; answered when they are in the file."""
        try:
            changes = parse_properties(str(request.body, "utf-8")) if request.body else {}
        except UnicodeDecodeError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"the settings are no UTF-8 text: {error}")
        if not changes:
            return Response()
        async with self._writing:
            self._live.update(changes)
            try:
                await asyncio.to_thread(self._live.keep, changes)
            except OSError as error:
                path = self._live.config.broker_config_path
                return Response(
                    ResponseCode.SYSTEM_ERROR, f"changed, but not written to {path}: {error}"
                )
        await self._announced()
        return Response()
