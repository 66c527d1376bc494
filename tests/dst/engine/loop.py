"""The event loop of a process: asyncio's own, but for its selector and its connections."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from .scheduler import MICROSECOND, SECOND, Strand

if TYPE_CHECKING:
    from .machine import Process

TURN: Final = (20 * MICROSECOND, 120 * MICROSECOND)
"""What a turn of the loop takes, drawn."""

_serials = itertools.count(1)


class SimTask(asyncio.Task[Any]):
    """A task whose hash is not its address: sets of tasks have the same order in each run."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.serial = next(_serials)
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is not its address."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self.serial = next(_serials)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class _Selector:
    """Parks the strand where asyncio would wait for sockets."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> tuple[()]:
        loop = self._loop
        scheduler, strand = loop.scheduler, loop.strand
        strand.in_loop = True
        if loop.woken or (timeout is not None and timeout <= 0):
            scheduler.wake(strand, delay=scheduler.chance.randrange(*TURN))
            scheduler.park()
        else:
            loop.waiting = True
            until = None if timeout is None else scheduler.now + int(timeout * SECOND) + 1
            scheduler.park(until, "its event loop")
            loop.waiting = False
        loop.woken = False
        return ()

    def close(self) -> None:
        pass


class SimLoop(asyncio.BaseEventLoop):
    """Created in its strand; `strand` runs it."""

    def __init__(self, process: Process, strand: Strand) -> None:
        self.process = process
        self.strand = strand
        self.scheduler = process.machine.scheduler
        self.waiting = False
        self.woken = False
        super().__init__()
        self._clock_resolution = 1e-6
        self._selector = _Selector(self)
        self.set_exception_handler(self._unhandled)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.process.machine.report("event loop", f"{context.get('message')}: {error!r}", error)

    def time(self) -> float:
        return self.scheduler.monotonic_ns() / 1e9

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        return SimTask(coro, loop=self, **options)

    # What asyncio calls

    def _process_events(self, event_list: tuple[()]) -> None:
        pass

    def _write_to_self(self) -> None:
        if not self.woken:
            self.woken = True
            if self.waiting:
                self.scheduler.wake(self.strand)

    # From outside of the process

    def tell(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Something has come from the network, or from the simulator."""
        if not (self.process.dead or self.process.ended):
            self.call_soon(callback, *arguments)
            self._write_to_self()

    # Connections

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int | str | None, **_: Any
    ) -> list[tuple[Any, ...]]:
        address = (self.process.machine.network.resolve(host), port or 0)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> Any:
        return self.process.machine.network.listen(self.process, protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> Any:
        if options.get("ssl") is not None:
            raise NotImplementedError("TLS is not simulated")
        network = self.process.machine.network
        return await network.connect(self.process, protocol_factory, host, port)
