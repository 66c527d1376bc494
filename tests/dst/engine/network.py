"""TCP between machines: latency, pieces of any size, back-pressure, and what goes wrong.

A connection keeps its order; different ones are independent. Data that cannot get through wait, as
the kernel repeats them, until the way is free again, or until TCP_USER_TIMEOUT gives up, if that is
set. Who writes to a process that has died gets a reset; to a machine without power, nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from .scheduler import MILLISECOND, SECOND, Scheduler

if TYPE_CHECKING:
    from .machine import Machine, Process

LATENCY: Final = 0.15 * MILLISECOND
JITTER: Final = 0.3 * MILLISECOND
LOCAL: Final = (5_000, 50_000)
SPLIT: Final = 0.1
"""How likely what is written at once arrives in pieces."""
WINDOW: Final = 256 * 1024
"""Bytes that a kernel takes for a process that does not read."""
REPEAT: Final = (200 * MILLISECOND, 2 * SECOND)
"""How long after a partition has healed the kernel tries again."""
SYN_REPEAT: Final = 1 * SECOND
KEEPALIVE: Final = 45 * SECOND
"""After which an idle connection to a machine without power is given up, if SO_KEEPALIVE is set."""
HIGH_WATER: Final = 64 * 1024
FIRST_PORT: Final = 40_000


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class SimSocket:
    """What `get_extra_info("socket")` returns."""

    def __init__(self, name: tuple[str, int]) -> None:
        self.options: dict[tuple[int, int], Any] = {}
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self.options[level, option] = value

    def fileno(self) -> int:
        return -1


class SimServer:
    """What `create_server` returns."""

    def __init__(
        self, network: Network, process: Process, factory: Callable[[], Any], port: int
    ) -> None:
        self.process = process
        self.factory = factory
        self.address = (process.machine.ip, port)
        self.sockets: list[SimSocket] = [SimSocket(self.address)]
        self._network = network

    async def start_serving(self) -> None:
        pass

    def close(self) -> None:
        self.sockets = []
        self._network.stop_listening(self)

    async def wait_closed(self) -> None:
        pass

    def is_serving(self) -> bool:
        return bool(self.sockets)


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: Network, process: Process, local: tuple[str, int], number: int
    ) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.machine = process.machine
        self.loop = process.loop
        self.local = local
        self.number = number
        self.peer: End
        self.protocol: Any = None
        self.closing = False
        self.gone = False
        self.socket = SimSocket(local)
        # Towards the peer: what is under way, None for the end of the stream.
        self.way: deque[bytes | None] = deque()
        self.unacknowledged = 0
        self.stuck = False
        self._stuck_number = 0
        self._last_arrival = 0
        self._eof = False
        self._high, self._low, self._full = HIGH_WATER, HIGH_WATER // 4, False
        # From the peer: what the kernel has for the process.
        self.arrived: deque[bytes | None] = deque()
        self.unread = 0
        self._reading = True

    def __hash__(self) -> int:
        return hash((self.local, self.number))

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = {"peername": self.peer.local, "sockname": self.local, "socket": self.socket}
        return found.get(name, default)

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self.unacknowledged

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self.arrived:
            self.loop.call_soon(self._read)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.gone or self._eof or not data:
            return
        data = bytes(data)
        network = self.network
        network.scheduler.step("tx", self.number, self.local, len(data), zlib.crc32(data))
        at = 0
        while at < len(data):
            size = len(data) - at
            if size > 1 and network.chance.random() < SPLIT:
                size = network.chance.randrange(1, size)
            self._send(data[at : at + size])
            at += size
        if self.unacknowledged > self._high and not self._full:
            self._full = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof:
            self._eof = True
            self._send(None)

    def close(self) -> None:
        if self.closing:
            return
        self.closing = True
        self.write_eof()
        if not self.unacknowledged:
            self.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        if self.gone:
            return
        self.closing = True
        self._forget_way()
        self.loop.call_soon(self.lose, None)
        self.network.reset(self.peer, self)

    # Towards the peer

    def _send(self, data: bytes | None) -> None:
        network = self.network
        latency = network.latency(self.machine, self.peer.machine)
        arrival = max(self._last_arrival + 1, network.scheduler.now + latency)
        self._last_arrival = arrival
        if data is not None:
            self.unacknowledged += len(data)
        self.way.append(data)
        network.scheduler.at(arrival, self.arrive)

    def arrive(self) -> None:
        """The first piece under way reaches the machine of the peer, if it can."""
        network, peer = self.network, self.peer
        if not self.way or self.stuck:
            return
        if self.process.dead and not self.machine.powered:
            self.way.clear()
            return
        if not network.reaches(self.machine, peer.machine) or peer.unread > WINDOW:
            self._get_stuck()
            return
        data = self.way.popleft()
        if peer.process.dead or peer.gone or peer.process.ended:
            network.reset(self, peer)
            return
        peer.arrived.append(data)
        if data is not None:
            peer.unread += len(data)
            if network.reaches(peer.machine, self.machine):
                self.unacknowledged -= len(data)
            else:
                self._get_stuck(len(data))
        if not self.gone:
            self.loop.tell(self._written)
        peer.loop.tell(peer.read_if_open)

    def _get_stuck(self, delivered: int = 0) -> None:
        """What was written is not acknowledged; `delivered` bytes of it have arrived all the
        same."""
        self.unacknowledged -= delivered
        self.stuck = True
        self._stuck_number += 1
        self.network.stuck[self] = None
        limit = self.socket.options.get((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        if limit:
            self.network.scheduler.after(limit * MILLISECOND, self._give_up, self._stuck_number)

    def _give_up(self, number: int) -> None:
        if self.stuck and number == self._stuck_number and not self.process.dead:
            self.network.stuck.pop(self, None)
            self.stuck = False
            self._forget_way()
            self.loop.tell(self.lose, _error(errno.ETIMEDOUT))

    def go_on(self) -> None:
        """The way is free again, or the peer reads again."""
        if self.stuck:
            self.stuck = False
            self.network.stuck.pop(self, None)
            delay = self.network.chance.randrange(*REPEAT)
            for _ in range(len(self.way)):
                self.network.scheduler.after(delay, self.arrive)

    def _written(self) -> None:
        if self.gone:
            return
        if self._full and self.unacknowledged <= self._low:
            self._full = False
            self.protocol.resume_writing()
        if self.closing and not self.unacknowledged:
            self.lose(None)

    def _forget_way(self) -> None:
        self.way.clear()
        self.unacknowledged = 0

    # From the peer

    def read_if_open(self) -> None:
        if self.protocol is not None:
            self._read()

    def _read(self) -> None:
        try:
            self._hand_over()
        except Exception as error:  # as asyncio's own transports take it
            self.machine.report("connection", repr(error), error)
            self._forget_way()
            self.network.reset(self.peer, self)
            self.lose(error)

    def _hand_over(self) -> None:
        protocol = self.protocol
        while self.arrived and self._reading and not self.gone:
            data = self.arrived.popleft()
            if data is None:
                if not protocol.eof_received():
                    self.close()
                return
            was_full = self.unread > WINDOW
            self.unread -= len(data)
            if was_full and self.unread <= WINDOW:
                self.peer.go_on()
            if self.closing:
                continue
            if isinstance(protocol, asyncio.BufferedProtocol):
                view = memoryview(data)
                while view:
                    buffer: Any = protocol.get_buffer(len(view))
                    size = min(len(buffer), len(view))
                    buffer[:size] = view[:size]
                    protocol.buffer_updated(size)
                    view = view[size:]
            else:
                protocol.data_received(data)

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol that the connection is over."""
        if self.gone:
            return
        self.gone = self.closing = True
        self.network.forget(self)
        self.network.scheduler.step("closed", self.number, self.local, type(error).__name__)
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def broken(self, error: OSError) -> None:
        """The kernel has given the connection up."""
        if not self.gone and not self.process.dead:
            self._forget_way()
            self.loop.tell(self.lose, error)


class Network:
    """Who reaches whom, how fast, and which connections there are."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.chance = scheduler.stream("network")
        self.machines: dict[str, Machine] = {}
        self.stuck: dict[End, None] = {}
        self._listening: dict[tuple[str, int], SimServer] = {}
        self._ends: dict[End, None] = {}
        # How many partitions cut each way: they may overlap, and end in any order.
        self._cut: Counter[tuple[str, str]] = Counter()
        self._slow: dict[tuple[str, str], float] = {}
        self._numbers = 0
        self._ports: dict[str, int] = {}

    def resolve(self, host: str) -> str:
        return self.machines[host].ip if host in self.machines else host

    def _at(self, ip: str) -> Machine | None:
        return next((machine for machine in self.machines.values() if machine.ip == ip), None)

    # Ways

    def latency(self, source: Machine, target: Machine) -> int:
        if source is target:
            return self.chance.randrange(*LOCAL)
        factor = self._slow.get((source.name, target.name), 1.0)
        return int((LATENCY + JITTER * self.chance.expovariate(1)) * factor)

    def reaches(self, source: Machine, target: Machine) -> bool:
        return target.powered and not self._cut[source.name, target.name]

    def cut(self, sources: Collection[Machine], targets: Collection[Machine]) -> None:
        """Let nothing through from any of the sources to any of the targets."""
        ways = sorted((s.name, t.name) for s in sources for t in targets if s is not t)
        self._cut.update(ways)
        self.scheduler.step("partition", str(ways))

    def heal(
        self, sources: Collection[Machine] | None = None, targets: Collection[Machine] = ()
    ) -> None:
        """Undo one `cut` from these sources to these targets, or all of them."""
        if sources is None:
            self._cut.clear()
        else:
            self._cut -= Counter({(s.name, t.name): 1 for s in sources for t in targets})
        self.scheduler.step("heal", str(sorted(self._cut)))
        self._look_again()

    def slow(self, one: Machine, other: Machine, factor: float) -> None:
        """Multiply the latency between two machines; 1 is normal."""
        self._slow[one.name, other.name] = self._slow[other.name, one.name] = factor
        self.scheduler.step("slow link", one.name, other.name, factor)

    def at_full_speed(self) -> None:
        self._slow.clear()

    def machine_up(self, machine: Machine) -> None:
        self._look_again()

    def _look_again(self) -> None:
        for end in list(self.stuck):
            there = self.reaches(end.machine, end.peer.machine)
            if there and self.reaches(end.peer.machine, end.machine):
                end.go_on()

    # Connections

    def listen(
        self, process: Process, factory: Callable[[], Any], host: str, port: int
    ) -> SimServer:
        ip = process.machine.ip
        if host not in (ip, "0.0.0.0"):
            raise _error(errno.EADDRNOTAVAIL)
        port = port or self._free_port(process.machine)
        if (ip, port) in self._listening:
            raise _error(errno.EADDRINUSE)
        server = self._listening[ip, port] = SimServer(self, process, factory, port)
        return server

    def stop_listening(self, server: SimServer) -> None:
        if self._listening.get(server.address) is server:
            del self._listening[server.address]

    def _free_port(self, machine: Machine) -> int:
        port = self._ports[machine.name] = self._ports.get(machine.name, FIRST_PORT) + 1
        return port

    async def connect(
        self, process: Process, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[End, Any]:
        scheduler, machine, loop = self.scheduler, process.machine, process.loop
        target = self._at(self.resolve(host))
        if target is None:
            raise _error(errno.EHOSTUNREACH)
        future = loop.create_future()
        local = (machine.ip, self._free_port(machine))

        def handshake() -> None:
            if process.dead or future.done():
                return
            if not (self.reaches(machine, target) and self.reaches(target, machine)):
                scheduler.after(SYN_REPEAT, handshake)
                return
            server = self._listening.get((target.ip, port))
            back = self.latency(target, machine)
            if server is None or server.process.dead:
                scheduler.after(back, loop.tell, refused)
                return
            self._numbers += 1
            mine = End(self, process, local, self._numbers)
            theirs = End(self, server.process, server.address, self._numbers)
            mine.peer, theirs.peer = theirs, mine
            self._ends[mine] = self._ends[theirs] = None
            server.process.loop.tell(accepted, server, theirs)
            scheduler.after(back, loop.tell, opened, mine)

        def accepted(server: SimServer, end: End) -> None:
            end.protocol = server.factory()
            end.protocol.connection_made(end)
            end.read_if_open()

        def opened(end: End) -> None:
            if future.done():  # given up meanwhile
                end.abort()
                return
            if end.gone:  # a reset was quicker than the caller's look at its socket
                future.set_exception(_error(errno.ECONNRESET))
                return
            end.protocol = factory()
            end.protocol.connection_made(end)
            future.set_result((end, end.protocol))
            end.read_if_open()

        def refused() -> None:
            if not future.done():
                future.set_exception(_error(errno.ECONNREFUSED))

        scheduler.after(self.latency(machine, target), handshake)
        connection: tuple[End, Any] = await future
        return connection

    def accepted(self, ip: str, port: int) -> int:
        """How many connections a server has."""
        return sum(end.local == (ip, port) for end in self._ends)

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)
        self.stuck.pop(end, None)

    def reset(self, end: End, by: End) -> None:
        """Have `end` get a reset from the machine of its peer, if that gets through."""

        def arrived() -> None:
            if self.reaches(by.machine, end.machine):
                end.broken(_error(errno.ECONNRESET))

        self.scheduler.after(self.latency(by.machine, end.machine), arrived)

    def break_connections(self, one: Machine, other: Machine) -> None:
        """Reset every connection between two machines, at both ends."""
        self.scheduler.step("reset", one.name, other.name)
        for end in list(self._ends):
            if {end.machine, end.peer.machine} == {one, other}:
                end.broken(_error(errno.ECONNRESET))

    def process_ended(self, process: Process, *, reset: bool) -> None:
        """The kernel closes what a process had open; without power, there is no kernel."""
        for address, server in list(self._listening.items()):
            if server.process is process:
                del self._listening[address]
        for end in [end for end in self._ends if end.process is process]:
            self.forget(end)
            if reset:
                self.reset(end.peer, end)
            elif end.peer.socket.options.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
                self.scheduler.after(KEEPALIVE, end.peer.broken, _error(errno.ETIMEDOUT))
