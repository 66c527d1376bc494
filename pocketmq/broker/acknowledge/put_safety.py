"""When a put may be acknowledged: once it is on the disk (SYNC_FLUSH), and on replicas.

The two waits run side by side, and the worse outcome is the answer. Where neither is asked for,
`waits` is false, and senders do not come here. Reference: CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from pocketmq.broker.acknowledge.answers import not_flushed
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.config import FlushDiskType
from pocketmq.store.message_store import MessageStore

#: Called once with the code and the remark of the answer; code 0 when the put is safe.
SafetyListener: TypeAlias = Callable[[int, str | None], None]


class Replicas(Protocol):
    """What replicates the log."""

    @property
    def needed(self) -> int:
        """How many copies a put needs, the master's among them, before it is acknowledged."""

    def when_replicated(self, end: int, listener: Callable[[bool], None]) -> None:
        """Call `listener` when `needed` copies have the log up to the physical offset `end`; with
        False when that takes too long."""


class PutSafety:
    """What puts of one broker wait for.

    Attributes:
        waits: puts are not acknowledged at once.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replicas: Replicas | None = None
        self.waits = self._sync

    def wait_for(self, replicas: Replicas | None) -> None:
        """Wait for these replicas, too, from now on; or for none."""
        self._replicas = replicas
        self.waits = self._sync or replicas is not None

    def when_safe(self, end: int, listener: SafetyListener) -> None:
        """Call `listener` when the log is safe up to the physical offset `end`, or when that takes
        too long."""
        replicas = self._replicas
        if replicas is None or replicas.needed == 1:
            if self._sync:
                self._store.when_flushed(end, lambda done: listener(*self._flushed(done)))
            else:
                listener(ResponseCode.SUCCESS, None)
            return
        if not self._sync:
            replicas.when_replicated(end, lambda done: listener(*self._replicated(done)))
            return
        first: list[tuple[int, str | None]] = []

        def tell(code: int, remark: str | None) -> None:
            if not first:
                first.append((code, remark))
                return
            # What replicas say goes before what the disk says, unless the message is lost.
            outcomes = sorted((first[0], (code, remark)), key=lambda outcome: _RANK[outcome[0]])
            listener(*outcomes[-1])

        self._store.when_flushed(end, lambda done: tell(*self._flushed(done)))
        replicas.when_replicated(end, lambda done: tell(*self._replicated(done)))

    def _flushed(self, done: bool) -> tuple[int, str | None]:
        return (ResponseCode.SUCCESS, None) if done else not_flushed(self._store)

    def _replicated(self, done: bool) -> tuple[int, str | None]:
        if done:
            return ResponseCode.SUCCESS, None
        code, remark = not_flushed(self._store)
        if code == ResponseCode.FLUSH_DISK_TIMEOUT:  # it could be written
            return ResponseCode.FLUSH_SLAVE_TIMEOUT, None
        return code, remark


_RANK: dict[int, int] = {
    ResponseCode.SUCCESS: 0,
    ResponseCode.FLUSH_DISK_TIMEOUT: 1,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: 2,
    ResponseCode.SERVICE_NOT_AVAILABLE: 3,
}
