"""A disk that fails once while a broker starts or works: each call of the file layer, each way to
fail.

Every request must be answered, and every send that is refused with SERVICE_NOT_AVAILABLE and the
reason. Nothing that was acknowledged may be lost. Once the disk works again the broker must take
messages by itself. But if a sync of the log had failed, it must refuse them until it is restarted,
because nobody knows then what the disk has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.errors import DiskFull, StoreError
from pocketmq.store.files import Files

from .traffic import Ledger, Traffic, configuration
from .verdict import Verdict

#: The calls that ask the operating system for something that can fail.
CALLS: Final = (
    "allocate", "create", "fdatasync", "make_directory", "modified_ms", "open", "open_again",
    "read", "remove", "remove_directory", "rename", "replace", "sync_directory", "used_percent",
    "write",
)  # fmt: skip
ERRORS: Final = (errno.ENOSPC, errno.EIO)
STEPS: Final = 25
MOST_MAPPINGS: Final = 2
PATIENCE: Final = 10.0
"""Seconds within which a broker takes messages again."""


class Fault(NamedTuple):
    """The calls `first` to `last` of a method of `Files` fail with `error`; `short`: a write does
    the half of what it should before that."""

    call: str
    error: int
    first: int
    last: int
    short: bool

    def __str__(self) -> str:
        how = "short write, " if self.short else ""
        return f"{self.call} {self.first} to {self.last}: {how}{errno.errorcode[self.error]}"


def drawn_fault(random: random.Random) -> Fault:
    call = random.choice(CALLS)
    first = random.choice((1, 2, 3, 5, 8, 13, 21, 34))
    last = first + random.choice((0, 0, 1, 5, 40))
    short = call == "write" and random.random() < 0.5
    return Fault(call, random.choice(ERRORS), first, last, short)


class FailingDisk:
    """Counts the calls of the fault's method during `failing`, and lets some of them fail.

    Attributes:
        failed: how many have failed.
        log_sync_failed: whether a sync of messages in the commit log was among them.
    """

    def __init__(self, fault: Fault) -> None:
        self.failed = 0
        self.log_sync_failed = False
        self._fault = fault
        self._calls = 0
        self._healed = False

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._healed = True

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Patch `Files`, of which each part of a broker may have its own."""
        fault = self._fault
        original: Callable[..., Any] = getattr(Files, fault.call)

        def call(files: Files, *args: Any, **options: Any) -> Any:
            self._calls += 1
            if self._healed or not fault.first <= self._calls <= fault.last:
                return original(files, *args, **options)
            self.failed += 1
            if fault.call == "fdatasync" and _has_messages(args[0]):
                self.log_sync_failed = True
            if fault.short:
                fd, data, at = args
                original(files, fd, data[: len(data) // 2], at)
            if fault.call == "create" and fault.error == errno.ENOSPC:
                raise DiskFull(args[0], args[2], os.strerror(fault.error))
            raise OSError(fault.error, os.strerror(fault.error))

        with mock.patch.object(Files, fault.call, call):
            yield


async def try_fault(
    root: Path, fault: Fault, random: random.Random, *, sync: bool
) -> tuple[int, list[str]]:
    """Run a broker on a disk with this fault, half of the time on a store that has had a life; few
    files of queues are mapped. Return how many calls failed, and what the broker did wrong."""
    disk, ledger = FailingDisk(fault), Ledger()
    config, killed = configuration(root, sync=sync), root.with_name("killed")
    faults: list[str] = []
    with mock.patch.object(Files, "most_mappings", return_value=MOST_MAPPINGS):
        if random.random() < 0.5:
            async with Broker(config) as broker:
                await Traffic(ledger, random, 1).run(broker, STEPS)
        traffic = Traffic(ledger, random, 2)
        with disk.failing():
            broker = Broker(config)
            try:
                await broker.start()
            except (OSError, StoreError):
                pass  # refused to start, which is clear enough
            else:
                faults += await _live(broker, disk, traffic, killed)
    faults += {
        f"a send was refused with code {code}: {remark}"
        for code, remark in traffic.refused
        if code != ResponseCode.SERVICE_NOT_AVAILABLE or not remark
    }
    faults += await _lost(root, ledger)
    return disk.failed, [f"{fault}: {text}" for text in faults]


async def _live(broker: Broker, disk: FailingDisk, traffic: Traffic, killed: Path) -> list[str]:
    """One life of a broker on the failing disk; return what it did wrong. `killed` gets what a kill
    would have left before the disk works again."""
    try:
        await traffic.run(broker, STEPS)
        _copy(broker.config.root, killed)
        ledger = traffic.ledger.copy()
        disk.heal()
        faults = [f"after a kill: {fault}" for fault in await _lost(killed, ledger)]
        if disk.log_sync_failed:
            faults += await _stays_refused(broker, traffic)
        else:
            faults += await _resumes(broker, traffic)
    except (RemotingError, AssertionError) as error:
        return [f"a request was not answered: {type(error).__name__}: {error}"]
    finally:
        disk.heal()
        await broker.stop()
    return faults


def _has_messages(fd: int) -> bool:
    """Return whether an open file is one of the commit log, and not one made ahead of use."""
    return "commitlog" in os.readlink(f"/proc/self/fd/{fd}") and any(os.pread(fd, 8, 0))


def _copy(root: Path, target: Path) -> None:
    """Copy the files of a store while its event loop waits: this is what a kill would leave. Its
    threads go on, and may rename or remove a file before it is copied."""
    shutil.rmtree(target, ignore_errors=True)

    def copy(source: str, copied: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, copied)

    shutil.copytree(root, target, copy_function=copy)


async def _lost(root: Path, ledger: Ledger) -> list[str]:
    """Return what the store at `root` has lost of what was acknowledged."""
    # What was removed had expired; the cleaner may have worked until the stop.
    files = (root / "commitlog").glob("*")
    ledger = ledger.copy()
    ledger.expired = min((int(path.name) for path in files), default=0)
    verdict = Verdict(root, ledger, sync=True)
    await verdict.find()
    return verdict.faults[:3]


async def _stays_refused(broker: Broker, traffic: Traffic) -> list[str]:
    connection = await Connection.open(broker.address)
    try:
        if await traffic.probe(connection):
            return ["a message is taken although a sync of the log has failed"]
    finally:
        await connection.close()
    return []


async def _resumes(broker: Broker, traffic: Traffic) -> list[str]:
    connection = await Connection.open(broker.address)
    try:
        async with asyncio.timeout(PATIENCE):
            while not await traffic.probe(connection):  # noqa: ASYNC110 -- only a send shows it
                await asyncio.sleep(0.05)
    except TimeoutError:
        return [f"no message is taken although the disk works again: {traffic.refused[-1]}"]
    finally:
        await connection.close()
    return []
