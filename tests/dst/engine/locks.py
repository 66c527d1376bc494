"""Locks and threads that are the scheduler's. All other primitives are the standard library's own,
which it builds from these."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from .scheduler import SECOND, Strand, scheduler

log = logging.getLogger("pocketmq.simulated_thread")


class SimLock:
    """`threading.Lock`; who waits gets it in random order."""

    __slots__ = ("__weakref__", "_locked", "_waiting")

    def __init__(self) -> None:
        self._locked = False
        self._waiting: list[Strand] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._locked:
            self._locked = True
            return True
        strand = scheduler.strand
        if not blocking or strand is None:
            if blocking:
                raise RuntimeError("the simulator itself would wait for a lock")
            return False
        self._waiting.append(strand)
        strand.granted = None
        deadline = None
        if timeout is not None and timeout >= 0:
            deadline = scheduler.now + int(timeout * SECOND)
        while True:
            scheduler.park(deadline, "a lock")
            if strand.granted is self:
                strand.granted = None
                return True
            if deadline is not None and scheduler.now >= deadline:
                self._waiting.remove(strand)
                return False

    def release(self) -> None:
        if not self._locked:
            raise RuntimeError("release unlocked lock")
        while self._waiting:
            chosen = 0
            if len(self._waiting) > 1:
                chosen = scheduler.chance.randrange(len(self._waiting))
            strand = self._waiting.pop(chosen)
            if not strand.process.dead:
                strand.granted = self
                scheduler.wake(strand)
                return
        self._locked = False

    def locked(self) -> bool:
        return self._locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._locked = False
        self._waiting.clear()


class SimRLock:
    """`threading.RLock`."""

    def __init__(self) -> None:
        self._lock = SimLock()
        self._owner: int | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = get_ident()
        if self._owner == me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        if self._owner != get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]

    # What `threading.Condition` asks of a lock that is its own.

    def _release_save(self) -> tuple[int, int | None]:
        state = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return state

    def _acquire_restore(self, state: tuple[int, int | None]) -> None:
        self._lock.acquire()
        self._count, self._owner = state

    def _is_owned(self) -> bool:
        return self._owner == get_ident()


_OUTSIDE: Final = threading.get_ident()


def get_ident() -> int:
    return _OUTSIDE if scheduler.strand is None else scheduler.strand.ident


class SimThread:
    """`threading.Thread`: a strand of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self.ident: int | None = None
        self.native_id: int | None = None
        self._target = target
        self._arguments = tuple(args)
        self._options = dict(kwargs or {})
        self._done = False
        self._joining: list[tuple[Strand, int]] = []

    def start(self) -> None:
        process = scheduler.process
        if process is None:
            raise RuntimeError(f"thread {self.name} does not belong to any simulated process")
        strand = Strand(process, self.name, self._work)
        strand.thread = self
        self.ident = self.native_id = strand.ident
        scheduler.step("thread", process.machine.name, self.name)
        scheduler.wake(strand)

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._arguments, **self._options)

    def _work(self) -> None:
        try:
            self.run()
        except SystemExit:
            pass
        except Exception:
            log.exception("thread %s ended with an exception", self.name)
        self._done = True
        for strand, token in self._joining:
            scheduler.wake(strand, token=token)

    def join(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else scheduler.now + int(timeout * SECOND)
        while self.is_alive():
            if deadline is not None and scheduler.now >= deadline:
                return
            strand = scheduler.strand
            if strand is None:
                raise RuntimeError(f"the simulator itself would wait for thread {self.name}")
            self._joining.append((strand, strand.token))
            scheduler.park(deadline, f"thread {self.name}")

    def is_alive(self) -> bool:
        return self.ident is not None and not self._done


class MainThread:
    """What everything else calls the current thread."""

    name = "MainThread"
    daemon = False
    ident = native_id = 1

    def is_alive(self) -> bool:
        return True


MAIN = MainThread()


def current_thread() -> Any:
    strand = scheduler.strand
    return MAIN if strand is None or strand.thread is None else strand.thread
