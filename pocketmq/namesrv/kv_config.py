"""The key-value configuration: namespaces of keys and texts, kept in a file.

The file is the official `kvConfig.json`: `{"configTable":{"NAMESPACE":{"KEY":"VALUE"}}}`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from pocketmq.limited_log import LimitedLog
from pocketmq.message import fastjson
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.namesrv.text_file import TextFile

log = logging.getLogger("pocketmq.namesrv.kv_config")

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Topic to `b0:4;b1:4`: the fixed queues of strictly ordered topics."""

MAX_SIZE = 16 << 20
"""Bytes of the whole table as JSON, unless its owner says otherwise."""


class KVConfigError(Exception):
    """The table cannot be read from or written to its file, or became too large."""


class _File(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfig:
    """The table and its file. A change is in the file before the call that made it returns.

    `max_size` bounds the whole table, in bytes of JSON.
    """

    def __init__(self, file: TextFile, *, max_size: int = MAX_SIZE) -> None:
        self._file = file
        self._log = LimitedLog(log)
        self._max_size = max_size
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, or its predecessor if the file is broken.

        Raises:
            KVConfigError: neither can be read. Starting with an empty table would overwrite them.
        """
        try:
            self._table = self._parse(self._file.read())
        except (OSError, UnicodeDecodeError, FastjsonError) as error:
            try:
                backup = self._file.read_backup()
                if backup is None:
                    raise error
                self._table = self._parse(backup)
            except (OSError, UnicodeDecodeError, FastjsonError):
                raise KVConfigError(
                    f"{self._file.path} cannot be read ({error}) and has no readable backup: "
                    "mend it or move it away"
                ) from None
            log.warning("%s cannot be read (%s): took its .bak", self._file.path, error)
        log.info("load KV config table OK: %d namespaces", len(self._table))

    @staticmethod
    def _parse(text: str | None) -> dict[str, dict[str, str]]:
        if text is None:
            return {}
        try:
            # Not fastjson first: it drops an entry with the key $ref.
            return msgspec.json.decode(text, type=_File).config_table
        except (msgspec.DecodeError, RecursionError):
            return fastjson.decode_into(text, _File).config_table

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises `KVConfigError`, and then changes nothing."""
        entries = self._table.get(namespace, {})
        self._store(namespace, {**entries, key: value})
        self._log.info(
            "%s config item, Namespace: %s Key: %s Value: %s",
            "updated" if key in entries else "new",
            namespace,
            key,
            value,
        )

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value if it is there. Raises `KVConfigError`."""
        entries = self._table.get(namespace, {})
        if key not in entries:
            return
        self._store(namespace, {k: v for k, v in entries.items() if k != key})
        self._log.info("deleted config item, Namespace: %s Key: %s", namespace, key)

    def _store(self, namespace: str, entries: dict[str, str]) -> None:
        table = {**self._table, namespace: entries}
        text = msgspec.json.encode(_File(table))
        if len(text) > self._max_size:
            raise KVConfigError(
                f"the KV config would have {len(text)} bytes, at most {self._max_size}"
            )
        try:
            self._file.replace(text.decode())
        except OSError as error:
            raise KVConfigError(f"{self._file.path} cannot be written: {error}") from None
        self._table = table

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all values of a namespace, or None when it never existed."""
        return self._table.get(namespace)

    def log_table(self) -> None:
        """Write the table to the log, as name servers do every ten minutes."""
        log.info("configTable SIZE: %d", len(self._table))
        for namespace, entries in self._table.items():
            for key, value in entries.items():
                log.info("configTable NS: %s Key: %s Value: %s", namespace, key, value)
