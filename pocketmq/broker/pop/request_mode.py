"""Whether a group pops or pulls, by topic and group, saved in config/messageRequestMode.json.

An admin sets it (`mqadmin setConsumeMode`); it is on the disk when the request is answered.
Reference: MessageRequestModeManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.bodies.pop import (
    POP,
    PULL,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from pocketmq.store.config_file import ConfigFile, ConfigFileError
from pocketmq.table_writer import TableWriter


class MessageRequestModes:
    """The table of one broker."""

    def __init__(self, config: BrokerConfig, path: Path) -> None:
        self._config = config
        self._file = ConfigFile(path, "modes of message requests")
        self._writer = TableWriter(path, self._encode, self._file.write)
        self.table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def load(self) -> None:
        """Read the file. Raises ConfigFileError."""
        document = self._file.load()
        try:
            self.table = lenient.convert(
                document, MessageRequestModeSerializeWrapper
            ).message_request_mode_map
        except (AttributeError, msgspec.ValidationError) as error:
            raise ConfigFileError(self._file.path, str(error)) from None

    def start(self) -> None:
        """Write changes from now on; call this on the event loop."""
        self._writer.start()

    async def stop(self) -> None:
        """Write the remaining changes, and stop."""
        await self._writer.stop()

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """Return how a group reads a topic, or the default if it was not set."""
        known = self.table.get(topic, {}).get(group)
        if known is not None:
            return known
        config = self._config
        mode = PULL if topic.startswith(RETRY_PREFIX) else config.default_message_request_mode
        return SetMessageRequestModeRequestBody(
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=config.default_pop_share_queue_num if mode == POP else 0,
            topic=topic,
        )

    async def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set how a group reads a topic. Raises like `TableWriter.saved`."""
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._writer.changed()
        await self._writer.saved(self._writer.revision)

    def follow(self, table: Mapping[str, dict[str, SetMessageRequestModeRequestBody]]) -> None:
        """Copy a master's table."""
        if self.table != table:
            self.table = dict(table)
            self._writer.changed()

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic."""
        if self.table.pop(topic, None) is not None:
            self._writer.changed()

    def document(self) -> MessageRequestModeSerializeWrapper:
        """Return the table in the form of the file."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self.table)

    def _encode(self) -> bytes:
        return self._file.encode(msgspec.to_builtins(self.document()))
