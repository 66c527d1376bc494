"""A table of the broker as a JSON file: config/topics.json, consumerOffset.json and their like.

The files are the official broker's, so either broker goes on with what the other one wrote: they
are read with fastjson's tolerance (bare integer keys), what they hold that is unknown here is kept,
and the content before the last change stays beside them as NAME.bak. Reference: ConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketmq.message import fastjson
from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files

log = logging.getLogger(__name__)


class ConfigFileError(StoreError):
    """Neither the file nor its .bak can be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}, and there is no usable {path.name}.bak beside it")
        self.path = path


class ConfigFile:
    """One such file. All methods block.

    `encode` and `write` together are `save`: encode on the event loop, write on a thread.
    """

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self._files = files or Files()
        self._document: dict[str, Any] = {}
        self._content: bytes | None = None

    def load(self) -> dict[str, Any]:
        """Return the document; from NAME.bak when the file is missing, empty or broken; {} without
        both.

        Raises:
            ConfigFileError: there is a file, but nothing that can be read.
        """
        self._content = None
        try:
            document = self._read(self.path)
        except fastjson.FastjsonError as error:
            log.error(
                "%s cannot be read (%s); reading %s instead", self.path, error, self.backup.name
            )
            try:
                document = self._read(self.backup)
            except fastjson.FastjsonError:
                document = None
            if document is None:
                raise ConfigFileError(self.path, str(error)) from error
        else:
            if document is None:
                try:
                    document = self._read(self.backup)
                except fastjson.FastjsonError as error:
                    raise ConfigFileError(self.path, f"missing, and {error}") from error
        self._document = document or {}
        return dict(self._document)

    def save(self, document: Mapping[str, Any]) -> None:
        """Write `document`, with the keys of the loaded one that it does not have.

        Integer keys are written bare. Raises OSError; the file is then as it was.
        """
        self.write(self.encode(document))

    def encode(self, document: Mapping[str, Any]) -> bytes:
        """Return the content that `save` writes for `document`."""
        return fastjson.encode(keep_unknown(document, self._document))

    def write(self, content: bytes) -> None:
        """Write what `encode` gave, unless the file holds just that. Raises OSError."""
        if content != self._content:
            self._files.replace(self.path, content, backup=self.backup)
            self._content = content

    def _read(self, path: Path) -> dict[str, Any] | None:
        content = self._files.read(path)
        if not content or not content.strip():
            return None
        document = fastjson.decode(content)
        if not isinstance(document, dict):
            raise fastjson.FastjsonError(f"{path} holds no JSON object")
        return document


def keep_unknown(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """`new` with those keys of `old` that it lacks: another release's fields survive."""
    return {**{key: value for key, value in old.items() if key not in new}, **new}
