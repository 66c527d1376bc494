"""Admin requests about the broker's settings: GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG,
SWITCH_TIMER_ENGINE.

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from pocketmq.auth.settings import hidden
from pocketmq.broker.live_config import LiveConfig
from pocketmq.error_kind import kind_of
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    GetBrokerConfigResponseHeader,
    Header,
    SwitchTimerEngineRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.settings.properties_file import (
    config_properties,
    format_properties,
    parse_properties,
)

log = logging.getLogger(__name__)


class SettingsProcessor:
    """Requests about the settings of one broker.

    `announced()` waits, for a bounded time, until the name servers have the latest changes.
    """

    def __init__(self, live: LiveConfig, announced: Callable[[], Awaitable[None]]) -> None:
        self._live = live
        self._announced = announced
        self._writing = asyncio.Lock()

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the settings' codes here."""
        dispatcher.register(RequestCode.UPDATE_BROKER_CONFIG, self.update)
        dispatcher.register(RequestCode.GET_BROKER_CONFIG, self.get)
        dispatcher.register(
            RequestCode.SWITCH_TIMER_ENGINE, self.switch_timer, SwitchTimerEngineRequestHeader
        )

    def get(self, request: Request[Header]) -> Response:
        """Return all settings as properties text, sorted by name."""
        live = self._live
        text = format_properties(live.idle | hidden(config_properties(live.config)))
        version = msgspec.json.encode(self._live.data_version).decode()
        return Response(header=GetBrokerConfigResponseHeader(version=version), body=text.encode())

    async def update(self, request: Request[Header]) -> Response:
        """Change all given settings or none; answer when they are in the file.

        The remark of a success names the settings that have no effect here.
        """
        try:
            changes = parse_properties(str(request.body, "utf-8")) if request.body else {}
        except UnicodeDecodeError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8 text: {error}")
        if not changes:
            return Response()
        async with self._writing:
            warnings = self._live.update(changes)
            try:
                await asyncio.to_thread(self._live.keep, changes)
            except OSError as error:
                log.error("settings are changed, but not written to %s: %s", self._live.path, error)
                return Response(
                    ResponseCode.SYSTEM_ERROR,
                    f"changed, but not written to {self._live.path.name}: {kind_of(error)}",
                )
        await self._announced()
        return Response(remark="; ".join(warnings) or None)

    def switch_timer(self, request: Request[SwitchTimerEngineRequestHeader]) -> Response:
        """Accept the engine in files, which is the only one here. Refuse any other, as the official
        broker does that was started without timerRocksDBEnable."""
        engine = request.header.engine
        if not self._live.config.timer_wheel_enable:
            reason = "broker timerWheelEnable is false"
        elif engine == "R":
            reason = "this broker has no timer in RocksDB (timerRocksDBEnable)"
        elif engine != "F":
            reason = f"param error: E_T is {engine!r}, it is F or R"
        else:
            return Response(remark="switch timer engine success")
        raise RemotingError(ResponseCode.INVALID_PARAMETER, reason)
