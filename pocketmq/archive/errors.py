"""Errors of archives. Each names the object, without the secrets that its URL may have."""

from __future__ import annotations

from pathlib import Path

from pocketmq.store.errors import StoreError
from pocketmq.store.scan.queues.segments import Unreadable


class ArchiveError(StoreError):
    """Root of all errors of archives."""


class NoArchive(ArchiveError):
    """A URL under which there is no archive."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"no archive at {shown}: there is no manifest.json in it, nor in a directory of it, "
            "nor is it a tiered storage of RocketMQ. `pocketmq sync STORE URL` makes an archive"
        )


class WrongLocation(ArchiveError):
    """A URL that is not a valid location of objects. `shown` is the URL without secrets."""

    def __init__(self, shown: str, reason: str) -> None:
        super().__init__(f"{shown} {reason}")
        self.shown = shown
        self.reason = reason


class Unreachable(ArchiveError):
    """A location of objects that does not answer, does not exist, or refuses access."""


class ObjectMissing(ArchiveError, Unreadable):
    """An object that does not exist."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} is missing")
        self.url = url


class ObjectDamaged(ArchiveError, Unreadable):
    """An object that differs from the manifest."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url} is damaged: {reason}. Type `pocketmq sync STORE URL --verify` to see what else "
            "is; remove the object and the broker's manifest.json to upload it again"
        )
        self.url = url
        self.reason = reason


class WrongManifest(ArchiveError):
    """A manifest that this version cannot read."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} {reason}")


class WrongBrokerName(ArchiveError):
    """A store whose broker name cannot be the name of a directory."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(
            f"{root}/config/topics.json says that the broker's name is {name!r}, which cannot be "
            "the name of its directory in an archive"
        )
        self.root = root
        self.name = name


class OtherStore(ArchiveError):
    """The archive has different messages from the store at the same offsets."""
