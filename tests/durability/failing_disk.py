"""A disk that fails once while a broker works: each call of the file layer, each way to fail.

Every request must be answered, nothing that was acknowledged may be lost, and once the disk works
again the broker must take messages: by itself, or after a restart if a sync of the log had failed,
because nobody knows then what the disk has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from pocketmq.broker.broker import Broker
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.errors import DiskFull, StoreError
from pocketmq.store.files import Files

from .traffic import Ledger, Traffic, configuration
from .verdict import Verdict

#: The calls that ask the operating system for something that can fail.
CALLS: Final = (
    "allocate", "create", "fdatasync", "remove", "rename", "replace", "sync_directory", "write",
)  # fmt: skip
ERRORS: Final = (errno.ENOSPC, errno.EIO)
STEPS: Final = 25
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
        log_sync_failed: whether a sync of the commit log was among them.
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
            if fault.call == "fdatasync" and "commitlog" in os.readlink(f"/proc/self/fd/{args[0]}"):
                self.log_sync_failed = True
            if fault.short:
                fd, data, at = args
                original(files, fd, data[: len(data) // 2], at)
            if fault.call == "create" and fault.error == errno.ENOSPC:
                raise DiskFull(args[0], args[2], os.strerror(fault.error))
            raise OSError(fault.error, os.strerror(fault.error))

        with mock.patch.object(Files, fault.call, call):
            yield


async def try_fault(root: Path, fault: Fault, random: random.Random, *, sync: bool) -> list[str]:
    """Run a broker on a disk with this fault; return what it did wrong."""
    faults: list[str] = []
    disk, ledger = FailingDisk(fault), Ledger()
    traffic = Traffic(ledger, random, 1)
    config = configuration(root, sync=sync)
    with disk.failing():
        broker = Broker(config)
        try:
            await broker.start()
        except (OSError, StoreError):
            return faults  # refused to start, which is clear enough
        try:
            await traffic.run(broker, STEPS)
            disk.heal()
            if not disk.log_sync_failed:
                faults += await _resumes(broker, traffic)
        except (RemotingError, AssertionError) as error:
            faults.append(f"a request was not answered: {type(error).__name__}: {error}")
        finally:
            disk.heal()
            await broker.stop()
            # What was removed had expired; the cleaner may have worked until the stop.
            files = (root / "commitlog").iterdir()
            ledger.expired = min((int(path.name) for path in files), default=0)
    verdict = Verdict(root, ledger, sync=True)
    await verdict.find()
    return [f"{fault}: {text}" for text in (*faults, *verdict.faults[:3])]


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
