"""What the product asks of the operating system and of the standard library, answered by the
simulator. `install` comes before the product is imported; `adapt` after.

Only what runs in a strand sees any of it, but for clocks, locks and threads, of which everything
made from then on is simulated. The guard: what would leave the simulation raises `Escaped`, and is
kept in `escapes`, because the product may catch it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import queue
import random
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final

from .locks import MAIN, SimLock, SimRLock, SimThread, current_thread, get_ident
from .machine import Machine
from .scheduler import EPOCH, scheduler

real_time: Final = time.perf_counter
real_cpu_time: Final = time.process_time
escapes: Final[list[str]] = []
DESCRIPTORS: Final = 65_536
REAL_CLOCKS: Final = ("clock_gettime", "clock_gettime_ns", "process_time_ns", "thread_time_ns")
"""Those that nothing reads."""
PROCESSORS: Final = 2


class Escaped(RuntimeError):
    """The product reached for something that is not simulated."""


def escaped(what: str) -> Escaped:
    machine = scheduler.machine
    escapes.append(f"{machine}: {what}")
    return Escaped(what)


# Random numbers: a stream for each process


class _OfProcess(random.Random):
    """Draws from the stream of the process that runs."""

    def _stream(self) -> random.Random | None:
        process = scheduler.process
        return None if process is None else process.random

    def random(self) -> float:
        stream = self._stream()
        return super().random() if stream is None else stream.random()

    def getrandbits(self, k: int, /) -> int:
        stream = self._stream()
        return super().getrandbits(k) if stream is None else stream.getrandbits(k)


def _urandom(size: int) -> bytes:
    process = scheduler.process
    return (scheduler.chance if process is None else process.random).randbytes(size)


# The network: nothing but the question which address this machine has


class _Socket(socket.socket):
    """A datagram socket that knows the machine's address; everything else is an escape."""

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: Any = None):
        machine = scheduler.machine
        self.machine: Machine | None = machine
        if machine is None:
            super().__init__(family, type, proto, fileno)
        elif type != socket.SOCK_DGRAM:
            raise escaped("a socket")
        elif family != socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    def connect(self, address: Any, /) -> None:
        if self.machine is None:
            super().connect(address)

    def getsockname(self) -> Any:
        return super().getsockname() if self.machine is None else (self.machine.ip, 0)

    def close(self) -> None:
        if self.machine is None:
            super().close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _guarded(what: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if scheduler.strand is not None:
            raise escaped(what)
        return real(*arguments, **options)

    return call


# Files


def _checked(operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """The call itself, unless the disk is to fail."""

    @wraps(real)
    def call(*arguments: Any, **options: Any) -> Any:
        machine = scheduler.machine
        if machine is not None:
            machine.disk.check(operation)
        return real(*arguments, **options)

    return call


_open, _close, _fsync = os.open, os.close, os.fsync
_listdir, _scandir = os.listdir, os.scandir
_real_disk_usage = shutil.disk_usage
_flock, _lockf, _getrlimit = fcntl.flock, fcntl.lockf, resource.getrlimit


def _opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
    machine = scheduler.machine
    if machine is not None:
        makes = flags & os.O_CREAT and not os.path.exists(path)
        machine.disk.check("create" if makes else "open")
    return _open(path, flags, *arguments, **options)


def _closed(fd: int) -> None:
    machine = scheduler.machine
    if machine is not None:
        machine.disk.closed(fd)
    _close(fd)


def _sync(fd: int) -> None:
    machine = scheduler.machine
    if machine is None:
        _fsync(fd)
    else:
        machine.disk.sync(fd)


def _locked(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(file: Any, operation: int, *arguments: Any) -> Any:
        process = scheduler.process
        if process is None:
            return real(file, operation, *arguments)
        if not operation & fcntl.LOCK_UN:
            process.machine.disk.lock(file, process)
        return None

    return call


def _sorted_names(path: Any = ".") -> list[Any]:
    """The order of a listing is the kernel's affair."""
    return sorted(_listdir(path))


class _Entries:
    """`os.scandir`, in order."""

    def __init__(self, path: Any = ".") -> None:
        with _scandir(path) as entries:
            self._entries = iter(sorted(entries, key=lambda entry: entry.name))

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def close(self) -> None:
        pass


def _disk_usage(path: Any) -> Any:
    machine = scheduler.machine
    return _real_disk_usage(path) if machine is None else machine.disk.usage()


def _limits(which: int) -> tuple[int, int]:
    return _getrlimit(which) if scheduler.strand is None else (DESCRIPTORS, DESCRIPTORS)


def _process_id() -> int:
    process = scheduler.process
    return 1 if process is None else process.pid


def _monotonic() -> float:
    return scheduler.monotonic_ns() / 1e9


def _time() -> float:
    return scheduler.time_ns() / 1e9


def _of_a_time(real: Callable[..., Any]) -> Callable[..., Any]:
    """The call for a given time; without one it reads the clock."""

    def call(seconds: float | None = None) -> Any:
        return real(_time() if seconds is None else seconds)

    return call


def install() -> None:
    """To be called once, before anything of the product is imported."""
    if any(name.startswith("pocketmq") for name in sys.modules):
        raise RuntimeError("the product is imported already")
    generator = _OfProcess(0)
    replaced: list[tuple[Any, dict[str, Any]]] = [
        (
            time,
            {
                "time": _time,
                "time_ns": scheduler.time_ns,
                "monotonic": _monotonic,
                "monotonic_ns": scheduler.monotonic_ns,
                "perf_counter": _monotonic,
                "perf_counter_ns": scheduler.monotonic_ns,
                "process_time": _monotonic,
                "thread_time": _monotonic,
                "sleep": scheduler.sleep,
                "localtime": _of_a_time(time.localtime),
                "gmtime": _of_a_time(time.gmtime),
                **{name: _guarded("a real clock", getattr(time, name)) for name in REAL_CLOCKS},
            },
        ),
        (
            threading,
            {
                "Thread": SimThread,
                "Lock": SimLock,
                "_allocate_lock": SimLock,
                "RLock": SimRLock,
                "get_ident": get_ident,
                "current_thread": current_thread,
                "main_thread": lambda: MAIN,
                "_time": _monotonic,
            },
        ),
        (queue, {"SimpleQueue": vars(queue)["_PySimpleQueue"], "time": _monotonic}),
        (random, {"_urandom": _urandom}),
        (
            random,
            {
                name: getattr(generator, name)
                for name, function in vars(random).items()
                if isinstance(getattr(function, "__self__", None), random.Random)
            },
        ),
        (
            os,
            {
                "urandom": _urandom,
                "getpid": _process_id,
                "cpu_count": lambda: PROCESSORS,
                "fork": _guarded("a process", os.fork),
                "open": _opened,
                "close": _closed,
                "fsync": _sync,
                "fdatasync": _sync,
                "pwrite": _checked("write", os.pwrite),
                "posix_fallocate": _checked("allocate", os.posix_fallocate),
                "replace": _checked("rename", os.replace),
                "rename": _checked("rename", os.rename),
                "listdir": _sorted_names,
                "scandir": _Entries,
            },
        ),
        (shutil, {"disk_usage": _disk_usage}),
        (fcntl, {"flock": _locked(_flock), "lockf": _locked(_lockf)}),
        (resource, {"getrlimit": _limits}),
        (
            socket,
            {
                "socket": _Socket,
                "create_server": _guarded("a listening socket", socket.create_server),
                "getaddrinfo": _guarded("a look-up of a name", socket.getaddrinfo),
                "gethostname": lambda: str(scheduler.machine or "simulator"),
            },
        ),
        (subprocess, {"Popen": _guarded("a process", subprocess.Popen)}),
        # Log records must not move the clock: more or less of them would change the run.
        (logging, {"time": SimpleNamespace(**vars(time) | {"time": _log_time})}),
    ]
    for module, names in replaced:
        for name, function in names.items():
            setattr(module, name, function)


def _log_time() -> float:
    return (EPOCH + scheduler.now) / 1e9


def adapt() -> None:
    """What the product asks of a file system in ways that cannot be replaced below it."""
    from pocketmq.store.files import Files

    def modified_ms(_: Files, path: Path) -> int:
        machine = scheduler.machine
        return 0 if machine is None else machine.disk.modified_ms(path)

    def used_percent(_: Files, directory: Path) -> int:
        machine = scheduler.machine
        return 0 if machine is None else machine.disk.used_percent()

    def boot_id(_: Files) -> bytes:
        machine = scheduler.machine
        return (0 if machine is None else machine.disk.boots + 1).to_bytes(16)

    for name, function in {
        "modified_ms": modified_ms,
        "used_percent": used_percent,
        "boot_id": boot_id,
    }.items():
        setattr(Files, name, function)
