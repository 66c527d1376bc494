"""The id that a controller assigned to this broker, in the file `brokerIdentity` of the store.

The broker queries the next free id, writes it with a check code to `brokerIdentity-temp`, applies
for it, and only then writes `brokerIdentity`. So a crash at any point neither loses an id nor uses
two: a broker that repeats its check code gets the same id again.
Reference: BrokerMetadata, TempBrokerMetadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files

FILE_NAME: Final = "brokerIdentity"
_SEPARATOR: Final = "#"
_MOST_BYTES: Final = 4096


class IdentityUnusable(StoreError):
    """The file belongs to another broker, or cannot be read; the text says what to do."""


class GroupIdentity(NamedTuple):
    """The identity of a member of a broker group at its controller.

    Attributes:
        cluster, group: brokerClusterName and brokerName.
        broker_id: 1 or more; it does not change with the role of the broker.
    """

    cluster: str
    group: str
    broker_id: int


def explain_copy(identity: GroupIdentity, address: str) -> str:
    """Return the error text for another live broker at `address` with the same identity."""
    return (
        f"the broker at {address} has this broker's id {identity.broker_id} in the "
        f"group {identity.group}: the file {FILE_NAME} of one is a copy of the other's. Stop the "
        f"broker that has the copy, remove {FILE_NAME} from its store, and start it again"
    )


class Application(NamedTuple):
    """An id that was applied for, and the check code of the applicant: `address;milliseconds`."""

    broker_id: int
    check_code: str


class IdentityFile:
    """The two files in the directory `root`, for the broker of `cluster` and `group`.

    All methods block, and raise OSError. When a write returns, its file survives a power cut.
    """

    def __init__(self, root: Path, cluster: str, group: str, files: Files | None = None) -> None:
        self.path = root / FILE_NAME
        self._draft = root / f"{FILE_NAME}-temp"
        self._cluster = cluster
        self._group = group
        self._files = files or Files()

    def load(self) -> GroupIdentity | None:
        """Return the identity; None before there is one. Raises IdentityUnusable."""
        found = self._read(self.path, 3)
        return None if found is None else self._identity(self.path, found)

    def applied(self) -> Application | None:
        """Return the pending application; None if there is none. Raises IdentityUnusable."""
        found = self._read(self._draft, 4)
        if found is None:
            return None
        return Application(self._identity(self._draft, found[:3]).broker_id, found[3])

    def apply(self, application: Application) -> None:
        """Save an application before it is sent."""
        number, code = application
        self._files.replace(
            self._draft, _SEPARATOR.join((self._cluster, self._group, str(number), code)).encode()
        )

    def give_up(self) -> None:
        """Remove the application: another broker has the id."""
        self._files.remove(self._draft)

    def confirm(self, broker_id: int) -> GroupIdentity:
        """Save the id as this broker's."""
        identity = GroupIdentity(self._cluster, self._group, broker_id)
        self._files.replace(self.path, _SEPARATOR.join(map(str, identity)).encode())
        self._files.remove(self._draft)
        return identity

    def _read(self, path: Path, count: int) -> list[str] | None:
        content = self._files.read(path)
        if content is None or not content.strip():
            return None  # the official broker creates the file before it writes to it
        parts = content[:_MOST_BYTES].decode("utf-8", "replace").strip().split(_SEPARATOR)
        if len(parts) != count:
            raise IdentityUnusable(
                f"{path} holds {content[:80]!r}, not CLUSTER#BROKER#ID: if this broker never was a "
                "member of a controller group, remove the file"
            )
        return parts

    def _identity(self, path: Path, parts: list[str]) -> GroupIdentity:
        cluster, group, number = parts
        if (cluster, group) != (self._cluster, self._group):
            raise IdentityUnusable(
                f"{path} is of the broker {group} in {cluster}, but brokerName is {self._group} "
                f"and brokerClusterName {self._cluster}: correct the settings. If the store was "
                "copied from another broker, remove the file"
            )
        if not number.isascii() or not number.isdigit() or not 0 < int(number) < 2**63:
            raise IdentityUnusable(f"{path} has the broker id {number!r}; controllers count from 1")
        return GroupIdentity(cluster, group, int(number))
