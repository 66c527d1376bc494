"""Brokers that cannot be connected, each with one task that reconnects.

All sends that wait for a broker share one connection attempt at a time, with growing pauses between
them. Meanwhile an attempt fails with the error of the last one, without a system call. As soon as
the broker is connected, all waiting sends continue. The task ends when no send waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pocketmq.client.backoff import backoff, jittered
from pocketmq.client.errors import RemotingConnectError, RemotingError, once_more
from pocketmq.client.producer.outage_log import OutageLog

#: Pauses before a connection is tried again: the first and the longest, seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5


class Outage:
    """The outage of one broker."""

    __slots__ = ("error", "waiting")

    def __init__(self, error: RemotingConnectError) -> None:
        self.error = error
        self.waiting: set[asyncio.Future[None]] = set()


class Outages:
    """The brokers that one producer cannot connect to, by address.

    `connect(address)` connects or raises RemotingConnectError; `spawn` starts a task that the
    client's shutdown cancels; `sleep(seconds)` waits.
    """

    def __init__(
        self,
        connect: Callable[[str], Awaitable[object]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        outage_log: OutageLog,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.known: dict[str, Outage] = {}
        self._connect = connect
        self._spawn = spawn
        self._log = outage_log
        self._sleep = sleep

    def check(self, address: str) -> None:
        """Raise the last RemotingConnectError while the broker is unreachable."""
        outage = self.known.get(address)
        if outage is not None:
            raise once_more(outage.error)

    def begin(self, address: str, error: RemotingConnectError) -> None:
        """Record that connecting failed."""
        outage = self.known.get(address)
        if outage is None:
            self.known[address] = Outage(error)
            self._log.away(address, error)
            self._spawn(self._reconnect(address), f"connecting to {address}")

    def connected(self, address: str) -> None:
        """Let the sends that wait for this broker continue."""
        self._log.connected(address)
        self._end(address)

    def _end(self, address: str) -> None:
        outage = self.known.pop(address, None)
        if outage is not None:
            for waiter in outage.waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, address: str, seconds: float) -> None:
        """Wait up to `seconds` until the broker is connected."""
        outage = self.known.get(address)
        if outage is None:
            await self._sleep(seconds)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        outage.waiting.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            outage.waiting.discard(waiter)

    async def _reconnect(self, address: str) -> None:
        outage = self.known[address]
        failures = 1
        try:
            while True:
                await self._sleep(jittered(backoff(FIRST_PAUSE, LONGEST_PAUSE, failures)))
                if self.known.get(address) is not outage or not outage.waiting:
                    return
                try:
                    await self._connect(address)
                except RemotingConnectError as error:
                    outage.error = error
                    failures += 1
                else:
                    return
        except RemotingError:
            return  # the client was shut down
        finally:
            if self.known.get(address) is outage:
                self._end(address)
