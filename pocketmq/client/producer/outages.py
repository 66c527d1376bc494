"""Brokers that cannot be connected, and the one task for each of them that tries again.

However many sends wait for a broker, it is connected to once at a time, after a pause that grows.
Meanwhile an attempt fails with the error of the last connect, without a system call; as soon as
the broker is back, all sends that wait for it go on. The task ends when no send waits any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pocketmq.client.backoff import backoff, jittered
from pocketmq.client.errors import RemotingConnectError, RemotingError, once_more
from pocketmq.client.producer.outage_log import OutageLog

#: The pause before a broker is connected to again, the first time and at most, seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5


class Outage:
    """One broker that cannot be connected."""

    __slots__ = ("error", "waiting")

    def __init__(self, error: RemotingConnectError) -> None:
        self.error = error
        self.waiting: set[asyncio.Future[None]] = set()


class Outages:
    """The brokers that one producer cannot connect to, by address.

    `connect(address)` connects or raises RemotingConnectError; `spawn` starts a task that the
    client's shutdown ends; `outage_log` logs them; `sleep(seconds)` waits.
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
        """Raise the RemotingConnectError of the last connect while the broker is out of reach."""
        outage = self.known.get(address)
        if outage is not None:
            raise once_more(outage.error)

    def begin(self, address: str, error: RemotingConnectError) -> None:
        """Note that a connect failed."""
        outage = self.known.get(address)
        if outage is None:
            self.known[address] = Outage(error)
            self._log.away(address, error)
            self._spawn(self._reconnect(address), f"connecting to {address}")

    def connected(self, address: str) -> None:
        """Have the sends go on that wait for this broker."""
        self._log.connected(address)
        self._end(address)

    def _end(self, address: str) -> None:
        outage = self.known.pop(address, None)
        if outage is not None:
            for waiter in outage.waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, address: str, seconds: float) -> None:
        """Wait until the broker is connected, `seconds` at most."""
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
