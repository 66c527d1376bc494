"""The key-value configuration: namespaces of keys and texts, kept in a file.

The file is the official `kvConfig.json`: `{"configTable":{"NAMESPACE":{"KEY":"VALUE"}}}`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from pocketmq.blocking_thread import BlockingThread
from pocketmq.error_kind import kind_of
from pocketmq.limited_log import LimitedLog, shown
from pocketmq.message import fastjson
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.namesrv.change_queue import ChangeQueue
from pocketmq.namesrv.text_file import TextFile

log = logging.getLogger("pocketmq.namesrv.kv_config")

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Topic to `b0:4;b1:4`: the fixed queues of strictly ordered topics."""

MAX_SIZE = 16 << 20
"""Bytes of the whole table as JSON, unless its owner says otherwise."""

_LOGGED: Final = 1000
_LOGGED_CHARACTERS: Final = 1000

_ENCODED_TOGETHER: Final = 512
"""Entries that are encoded in one go."""
_PAUSE: Final = 0.0001
"""Seconds between two such goes. Encoding holds Python's lock, even in a thread, and a request that
comes meanwhile would wait five milliseconds for it, several times."""


class KVConfigError(Exception):
    """The table cannot be read from or written to its file, or became too large."""


class _File(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class _Change(NamedTuple):
    namespace: str
    key: str
    value: str | None  # None deletes it


_Changes = dict[str, dict[str, str | None]]


class KVConfig:
    """The table and its file. A change is in the file before the call that made it returns, and
    before it is seen.

    `max_size` bounds the whole table, in bytes of JSON, and also the changes that wait.
    """

    def __init__(self, file: TextFile, *, max_size: int = MAX_SIZE) -> None:
        self._file = file
        self._log = LimitedLog(log)
        self._max_size = max_size
        self._table: dict[str, dict[str, str]] = {}
        self._size = 0
        self._waiting_size = 0
        self._queue = ChangeQueue(file.path.name, self._write)

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
        with contextlib.suppress(UnicodeEncodeError):  # such a table cannot be written either
            self._size = len(msgspec.json.encode(_File(self._table)))
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

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises `KVConfigError`, and then changes nothing."""
        await self._change(_Change(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value if it is there. Raises `KVConfigError`."""
        await self._change(_Change(namespace, key, None))

    async def _change(self, change: _Change) -> None:
        size = len(change.namespace) + len(change.key) + len(change.value or "")
        if self._waiting_size and self._waiting_size + size > self._max_size:
            raise KVConfigError(
                f"{self._waiting_size} characters wait to be written to {self._file.path.name}, "
                f"and {size} more come, at most {self._max_size}: try again later"
            )
        self._waiting_size += size
        try:
            await self._queue.add(change)
        finally:
            self._waiting_size -= size

    async def stop(self) -> None:
        """Write the changes that wait."""
        await self._queue.stop()

    async def _write(
        self, batch: Sequence[_Change], thread: BlockingThread
    ) -> list[Exception | None]:
        changes: _Changes = {}
        errors: list[Exception | None] = []
        size = self._size
        for change in batch:
            try:
                size = self._note(change, changes, size)
                errors.append(None)
            except (KVConfigError, UnicodeEncodeError) as error:
                errors.append(error)
        if not changes:
            return errors
        try:
            # The thread reads the table, which nothing else changes meanwhile.
            await thread.call(partial(self._replace, changes))
        except OSError as error:
            self._log.error("%s cannot be written: %s", self._file.path, error)
            failure = KVConfigError(f"{self._file.path.name} cannot be written: {kind_of(error)}")
            return [each or failure for each in errors]
        self._size = size
        for namespace, changed in changes.items():
            entries = self._table.setdefault(namespace, {})
            for key, value in changed.items():
                if value is None:
                    entries.pop(key, None)
                    self._log.info("deleted config item, Namespace: %s Key: %s", namespace, key)
                    continue
                self._log.info(
                    "%s config item, Namespace: %s Key: %s Value: %s",
                    "updated" if key in entries else "new",
                    namespace,
                    key,
                    shown(value, _LOGGED_CHARACTERS),
                )
                entries[key] = value
        return errors

    def _note(self, change: _Change, changes: _Changes, size: int) -> int:
        """Add a change to those of a batch; return the size of the table with them."""
        namespace, key, value = change
        changed = changes.get(namespace, {})
        known = changed[key] if key in changed else self.get(namespace, key)
        if known is None and value is None:
            return size
        before = size
        if namespace not in self._table and namespace not in changes:
            size += len(msgspec.json.encode({namespace: {}})) - 1
        if known is not None:
            size -= len(msgspec.json.encode({key: known})) - 1
        if value is not None:
            size += len(msgspec.json.encode({key: value})) - 1
            if size > max(before, self._max_size):
                raise KVConfigError(
                    f"the KV config would have {size} bytes, at most {self._max_size}"
                )
        changes.setdefault(namespace, {})[key] = value
        return size

    def _replace(self, changes: _Changes) -> None:
        self._file.replace(_encoded(self._table, changes))

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all values of a namespace, or None when it never existed."""
        return self._table.get(namespace)

    def log_table(self) -> None:
        """Write the begin of the table to the log, as name servers do every ten minutes."""
        log.info("configTable SIZE: %d", len(self._table))
        entries = (
            (namespace, key, value)
            for namespace, entries in self._table.items()
            for key, value in entries.items()
        )
        for entry in islice(entries, _LOGGED):
            log.info(
                "configTable NS: %s Key: %s Value: %s",
                *(shown(text, _LOGGED_CHARACTERS) for text in entry),
            )
        if (left := sum(map(len, self._table.values())) - _LOGGED) > 0:
            log.info("configTable: %d more entries", left)


def _encoded(table: Mapping[str, Mapping[str, str]], changes: _Changes) -> Iterator[bytes]:
    """Yield the pieces of the file, with pauses between them."""
    yield b'{"configTable":{'
    for number, namespace in enumerate(dict.fromkeys((*table, *changes))):
        yield (b"," if number else b"") + msgspec.json.encode(namespace) + b":{"
        separator = b""
        for entries in _amended(table.get(namespace, {}), changes.get(namespace, {})):
            if entries:
                yield separator + msgspec.json.encode(entries)[1:-1]
                separator = b","
            time.sleep(_PAUSE)
        yield b"}"
    yield b"}}"


def _amended(
    entries: Mapping[str, str], changed: Mapping[str, str | None]
) -> Iterator[dict[str, str]]:
    """Yield the entries with the changes, some at a time."""
    left = iter(entries.items())
    while some := dict(islice(left, _ENCODED_TOGETHER)):
        for key in some.keys() & changed.keys():
            value = changed[key]
            if value is None:
                del some[key]
            else:
                some[key] = value
        yield some
    new = iter([(k, v) for k, v in changed.items() if k not in entries and v is not None])
    while some := dict(islice(new, _ENCODED_TOGETHER)):
        yield some
