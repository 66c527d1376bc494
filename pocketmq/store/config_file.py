"""A table of the broker as a JSON file: config/topics.json, consumerOffset.json and their like.

The files are the official broker's, so either broker goes on with what the other one wrote: they
are read with fastjson's tolerance (bare integer keys), unknown content is kept, and the previous
content stays beside them as NAME.bak. Reference: ConfigManager.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pocketmq.message import fastjson
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.store.errors import StoreError, remedy
from pocketmq.store.files import Files

log = logging.getLogger(__name__)


_MISSING: Final = "is missing"
_EMPTY: Final = "is empty"
_WITHOUT: Final = (_MISSING, _EMPTY)
_LARGE: Final = 16 << 20
"""Bytes of a file that takes several seconds to read: of a hundred thousand topics."""


class ConfigFileError(StoreError):
    """Neither the file nor its .bak can be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}, and there is no usable {path.name}.bak beside it; "
            f"{remedy(path.parent.parent)}"
        )
        self.path = path


class ConfigFile:
    """One such file. All methods block.

    `encode` and `write` together are `save`: encode on the event loop, write on a thread. `holds`
    says for log lines what is in the file: "topics".

    Attributes:
        stale: the file is not what `load` returned, because it is missing, empty or broken.
    """

    def __init__(self, path: Path, holds: str, files: Files | None = None) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self.stale = True
        self._holds = holds
        self._files = files or Files()
        self._document: dict[str, Any] = {}
        self._content: bytes | None = None

    def load(self) -> dict[str, Any]:
        """Return the document; from NAME.bak when the file is missing, empty or broken; {} without
        both. A log line says what was lost.

        Raises:
            ConfigFileError: there is a file, but nothing that can be read.
        """
        self._content = None
        document, fault = self._read(self.path)
        self.stale = document is None
        if document is None:
            document, fault_of_backup = self._read(self.backup)
            if document is not None:
                self._log_backup(fault)
            elif fault not in _WITHOUT:
                raise ConfigFileError(self.path, fault)
            elif fault_of_backup not in _WITHOUT:
                raise ConfigFileError(self.path, f"{fault}, and its .bak {fault_of_backup}")
            elif (fault, fault_of_backup) != (_MISSING, _MISSING):
                log.error(
                    "%s %s and its .bak %s: all %s are lost",
                    self.path,
                    fault,
                    fault_of_backup,
                    self._holds,
                )
        self._document = document or {}
        return dict(self._document)

    @property
    def written(self) -> int:
        """When the file or its .bak was written last, in ms since 1970; 0 without both. Raises
        OSError."""
        there = [path for path in (self.path, self.backup) if path.exists()]
        return max(map(self._files.modified_ms, there), default=0)

    def peek(self) -> dict[str, Any]:
        """Return what `load` would, for somebody who only takes a look: without a log line, and {}
        where nothing can be read."""
        document, _ = self._read(self.path)
        if document is None:
            document, _ = self._read(self.backup)
        return document or {}

    def _log_backup(self, fault: str) -> None:
        lost = f"changes of the {self._holds} after that are lost"
        if fault == _MISSING:
            # See Files.replace.
            lost += ", unless the broker was killed while it wrote the file"
        written = time.localtime(self._files.modified_ms(self.backup) / 1000)
        log.error(
            "%s %s: using %s, written %s: %s",
            self.path,
            fault,
            self.backup.name,
            time.strftime("%Y-%m-%d %H:%M:%S", written),
            lost,
        )

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
            # A file that could not be read is a worse backup than the one that was used instead.
            backup = None if self.stale else self.backup
            self._files.replace(self.path, content, backup=backup)
            self._content = content
            self.stale = False

    def _read(self, path: Path) -> tuple[dict[str, Any] | None, str]:
        """Return the document of a file; or None, and the reason."""
        content = self._files.read(path)
        if content is None:
            return None, _MISSING
        if len(content) > _LARGE:
            log.warning(
                "%s has %d MiB: a start reads a few of them in a second", path, len(content) >> 20
            )
        if not content.strip():
            return None, _EMPTY
        try:
            document = fastjson.decode(content)
        except FastjsonError as error:
            return None, f"cannot be read ({error})"
        if not isinstance(document, dict):
            return None, "holds no JSON object"
        return document, ""


def keep_unknown(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """`new` with those keys of `old` that it lacks: another release's fields survive."""
    return {**{key: value for key, value in old.items() if key not in new}, **new}
