"""What goes wrong, and how it ends."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from pocketmq.message.record import iter_records

from .clients import Clients, name_of
from .cluster import Cluster
from .engine.disk import LOG, SYNC
from .engine.machine import Machine
from .engine.scheduler import SECOND
from .history import History
from .plan import Fault, Plan

CONFIRMED: Final = slice(32, 40)
"""Where a checkpoint has the physical offset up to which the log was flushed."""
UNNOTICED: Final = ("bit flip", "drift")
"""What happens to a server and explains nothing that clients see of it."""
AFTERMATH: Final = 20 * SECOND
"""How long after its end a fault still explains what clients see."""


class Faults:
    """The faults of a plan."""

    def __init__(self, plan: Plan, cluster: Cluster, clients: Clients, history: History) -> None:
        self._plan = plan
        self._cluster = cluster
        self._clients = clients
        self._history = history
        self._over = False
        self._flips = cluster.scheduler.stream("bit flips")
        self._broken_disks: set[str] = set()

    def begin(self) -> None:
        """Have all of them happen, from now on."""
        scheduler = self._cluster.scheduler
        for fault in self._plan.faults:
            scheduler.after(fault.at * SECOND, self._happen, fault)

    def _happen(self, fault: Fault) -> None:
        if self._over:
            return
        machines, network = self._cluster.machines, self._cluster.network
        machine = machines[fault.target]
        others = [machines[name] for name in fault.others if name in machines]
        now = self._cluster.scheduler.now
        length = int(fault.seconds * SECOND)
        self._cluster.scheduler.step("fault", fault.kind, fault.target, fault.seconds)
        if self._concerns_servers(fault) and fault.kind not in UNNOTICED:
            steps = fault.kind == "clock"
            known = self._history.clock_steps if steps else self._history.server_faults
            known.append((now, now + length + AFTERMATH))
        match fault.kind:
            case "kill":
                self._away(fault, now, length)
                machine.kill()
                if fault.target in self._plan.brokers:
                    self._history.downs.append((now, now + length))
                self._later(length, self._boot, machine)
            case "power":
                self._away(fault, now, length)
                machine.cut_power()
                self._history.power_cuts.append(now)
                self._later(length, self._boot, machine)
            case "new disk":
                if self._cluster.may_lose(fault.target):
                    # The controller has to know at once: if it elected what is gone, nobody would
                    # be left in the SyncStateSet.
                    machine.kill()
                    self._note_shorter_log(machine)
                    machine.disk.wipe()
                    self._later(length, self._boot, machine)
            case "leave":
                self._clients.leave(fault.target)
                self._later(length, self._boot, machine)
            case "pause":
                self._away(fault, now, length)
                machine.pause()
                self._later(length, machine.resume)
            case "partition":
                network.cut([machine], others)
                if fault.both:
                    network.cut(others, [machine])
                self._later(length, self._heal, machine, others)
            case "reset":
                network.break_connections(machine, others[0])
            case "slow link":
                network.slow(machine, others[0], float(fault.amount))
                self._later(length, network.slow, machine, others[0], 1.0)
            case "slow disk":
                longest = int(float(fault.amount) * SECOND)
                machine.disk.sync_time = (longest // 10, longest)
                self._later(length, self._quick_disk, machine)
            case "disk error":
                self._break_disk(machine, str(fault.amount))
                # Only a start makes a broker trust its disk again.
                self._later(length, self._replace_process, machine)
            case "full disk":
                machine.disk.full = True
                self._history.full_disks.append((fault.target, now, now + length))
                self._later(length, self._room_again, machine)
            case "bit flip":
                self._flip(machine)
            case "drift":
                machine.drift(float(fault.amount))
            case "clock":
                machine.step_clock(int(float(fault.amount) * SECOND))
            case _:
                raise ValueError(fault.kind)

    def _concerns_servers(self, fault: Fault) -> bool:
        servers = {*self._plan.brokers, *self._plan.name_server_machines, "controller"}
        return fault.target in servers or bool(servers & set(fault.others))

    def _later(self, delay: int, action: Callable[..., object], *arguments: object) -> None:
        def act() -> None:
            if not self._over:
                action(*arguments)

        self._cluster.scheduler.after(delay, act)

    def lose_master(self) -> None:
        """Lose the master's machine with its disk for good, while everything else is as it is."""
        now = self._cluster.scheduler.now
        self._history.losses.append(now)
        self._history.server_faults.append((now, now + 10 * AFTERMATH))
        self._cluster.lose_master()

    def _away(self, fault: Fault, now: int, length: int) -> None:
        if self._plan.cluster == "slave" and fault.target == self._plan.brokers[0]:
            self._history.absences.append((now, now + length))

    def _room_again(self, machine: Machine) -> None:
        now = self._cluster.scheduler.now
        full = self._history.full_disks
        if not any(name == machine.name and now < end for name, _, end in full):
            self._empty_disk(machine)

    def _flip(self, machine: Machine) -> None:
        """Flip a bit in the body of a message whose file of the log is closed, and of which the
        checkpoint of each broker says that it was flushed: after a power cut, others look like torn
        writes, and a slave that lacks one never gets past it. Nothing happens while there is no
        such file."""
        chance = self._flips
        machines = self._cluster.machines
        flushed = min(_flushed(machines[name]) for name in self._plan.brokers)
        paths = sorted((machine.root / "store" / LOG).glob("[0-9]*"))
        ahead = 2  # the last file, and one that was made in advance
        if len(paths) <= ahead:
            return
        path = chance.choice(paths[:-ahead])
        content = path.read_bytes()
        places = []
        for record in iter_records(content, check_crc=False):
            name = name_of(bytes(record.body))
            known = name in self._history.sends and len(record.body) > len(name) + 1
            if known and record.physical_offset + record.size <= flushed:
                places.append((name, record.physical_offset - int(path.name), record))
        if not places:
            return
        name, begin, record = chance.choice(places)
        body = bytes(record.body)
        at = content.index(body, begin) + chance.randrange(len(name) + 1, len(body))
        machine.disk.flip(path, at, chance.randrange(8))
        self._history.sends[name].damaged = True
        self._history.flips.append((int(path.name), begin, begin + record.size))

    def _boot(self, machine: Machine) -> None:
        if machine.running and machine.name in self._clients.leaving:
            self._later(SECOND, self._boot, machine)  # it has not left yet
            return
        self._cluster.boot(machine.name)

    def _heal(self, machine: Machine, others: list[Machine]) -> None:
        network = self._cluster.network
        network.heal([machine], others)
        network.heal(others, [machine])

    def _quick_disk(self, machine: Machine) -> None:
        machine.disk.sync_time = SYNC

    def _empty_disk(self, machine: Machine) -> None:
        self._note_shorter_log(machine)
        machine.disk.full = False

    def _note_shorter_log(self, machine: Machine) -> None:
        if machine.disk.full:
            files = sorted((machine.root / "store" / LOG).glob("[0-9]*"))
            self._history.shorter_log |= bool(files) and int(files[0].name) > 0

    def _break_disk(self, machine: Machine, operation: str) -> None:
        self._broken_disks.add(machine.name)

        def fails(asked: str) -> int:
            if asked != operation:
                return 0
            machine.disk.fails = None  # once
            return errno.EIO

        machine.disk.fails = fails

    def _replace_process(self, machine: Machine) -> None:
        self._broken_disks.discard(machine.name)
        machine.disk.fails = None
        machine.kill()
        self._cluster.boot(machine.name)

    def end(self) -> None:
        """From now on nothing goes wrong any more, and everything runs."""
        self._over = True
        cluster = self._cluster
        self._history.calm = cluster.scheduler.now
        cluster.scheduler.step("calm")
        cluster.network.heal()
        cluster.network.at_full_speed()
        for machine in list(cluster.machines.values()):
            self._quick_disk(machine)
            self._empty_disk(machine)
            machine.disk.fails = None
            machine.resume()
            if machine.name in self._broken_disks:
                machine.kill()
        for name in list(cluster.machines):
            machine = cluster.machines[name]
            if machine.running and name in self._clients.told_to_leave:
                machine.kill()  # it was about to leave
            cluster.boot(name)


def _flushed(machine: Machine) -> int:
    """The physical offset up to which a broker knows after a power cut that its log was flushed."""
    checkpoint = machine.disk.certain(machine.root / "store" / "checkpoint")
    return int.from_bytes(checkpoint[CONFIRMED])
