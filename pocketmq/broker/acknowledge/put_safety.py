"""When a put may be acknowledged: once it is on the disk (SYNC_FLUSH), and on replicas.

The broker waits for both at the same time, and answers with the worse result. If neither is
configured, `waits` is false and sends are answered without this module. Reference:
CommitLog.handleDiskFlushAndHA.
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
    """The replication of the log."""

    @property
    def needed(self) -> int:
        """The number of copies, including the master's, before a put is acknowledged."""

    def when_replicated(self, end: int, listener: Callable[[bool], None]) -> None:
        """Call `listener(True)` when `needed` copies have the log up to the physical offset `end`,
        or `listener(False)` if that takes too long."""


class PutSafety:
    """Tells when puts of one broker may be acknowledged.

    Attributes:
        waits: puts have to wait before they are acknowledged.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replicas: Replicas | None = None
        self.waits = self._sync

    def wait_for(self, replicas: Replicas | None) -> None:
        """Also wait for these replicas from now on; None: for no replicas."""
        self._replicas = replicas
        self.waits = self._sync or replicas is not None

    def when_safe(self, end: int, listener: SafetyListener) -> None:
        """Call `listener` when the log is safe up to the physical offset `end`, or if that takes
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
            # The result of replicas takes precedence over that of the disk, unless the message is
            # lost.
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
        if code == ResponseCode.FLUSH_DISK_TIMEOUT:  # the store can still write
            return ResponseCode.FLUSH_SLAVE_TIMEOUT, None
        return code, remark


_RANK: dict[int, int] = {
    ResponseCode.SUCCESS: 0,
    ResponseCode.FLUSH_DISK_TIMEOUT: 1,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: 2,
    ResponseCode.SERVICE_NOT_AVAILABLE: 3,
}
