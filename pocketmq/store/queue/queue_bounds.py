"""Where each queue begins and ends: the file `queuebounds`, written when a store is closed.

From it a start knows every queue without opening it, and detects a queue that has changed since. It
also keeps the offsets of messages that are lost for good at the end of a queue; nothing else
records them once the walk of a recovery begins after them.

The first line is a digest of the rest in hexadecimal digits, the rest JSON: topic → queue id →
`Bounds` as an array. The checkpoint has the digest as well, so another broker's use of the store
invalidates both. The official broker does not look at this file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from pocketmq.store.files import Files
from pocketmq.store.queue.bounds_text import BOUNDS_FILE, opened, sealed

log = logging.getLogger(__name__)


class Bounds(Struct, array_like=True, frozen=True):
    """The bounds of one queue, in queue offsets.

    Attributes:
        begin: at which its first file begins; -1 without a file.
        end: after the last entry; -1 when that is not known, since the queue was not opened after
            a crash.
        physical: the physical offset after the last entry's record, -1 without an entry.
        next: what the next message gets: more than `end` if the messages at `end` are lost.
    """

    begin: int
    end: int
    physical: int
    next: int

    @property
    def is_known(self) -> bool:
        """Whether it says more than that the queue exists."""
        return self.end >= 0

    @property
    def skips(self) -> bool:
        """Whether offsets at the end are not to be given again."""
        return self.next > self.end >= 0


UNKNOWN: Final = Bounds(-1, -1, -1, 0)

BoundsTable: TypeAlias = Mapping[str, Mapping[int, Bounds]]
"""Topic → queue id → bounds."""

_decoder: Final = msgspec.json.Decoder(dict[str, dict[int, Bounds]])


class KnownBounds(NamedTuple):
    """The bounds that a start knows of the queues.

    Attributes:
        table: as the file has it.
        current: whether the file was written when the store was last closed, and nothing has used
            the store since.
    """

    table: BoundsTable
    current: bool


NO_BOUNDS: Final = KnownBounds({}, current=False)


class BoundsFile:
    """The file of the store at `root`. Its methods block."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._path = root / BOUNDS_FILE

    def load(self, digest: int, *, clean: bool) -> KnownBounds:
        """Read it; `digest` is the checkpoint's, 0 if that knows of no such file. `clean`: the
        store was closed. Raises OSError.

        A missing or damaged file means that nothing is known: the content of the queues is still
        right, as far as each of them shows it.
        """
        if not digest:
            return NO_BOUNDS
        content = self._files.read(self._path) or b""
        try:
            found, body = opened(content)
            table = _decoder.decode(body)
        except (ValueError, msgspec.DecodeError):
            log.warning(
                "%s is missing or damaged: queues are not compared with what they were when the "
                "store was closed", self._path,
            )  # fmt: skip
            return NO_BOUNDS
        return KnownBounds(table, current=clean and found == digest)

    def save(self, table: BoundsTable) -> int:
        """Write it and wait until it is on the disk; return its digest, which is never 0. Raises
        OSError."""
        digest, content = sealed(msgspec.json.encode(table))
        self._files.replace(self._path, content)
        return digest
