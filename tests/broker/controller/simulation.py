"""Groups of replicas against an idealized controller, a bad network and bad power.

    python -m tests.broker.controller.simulation --schedules 100000

runs so many schedules, each with a seed of its own, on all processors, and says which seed broke
which promise. Ten thousand take about half a minute of one processor.

Everything is random but the state machine itself: which message arrives next, late, or never; which
connection breaks, and when each end notices; who is cut off from whom; when a process is killed, or
loses its power with everything that it has not flushed. The controller is perfect, except that its
answers travel like everything else.

What has to hold with the loss-free settings, after each step:

- the master that the controller knows, once it leads, has every acknowledged message at its place;
- two logs do not differ before the lower of their confirmOffsets;
- no message is twice in a log;

and after the network has healed, all logs are the same, with every acknowledged message.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

from pocketmq.broker.controller.epoch_log import CutRefused
from pocketmq.broker.controller.ha_frames import (
    BadFrame,
    Handshake,
    MasterFrames,
    SlaveFrames,
    encode_epochs,
    encode_handshake,
    encode_report,
    encode_transfer,
)
from pocketmq.broker.controller.master_link import MasterLink, UnfitMaster
from pocketmq.broker.controller.replica import (
    AskForSet,
    Drop,
    Follow,
    Lead,
    Order,
    Replica,
    Role,
    RoleRefused,
    RoleTold,
)
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.broker.controller.slave_link import SlaveLink, UnfitSlave
from pocketmq.store.epochs import Epochs

FILE_SIZE = 256
BLANK = 0xFF
MEMBERS = (1, 2, 3)
STEPS = 250
HEALING = 600
ALIVE_MS = 10_000
PART = 100  # schedules that a process gets at once
PROGRESS = 5_000
MOST_BROKEN = 20


class Broken(AssertionError):
    """A promise was broken."""


class SimLog:
    """A log in memory. A record is its length (1 byte), and a text; a blank ends a file.

    Attributes:
        changes: grows with every change of the bytes.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.changes = 0
        self.flushed = 0
        self.whole = 0  # behind the last whole record
        self.epochs = Epochs()
        self.begin = 0
        self.file_size = FILE_SIZE
        self._borders = [0]  # where records and blanks begin up to `whole`, and `whole`

    @property
    def end(self) -> int:
        return len(self.data)

    @property
    def first_end(self) -> int:
        return self.data[0] if self.data else 0

    def put(self, text: bytes) -> int:
        """Store a record; return where it begins."""
        room = FILE_SIZE - self.end % FILE_SIZE
        if len(text) + 1 > room:
            self.data += bytes([BLANK]) * room
        at = self.end
        self.data += bytes([len(text) + 1]) + text
        self._look()
        return at

    def append(self, data: memoryview) -> None:
        self.data += data
        self._look()

    def begin_at(self, offset: int) -> None:
        raise AssertionError("no file expires here")

    def cut(self, offset: int) -> None:
        if offset != self.border(offset):
            raise CutRefused(f"no record begins at {offset}")
        self._shorten(offset)

    def cut_torn(self) -> None:
        self._shorten(self.whole)

    def save_epochs(self, epochs: Epochs) -> None:
        self.epochs = epochs

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Where each whole record begins, and its text."""
        at, end = 0, len(self.data)
        while at < end:
            size = self.data[at]
            if size == BLANK:
                at += FILE_SIZE - at % FILE_SIZE
            elif at + size > end:
                return
            else:
                yield at, bytes(self.data[at + 1 : at + size])
                at += size

    def border(self, offset: int) -> int:
        """The last record's border up to `offset`."""
        return self._borders[bisect_right(self._borders, offset) - 1]

    def power_cut(self, keep: int) -> None:
        """Lose what lies behind `keep`, which was not flushed."""
        self._shorten(keep)
        self.cut_torn()

    def _shorten(self, offset: int) -> None:
        del self.data[offset:]
        del self._borders[bisect_right(self._borders, offset) :]
        self.whole = self._borders[-1]
        self.flushed = min(self.flushed, offset)
        self.changes += 1

    def _look(self) -> None:
        at, end = self.whole, len(self.data)
        while at < end:
            size = self.data[at]
            if size == BLANK:
                size = FILE_SIZE - at % FILE_SIZE
            if at + size > end:
                break
            at += size
            self._borders.append(at)
        self.whole = at
        self.changes += 1


@dataclass(eq=False)
class Connection:
    """A TCP connection between HA ports: what is on its way in both directions."""

    slave: int
    master: int
    slave_link: SlaveLink
    master_link: MasterLink
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)
    slave_open: bool = True
    master_open: bool = True
    from_slave: SlaveFrames = field(default_factory=SlaveFrames)
    from_master: MasterFrames = field(default_factory=MasterFrames)


class Broker:
    """A process, or what is left of it on the disk."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log = SimLog()
        self.replica: Replica | None = None
        self.starts = 0
        self.confirmed = 0  # as a checkpoint may have it
        self.follows = 0
        self.waiting: list[tuple[int, bytes, int]] = []  # begin, text, end


@dataclass
class Message:
    """A request to the controller, or something that it says."""

    broker: int
    start: int  # of the process that it concerns
    to_controller: bool
    call: Callable[[], None]


class Controller:
    """What an official controller decides, in one place and at once."""

    def __init__(self, *, unclean: bool = False) -> None:
        self.master = 0
        self.epoch = 0
        self.members: frozenset[int] = frozenset()
        self.set_epoch = 0
        self.seen: dict[int, tuple[int, int, int]] = {}  # broker → when, its epoch, its end
        self._unclean = unclean

    def heartbeat(self, broker: int, now: int, epoch: int, end: int) -> None:
        self.seen[broker] = (now, epoch, end)

    def gone(self, broker: int) -> None:
        """Its connection closed."""
        self.seen.pop(broker, None)

    def alive(self, now: int) -> set[int]:
        return {number for number, (at, _, _) in self.seen.items() if now - at <= ALIVE_MS}

    def told(self) -> RoleTold | None:
        if not self.master:
            return None
        return RoleTold(self.master, str(self.master), self.epoch, self.members, self.set_epoch)

    def elect(self, now: int, *, first: int = 0, wanted: int = 0) -> None:
        """Choose another master, as the reference does; without a candidate there is none."""
        alive = self.alive(now)
        if not self.members:
            chosen = first  # the first one ever
            if not chosen:
                return
        else:
            pool = (set(MEMBERS) if self._unclean else self.members) & alive
            if wanted in pool:
                chosen = wanted
            elif pool:
                chosen = max(pool, key=lambda number: (self.seen[number][1:], -number))
            else:
                chosen = 0
        self.epoch += 1
        self.master = chosen
        if chosen:
            self.members = frozenset((chosen,))
            self.set_epoch += 1

    def alter(
        self, broker: int, epoch: int, members: frozenset[int], set_epoch: int, now: int
    ) -> tuple[frozenset[int], int] | None:
        """Change the set, or refuse."""
        if (
            members == self.members
            or broker != self.master
            or epoch != self.epoch
            or set_epoch != self.set_epoch
            or not members - {broker} <= self.alive(now)
            or broker not in members
        ):
            return None
        self.members = members
        self.set_epoch += 1
        return self.members, self.set_epoch


class World:
    """One schedule. `power` allows power cuts; slaves acknowledge what they have flushed then."""

    def __init__(
        self,
        random: Random,
        *,
        power: bool = False,
        make: type[Replica] = Replica,
        settings: ReplicaSettings | None = None,
        unclean: bool = False,
        make_log: type[SimLog] = SimLog,
        steps: int = STEPS,
    ) -> None:
        self.random = random
        self.now = 0
        self.settings = (settings or ReplicaSettings(all_ack=True, ack_flushed=power))._replace(
            min_in_sync=random.choice((1, 2)),
            batch_size=24,
            heartbeat_interval=random.choice((0, 5_000)),
        )
        self.acked: dict[bytes, int] = {}
        self.counts: Counter[str] = Counter()
        self._power = power
        self._make = make
        self._controller = Controller(unclean=unclean)
        self._brokers = {number: Broker(number) for number in MEMBERS}
        for broker in self._brokers.values():
            broker.log = make_log()
        self._connections: list[Connection] = []
        self._messages: list[Message] = []
        self._cut_off: set[frozenset[int]] = set()  # pairs; 0 is the controller
        self._number = 0
        self._checked: list[object] = []  # what `_check` goes by, as it was the last time
        self._steps = steps
        self._acts: list[tuple[Callable[[], None], int]] = [
            (self._deliver_message, 12),
            (self._deliver_up, 16),
            (self._deliver_down, 16),
            (self._transfer, 14),
            (self._send, 12),
            (self._tick, 6),
            (self._connect, 6),
            (self._heartbeat, 6),
            (self._poll, 4),
            (self._flush, 8 if power else 1),
            (self._lose_message, 2),
            (self._lose_connection, 2),
            (self._partition, 2),
            (self._heal_one, 3),
            (self._crash, 2),
            (self._start, 4),
            (self._scan, 3),
            (self._command, 1),
        ]

    def run(self) -> None:
        """Run the whole schedule. Raises Broken."""
        for number in MEMBERS:
            self._start_broker(self._brokers[number])
        for _ in range(self.random.randrange(20)):
            self._round()
            self._send()
        acts, weights = zip(*self._acts, strict=True)
        for act in self.random.choices(acts, weights, k=self._steps):
            self.now += self.random.choice((1, 1, 5, 100, 1_000, 6_000))
            act()
            self._check()
        self._heal()

    # --- what happens -------------------------------------------------------------------------

    def _running(self) -> list[Broker]:
        return [broker for broker in self._brokers.values() if broker.replica is not None]

    def _one_running(self) -> Broker | None:
        running = self._running()
        return self.random.choice(running) if running else None

    def _reaches(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self._cut_off

    def _to_controller(self, broker: Broker, call: Callable[[], None]) -> None:
        self._messages.append(Message(broker.number, broker.starts, True, call))

    def _from_controller(self, number: int, call: Callable[[Broker, Replica], None]) -> None:
        broker = self._brokers[number]
        starts = broker.starts

        def arrive() -> None:
            if broker.replica is not None and broker.starts == starts:
                call(broker, broker.replica)

        self._messages.append(Message(number, starts, False, arrive))

    def _deliver_message(self) -> None:
        ready = [m for m in self._messages if self._reaches(0, m.broker)]
        if ready:
            message = self.random.choice(ready)
            self._messages.remove(message)
            message.call()

    def _lose_message(self) -> None:
        if self._messages:
            self._messages.remove(self.random.choice(self._messages))

    def _tell(self, number: int) -> None:
        told = self._controller.told()
        if told is not None:
            self._from_controller(number, lambda broker, _: self._take_role(broker, told))

    def _tell_all(self) -> None:
        for number in self._controller.alive(self.now):
            self._tell(number)

    def _take_role(self, broker: Broker, told: RoleTold) -> None:
        assert broker.replica is not None
        try:
            self._obey(broker, broker.replica.told(told, self.now))
        except RoleRefused:
            self.counts["roles refused"] += 1

    def _heartbeat(self) -> None:
        broker = self._one_running()
        if broker is not None:
            self._beat(broker)

    def _beat(self, broker: Broker) -> None:
        replica = broker.replica
        assert replica is not None
        master = replica.master
        if replica.role is Role.FENCED and master is None:
            # It must not look alive in a reign that it cannot go on with.
            told = self._controller.told()
            if told is not None and told.master_id == broker.number:
                return
        number, epoch, end = broker.number, replica.epochs.last_epoch, broker.log.end
        self._to_controller(
            broker, lambda: self._controller.heartbeat(number, self.now, epoch, end)
        )

    def _poll(self) -> None:
        broker = self._one_running()
        if broker is None:
            return
        number = broker.number

        def answer() -> None:
            controller = self._controller
            if not controller.master and (
                not controller.members or controller.members & controller.alive(self.now)
            ):
                controller.elect(self.now, first=number)
                self._tell_all()
            self._tell(number)

        self._to_controller(broker, answer)

    def _scan(self) -> None:
        controller = self._controller
        if controller.master and controller.master not in controller.alive(self.now):
            controller.elect(self.now)
            self.counts["elections"] += 1
            self._tell_all()

    def _command(self) -> None:
        """An operator's electMaster."""
        controller = self._controller
        pool = sorted(controller.members & controller.alive(self.now))
        if controller.master and pool:
            controller.elect(self.now, wanted=self.random.choice(pool))
            self.counts["commands"] += 1
            self._tell_all()

    def _obey(self, broker: Broker, orders: list[Order]) -> None:
        replica = broker.replica
        assert replica is not None
        for order in orders:
            if isinstance(order, AskForSet):
                self._ask(broker, replica, order)
            elif isinstance(order, Drop):
                for connection in self._connections:
                    if connection.slave_link is order.link:
                        connection.master_open = False
            elif isinstance(order, Follow):
                broker.follows = order.master_id
                broker.waiting.clear()
                self._hang_up(broker)
            elif isinstance(order, Lead):
                self.counts["reigns"] += 1
                broker.follows = 0
                self._hang_up(broker)

    def _ask(self, broker: Broker, replica: Replica, order: AskForSet) -> None:
        number, master = broker.number, replica.master
        assert master is not None
        open_ = [True]

        def answered(told: tuple[frozenset[int], int] | None) -> None:
            if open_[0] and broker.replica is replica:
                open_[0] = False
                self._obey(broker, replica.set_answered(told, self.now))

        def refused() -> None:
            if open_[0] and broker.replica is replica:
                open_[0] = False
                self._obey(broker, replica.set_refused())

        def carry_out() -> None:
            told = self._controller.alter(
                number, master.master_epoch, order.members, order.set_epoch, self.now
            )
            self.counts["sets changed" if told else "sets refused"] += 1
            self._from_controller(number, lambda *_: answered(told) if told else refused())

        self._to_controller(broker, carry_out)
        # The caller gives up at some time; the request may be carried out later all the same.
        self._messages.append(Message(number, broker.starts, False, lambda: answered(None)))

    # --- connections --------------------------------------------------------------------------

    def _hang_up(self, broker: Broker) -> None:
        """Close the connection to the master."""
        for connection in self._connections:
            if connection.slave == broker.number:
                connection.slave_open = False

    def _connect(self) -> None:
        broker = self._one_running()
        if broker is not None:
            self._connect_broker(broker)

    def _connect_broker(self, broker: Broker) -> None:
        replica = broker.replica
        assert replica is not None
        if replica.role is not Role.SLAVE or replica.link is not None:
            return
        master = self._brokers.get(broker.follows)
        if master is None or master.replica is None:
            return
        if not self._reaches(broker.number, master.number):
            return
        slave_link = master.replica.accepted(self.now)
        if slave_link is None:
            return
        master_link = replica.connected(self.now)
        connection = Connection(broker.number, master.number, slave_link, master_link)
        connection.up.append(encode_handshake(master_link.handshake()))
        self._connections.append(connection)

    def _pick(self, ready: Callable[[Connection], object]) -> Connection | None:
        self._connections = [c for c in self._connections if c.slave_open or c.master_open]
        found = [c for c in self._connections if ready(c) and self._reaches(c.slave, c.master)]
        return self.random.choice(found) if found else None

    def _deliver_up(self) -> None:
        connection = self._pick(lambda c: c.up and c.master_open)
        if connection is not None:
            self._arrive_up(connection)

    def _arrive_up(self, connection: Connection) -> None:
        broker = self._brokers[connection.master]
        replica = broker.replica
        if replica is None or connection.slave_link not in replica.links:
            connection.master_open = False
            return
        try:
            for frame in connection.from_slave.feed(self._piece(connection.up)):
                if isinstance(frame, Handshake):
                    answer, orders = replica.greeted(connection.slave_link, frame, self.now)
                    self._obey(broker, orders)
                    if answer is not None:
                        connection.down.append(encode_epochs(answer))
                else:
                    self._obey(broker, replica.reported(connection.slave_link, frame, self.now))
        except (BadFrame, UnfitSlave) as error:
            raise Broken(f"slave {connection.slave} of {connection.master}: {error}") from error
        self._acknowledge(broker)

    def _deliver_down(self) -> None:
        connection = self._pick(lambda c: c.down and c.slave_open)
        if connection is not None:
            self._arrive_down(connection)

    def _arrive_down(self, connection: Connection) -> None:
        replica = self._brokers[connection.slave].replica
        if replica is None or replica.link is not connection.master_link:
            connection.slave_open = False
            return
        # A record of which only a part had arrived was not confirmed.
        before = self._brokers[connection.slave].log.border(replica.confirmed)
        try:
            for item in connection.from_master.feed(memoryview(self._piece(connection.down))):
                connection.master_link.received(item, self.now)
        except (BadFrame, UnfitMaster) as error:
            raise Broken(f"slave {connection.slave} of {connection.master}: {error}") from error
        if replica.confirmed < before:
            raise Broken(
                f"slave {connection.slave} of {connection.master} cuts its log at "
                f"{replica.confirmed}, though {before} was confirmed"
            )
        self._report(connection)

    def _piece(self, queue: deque[bytes]) -> bytes:
        """What arrives next: a frame, or a part of it."""
        data = queue.popleft()
        if len(data) > 1 and self.random.random() < 0.2:
            at = self.random.randrange(1, len(data))
            queue.appendleft(data[at:])
            data = data[:at]
        return data

    def _report(self, connection: Connection) -> None:
        offset = connection.master_link.report(self.now)
        if offset is not None and connection.slave_open:
            connection.up.append(encode_report(offset))

    def _transfer(self) -> None:
        connection = self._pick(lambda c: c.master_open)
        if connection is not None:
            self._feed(connection)

    def _feed(self, connection: Connection) -> bool:
        broker = self._brokers[connection.master]
        replica = broker.replica
        if replica is None or connection.slave_link not in replica.links:
            connection.master_open = False
            return False
        head = replica.next_transfer(connection.slave_link, self.now)
        if head is None:
            return False
        body = bytes(broker.log.data[head.offset : head.offset + head.size]) if head.size else b""
        connection.down.append(encode_transfer(head) + body)
        return True

    def _lose_connection(self) -> None:
        """One end notices; what was on its way is lost, or arrives before the other end does."""
        connection = self._pick(lambda c: True)
        if connection is not None:
            self._break(connection, self.random.choice((True, False)))

    def _break(self, connection: Connection, at_slave: bool) -> None:
        slave = self._brokers[connection.slave].replica
        broker = self._brokers[connection.master]
        if at_slave:
            connection.slave_open = False
            connection.down.clear()
            if slave is not None and slave.link is connection.master_link:
                slave.disconnected()
        else:
            connection.master_open = False
            connection.up.clear()
            if broker.replica is not None:
                self._obey(broker, broker.replica.closed(connection.slave_link, self.now))

    # --- clients, disks, power ----------------------------------------------------------------

    def _send(self) -> None:
        broker = self._one_running()
        if broker is None or broker.replica is None or broker.replica.refusal:
            return
        self._number += 1
        text = b"%d%b" % (self._number, b"." * self.random.randrange(40))
        begin = broker.log.put(text)
        broker.waiting.append((begin, text, broker.log.end))
        self.counts["sends"] += 1
        self._acknowledge(broker)

    def _acknowledge(self, broker: Broker) -> None:
        replica = broker.replica
        if replica is None or not broker.waiting:
            return
        kept = []
        for begin, text, end in broker.waiting:
            flushed = not self.settings.ack_flushed or broker.log.flushed >= end
            if flushed and replica.replicated(end):
                self.acked[text] = begin
                self.counts["acknowledged"] += 1
            else:
                kept.append((begin, text, end))
        broker.waiting = kept

    def _flush(self) -> None:
        broker = self._one_running()
        if broker is not None:
            self._flush_broker(broker)

    def _flush_broker(self, broker: Broker) -> None:
        broker.log.flushed = broker.log.whole
        for connection in self._connections:
            if connection.slave == broker.number and connection.slave_open:
                self._report(connection)
        self._acknowledge(broker)

    def _tick(self) -> None:
        broker = self._one_running()
        if broker is not None:
            self._tick_broker(broker)

    def _tick_broker(self, broker: Broker) -> None:
        replica = broker.replica
        assert replica is not None
        self._obey(broker, replica.tick(self.now))
        if replica.link is not None and replica.link.is_lost(self.now):
            replica.disconnected()
            self._hang_up(broker)
        for connection in self._connections:
            mine = replica.link is connection.master_link
            if connection.slave == broker.number and connection.slave_open and mine:
                if not connection.master_open and not connection.down:
                    self._break(connection, at_slave=True)
                else:
                    self._report(connection)
            elif (
                connection.master == broker.number
                and connection.master_open
                and not connection.slave_open
                and not connection.up
            ):
                self._break(connection, at_slave=False)
        self._acknowledge(broker)

    def _partition(self) -> None:
        self._cut_off.add(frozenset(self.random.sample((0, *MEMBERS), 2)))

    def _heal_one(self) -> None:
        if self._cut_off:
            self._cut_off.remove(self.random.choice(sorted(self._cut_off, key=sorted)))

    def _crash(self) -> None:
        broker = self._one_running()
        if broker is None or broker.replica is None:
            return
        broker.confirmed = self.random.choice((0, broker.replica.confirmed))
        broker.replica = None
        broker.waiting.clear()
        for connection in self._connections:
            if connection.slave == broker.number:
                connection.slave_open = False
            if connection.master == broker.number:
                connection.master_open = False
        if self._power and self.random.random() < 0.5:
            self.counts["power cuts"] += 1
            flushed, end = broker.log.flushed, broker.log.end
            broker.log.power_cut(self.random.randint(flushed, end))
        else:
            self.counts["kills"] += 1
        if self.random.random() < 0.7:
            self._controller.gone(broker.number)

    def _start(self) -> None:
        stopped = [broker for broker in self._brokers.values() if broker.replica is None]
        if stopped:
            self._start_broker(self.random.choice(stopped))

    def _start_broker(self, broker: Broker) -> None:
        broker.starts += 1
        broker.follows = 0
        broker.log.cut_torn()
        broker.replica = self._make(
            self.settings,
            broker.log,
            broker.log.epochs,
            broker.number,
            confirmed=broker.confirmed,
        )
        self._to_controller(broker, lambda: self._tell(broker.number))

    # --- what has to hold ---------------------------------------------------------------------

    def _check(self) -> None:
        # Nine steps of ten change nothing that the promises are about.
        state: list[object] = [self._controller.master, self._controller.epoch, len(self.acked)]
        for broker in self._brokers.values():
            replica = broker.replica
            if replica is None:
                state.append(None)
            else:
                state += broker.log.changes, replica.role, replica.master, replica.confirmed
        if state != self._checked:
            self._check_state()
            self._checked = state

    def _check_state(self) -> None:
        told = self._controller.told()
        if told is not None:
            broker = self._brokers[told.master_id]
            replica = broker.replica
            if (
                replica is not None
                and replica.role is Role.MASTER
                and replica.master is not None
                and replica.master.master_epoch == told.master_epoch
            ):
                self._check_acked(broker)
        confirmed = [
            (broker.replica.confirmed, broker) for broker in self._running() if broker.replica
        ]
        for offset, broker in confirmed:
            if offset > broker.log.end:
                raise Broken(f"{broker.number} confirms {offset} of {broker.log.end} bytes")
        for number, (offset, one) in enumerate(confirmed):
            for other_offset, other in confirmed[number + 1 :]:
                common = min(offset, other_offset)
                if one.log.data[:common] == other.log.data[:common]:
                    continue
                common = min(one.log.border(common), other.log.border(common))
                if one.log.data[:common] != other.log.data[:common]:
                    raise Broken(
                        f"the logs of {one.number} and {other.number} differ before {common}"
                    )

    def _check_acked(self, broker: Broker) -> None:
        places: dict[bytes, int] = {}
        for at, text in broker.log.records():
            if text in places:
                raise Broken(f"{text!r} is twice in the log of {broker.number}")
            places[text] = at
        for text, at in self.acked.items():
            if places.get(text) != at:
                raise Broken(
                    f"{text!r} was acknowledged at {at}; in the log of master {broker.number} it "
                    f"is at {places.get(text)}"
                )

    def _heal(self) -> None:
        """Let everything work, and wait until all is the same."""
        self._cut_off.clear()
        for _ in range(HEALING):
            self._round()
            self._check()
            if self._healed():
                return
        states = {
            number: (broker.replica and broker.replica.role.value, broker.log.end)
            for number, broker in self._brokers.items()
        }
        raise Broken(f"not healed: {states}, {self._controller.told()}")

    def _round(self) -> None:
        """Everything works for a moment."""
        self.now += 200
        for broker in self._brokers.values():
            if broker.replica is None:
                self._start_broker(broker)
            self._beat(broker)
            self._tick_broker(broker)
            self._flush_broker(broker)
            self._connect_broker(broker)
        self._scan()
        self._poll()
        messages, self._messages = self._messages, []
        for message in messages:
            message.call()
        for connection in list(self._connections):
            while connection.up and connection.master_open:
                self._arrive_up(connection)
            while connection.master_open and self._feed(connection):
                pass
            while connection.down and connection.slave_open:
                self._arrive_down(connection)

    def _healed(self) -> bool:
        logs = {bytes(broker.log.data) for broker in self._brokers.values()}
        if self._controller.members != frozenset(MEMBERS) or len(logs) > 1:
            return False
        master = self._brokers[self._controller.master]
        self._check_acked(master)
        replica, end = master.replica, master.log.end
        return replica is not None and (not end or replica.replicated(end))


def run(seed: int, **options: object) -> Counter[str]:
    """Run the schedule of a seed; return what happened in it. Raises Broken."""
    world = World(Random(seed), power=bool(seed % 2), **options)  # type: ignore[arg-type]
    try:
        world.run()
    except Broken as error:
        raise Broken(f"seed {seed}: {error}") from error
    return world.counts


def run_many(seeds: range, steps: int) -> tuple[int, Counter[str], list[str]]:
    """Run the schedules of these seeds; return how many, what happened, and what was broken."""
    counts: Counter[str] = Counter()
    broken = []
    for seed in seeds:
        try:
            counts += run(seed, steps=steps)
        except Broken as error:
            broken.append(str(error))
    return len(seeds), counts, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (0)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each schedule ({STEPS})")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.schedules)
    parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
    done = 0
    counts: Counter[str] = Counter()
    broken: list[str] = []
    began = time.monotonic()
    with multiprocessing.Pool(options.processes) as pool:
        for number, happened, faults in pool.imap_unordered(
            partial(run_many, steps=options.steps), parts
        ):
            done += number
            counts += happened
            broken += faults
            for fault in faults:
                print(fault, flush=True)
            if done % PROGRESS == 0:
                print(f"{done} schedules in {time.monotonic() - began:.0f} s", flush=True)
            if len(broken) >= MOST_BROKEN:
                break
    seconds = time.monotonic() - began
    print(f"{done} schedules in {seconds:.0f} s: {len(broken)} broken; {dict(counts)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
