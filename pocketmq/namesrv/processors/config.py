"""The name server's own settings over the wire."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pocketmq.auth.settings import hidden
from pocketmq.blocking_thread import BlockingThread
from pocketmq.error_kind import kind_of
from pocketmq.limited_log import LimitedLog
from pocketmq.namesrv.change_queue import ChangeQueue
from pocketmq.namesrv.config import FIXED, NEVER_CHANGED, NamesrvConfig
from pocketmq.namesrv.text_file import TextFile
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.settings.properties_file import (
    ConfigError,
    amend_properties,
    config_properties,
    decode_properties,
    format_properties,
    parse_properties,
    read_property,
)

log = logging.getLogger("pocketmq.namesrv.processors.config")


class ConfigProcessor:
    """UPDATE_NAMESRV_CONFIG, GET_NAMESRV_CONFIG.

    Changed settings, except for the address to listen on, take effect at once and are written to
    configStorePath; other content of that file stays. Then `on_change` is called. The next start
    reads the settings from there (`pocketmq.namesrv.config.take_kept`).
    """

    MAX_SIZE: Final = 64 * 1024
    """Bytes of settings in one request. The file with all of them is written at each change."""

    def __init__(self, config: NamesrvConfig, on_change: Callable[[], object]) -> None:
        self._config = config
        self._on_change = on_change
        self._log = LimitedLog(log)
        self._queue = ChangeQueue("namesrv.properties", self._write)

    async def stop(self) -> None:
        """Write the changes that wait."""
        await self._queue.stop()

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the codes of this family."""
        dispatcher.register(RequestCode.UPDATE_NAMESRV_CONFIG, self.update)
        dispatcher.register(RequestCode.GET_NAMESRV_CONFIG, self.get)

    def update(self, request: Request[Header]) -> Response | Awaitable[Response]:
        """Change all named settings or none, and answer when they are in the file."""
        if len(request.body) > self.MAX_SIZE:
            return Response(
                ResponseCode.SYSTEM_ERROR,
                f"the settings have {len(request.body)} bytes, at most {self.MAX_SIZE}",
            )
        try:
            changes = parse_properties(str(request.body, "utf-8"))
        except UnicodeDecodeError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8 text: {error}")
        if not changes:
            return Response()
        refused = NEVER_CHANGED.union(self._config.config_black_list.split(";"))
        if not refused.isdisjoint(changes):
            return Response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if fixed := sorted(FIXED.intersection(changes)):
            return Response(
                ResponseCode.NO_PERMISSION,
                f"{fixed[0]} cannot change while the name server runs: set it in namesrv.conf and "
                "restart",
            )
        values = {}
        try:
            for key, text in changes.items():
                try:
                    values[key] = read_property(NamesrvConfig, key, text)
                except KeyError:
                    self._log.warning(
                        "unknown setting %s from %s is ignored", key, request.connection
                    )
        except ConfigError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        names = dict(
            zip(
                NamesrvConfig.__struct_encode_fields__, NamesrvConfig.__struct_fields__, strict=True
            )
        )
        for key, value in values.items():
            self._log.info("setting %s = %s by %s", key, value, request.connection)
            setattr(self._config, names[key], value)
        self._on_change()
        return self._written({key: text for key, text in changes.items() if key in values})

    async def _written(self, changes: Mapping[str, str]) -> Response:
        try:
            await self._queue.add(changes)
        except OSError as error:
            path = self._config.config_store_path
            self._log.error("settings are changed, but not written to %s: %s", path, error)
            return Response(
                ResponseCode.SYSTEM_ERROR,
                f"changed, but not written to {Path(path).name}: {kind_of(error)}",
            )
        return Response()

    async def _write(
        self, batch: Sequence[Mapping[str, str]], thread: BlockingThread
    ) -> list[None]:
        changes = {key: text for each in batch for key, text in each.items()}
        await thread.call(partial(self._persist, changes))
        return [None] * len(batch)

    def _persist(self, changes: Mapping[str, str]) -> None:
        path = Path(self._config.config_store_path)
        text, _ = decode_properties(path.read_bytes() if path.exists() else b"")
        TextFile(path).replace([amend_properties(text, changes).encode()])

    def get(self, request: Request[Header]) -> Response:
        """Return all settings, sorted by name."""
        return Response(body=format_properties(hidden(config_properties(self._config))).encode())
