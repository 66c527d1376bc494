"""The servers of a plan, as processes on machines."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from pocketmq import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig, load_broker_config
from pocketmq.cli.servers.server_command import started
from pocketmq.client.credentials import Credentials
from pocketmq.local_proxy import LocalProxy
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.serving.long_requests import TURN
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.remoting.settings.properties_file import format_properties
from pocketmq.remoting.tls.tls_config import TlsConfig, TlsMode
from pocketmq.store.errors import StoreCorrupt
from tests.broker.controller.controller_stub import ControllerStub

from .engine.machine import Machine
from .engine.network import Network
from .engine.scheduler import MILLISECOND, SECOND, Scheduler
from .history import Facts
from .plan import Plan

Main = Callable[[], Coroutine[Any, Any, None]]

NAMES_PORT: Final = 9876
BROKER_PORT: Final = 10911
CONTROLLER_PORT: Final = 9878
GRPC_PORT: Final = 8081
CONTROLLER: Final = "controller"
BROKER_NAME: Final = "broker-a"
ROOT: Final = Credentials("root", "root-password-1")
"""Of everybody who may do everything, where requests have to be signed."""
ELECTION: Final = 0.5
"""How often the controller looks whether its master is alive, seconds."""


class Cluster:
    """Machines by name, and what runs on each of them when it is started.

    Attributes:
        lost: the machine that is lost for good.
        brokers: the last one that was started on each machine.
        masters: of a group, the machines that were seen as masters, by epoch.
    """

    def __init__(
        self,
        plan: Plan,
        scheduler: Scheduler,
        root: Path,
        report: Callable[[str, str, str, BaseException | None], object],
    ) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.network = Network(scheduler)
        self.mains: dict[str, Main] = {}
        self.brokers: dict[str, Broker] = {}
        self.masters: defaultdict[int, set[str]] = defaultdict(set)
        self.lost = ""
        self._promoted = False
        self._stub: ControllerStub | None = None
        self._root = root
        self._report = report
        for name in plan.name_server_machines:
            self.add(name, self._name_server)
        if plan.cluster == "group":
            self.add(CONTROLLER, self._controller)
        for number, name in enumerate(plan.brokers):
            self.add(name, partial(self._broker, number))

    @property
    def machines(self) -> dict[str, Machine]:
        return self.network.machines

    @property
    def namesrv(self) -> str:
        names = self.plan.name_server_machines
        return ";".join(f"{self.machines[name].ip}:{NAMES_PORT}" for name in names)

    @property
    def in_sync(self) -> bool:
        """Whether every member of a controller group is in its SyncStateSet."""
        if self._stub is None:
            return self.plan.cluster != "group"
        return len(self._stub.decides.members) == len(self.plan.brokers)

    @property
    def credentials(self) -> Credentials | None:
        """What clients sign with; None where nothing is signed."""
        return ROOT if self.plan.is_signed else None

    def may_lose(self, name: str) -> bool:
        """Whether others have all that a member of a controller group has."""
        return self._stub is not None and len(self._stub.decides.members) >= 2

    def admin(self) -> Admin:
        """An administrator's client, of the process that asks."""
        return Admin(namesrv=self.namesrv, credentials=self.credentials, start_timeout=3600)

    async def connect(self, address: str) -> Connection:
        """Connect the process that asks to a broker."""
        signer = self.credentials
        return await Connection.open(address, sign=None if signer is None else signer.sign)

    def add(self, name: str, main: Callable[[Machine], Coroutine[Any, Any, None]]) -> Machine:
        """A machine that runs `main`, once it is booted."""

        def report(what: str, text: str, error: BaseException | None) -> None:
            self._report(name, what, text, error)

        ip = f"10.0.0.{len(self.machines) + 1}"
        machine = Machine(self.scheduler, self.network, name, ip, self._root / name, report)
        machine.disk.keeps = self.plan.cuts_power
        self.machines[name] = machine
        self.mains[name] = lambda: main(machine)
        return machine

    def boot(self, name: str) -> None:
        """Start what belongs on a machine, if it does not run."""
        machine = self.machines[name]
        if not machine.running and name != self.lost:
            machine.boot(self.mains[name])

    def lose_master(self) -> None:
        """Lose the first broker's machine with its disk, and let the slave be the master, as an
        operator does it: by another start."""
        master, slave = (self.machines[name] for name in self.plan.brokers)
        self._promoted = True
        self.lost = self.plan.brokers[0]
        master.cut_power()
        master.disk.wipe()
        if slave.running:
            slave.kill()
        self.boot(slave.name)

    def address(self, name: str, port: int) -> str:
        return f"{self.machines[name].ip}:{port}"

    def machine_at(self, address: str) -> str:
        """The name of the machine with the address of this server."""
        host = address.rpartition(":")[0]
        return next(name for name, machine in self.machines.items() if machine.ip == host)

    @property
    def living(self) -> int:
        """How many brokers are not lost for good."""
        return len(self.plan.brokers) - bool(self.lost)

    # What runs

    async def _name_server(self, machine: Machine) -> None:
        config = NamesrvConfig(
            bind_address=machine.ip,
            listen_port=NAMES_PORT,
            kv_config_path=str(machine.root / "kv.json"),
            config_store_path=str(machine.root / "namesrv.properties"),
        )
        await NameServer(config).start()
        await forever()

    async def _broker(self, number: int, machine: Machine) -> None:
        plan = self.plan
        settings = {
            "brokerName": BROKER_NAME,
            "bindAddress": machine.ip,
            "brokerIP1": machine.ip,
            "listenPort": str(BROKER_PORT),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(machine.root / "store"),
            "haAllowedAddresses": "10.0.0.0/24",
            "slaveReadEnable": "true",
            **plan.settings,
        }
        if plan.is_signed:
            password = ROOT.secret_key
            settings |= {
                "haListenPort": str(BROKER_PORT + 1),  # else slaves are not let in
                "authenticationEnabled": "true",
                "authorizationEnabled": "true",
                "initAuthenticationUser": json.dumps({"username": "root", "password": password}),
                "innerClientAuthenticationCredentials": json.dumps(
                    {"accessKey": "inner", "secretKey": "inner-password-1"}
                ),
            }
        if self._promoted:
            settings["brokerRole"] = "ASYNC_MASTER"
        elif plan.cluster == "slave" and number:
            settings |= {
                "brokerRole": "SLAVE",
                "brokerId": "1",
                "haMasterAddress": self.address(plan.brokers[0], BROKER_PORT + 1),
            }
        elif plan.cluster == "group":
            settings["controllerAddr"] = self.address(CONTROLLER, CONTROLLER_PORT)
        config, _ = load_broker_config(format_properties(settings))
        self.brokers.pop(machine.name, None)
        flips = [f for f in plan.faults if f.kind == "bit flip" and f.target == machine.name]
        for _ in flips:  # each may come in the midst of a repair
            with suppress(StoreCorrupt):
                await self._serve(machine, config, repair=True)
        await self._serve(machine, config, repair=False)

    async def _serve(self, machine: Machine, config: BrokerConfig, *, repair: bool) -> None:
        broker = Broker(config, work_clock=self._work_clock(machine))
        async with started(broker, repair=repair), AsyncExitStack() as stack:
            if self.plan.has_proxies:
                tls = TlsConfig(mode=TlsMode.DISABLED)
                await stack.enter_async_context(LocalProxy(broker, port=GRPC_PORT, tls=tls))
            self.brokers[machine.name] = broker
            await forever()

    def _work_clock(self, machine: Machine) -> Callable[[], float]:
        """A clock that finds each time that some work was done since the last look: so a few steps
        fill a turn, and requests that take long are divided."""
        scheduler = self.scheduler
        chance = scheduler.stream(f"work {machine.name} {machine.lives}")
        longest = int(TURN * SECOND)

        def clock() -> float:
            scheduler.work(chance.randrange(longest))
            return time.monotonic()

        return clock

    async def _controller(self, machine: Machine) -> None:
        stub = self._stub = ControllerStub()
        stub.server = RemotingServer(stub.server.dispatcher, host=machine.ip, port=CONTROLLER_PORT)
        stub.leader = f"{machine.ip}:{CONTROLLER_PORT}"
        await stub.server.start()
        began = self.scheduler.now
        while True:
            await asyncio.sleep(ELECTION)
            stub.now = (self.scheduler.now - began) // MILLISECOND
            decides = stub.decides
            alive = decides.alive(stub.now)
            if decides.master not in alive and (decides.master or decides.members & alive):
                decides.elect(stub.now)
            for name, broker in self.running_brokers():
                figures = broker.components.replication.figures()
                if figures["brokerRole"] == "SYNC_MASTER":
                    self.masters[int(str(figures["masterEpoch"]))].add(name)

    def facts(self) -> dict[str, Facts]:
        """What is true of the brokers that run."""
        running = dict(self.running_brokers())
        found = {}
        for name in running:
            machine = self.machines[name]
            role, copies = "MASTER", 1
            if self._stub is not None:
                decides = self._stub.decides
                master = self._stub.addresses.get(decides.master or 0, "")
                role = "MASTER" if master == self.address(name, BROKER_PORT) else "SLAVE"
                copies = len(decides.members)
            elif self.plan.cluster == "slave" and not self._promoted:
                role = "MASTER" if name == self.plan.brokers[0] else "SLAVE"
                copies = len(running)
            found[name] = Facts(
                role,
                self.network.accepted(machine.ip, BROKER_PORT),
                machine.disk.usage().free,
                copies,
            )
        return found

    def running_brokers(self) -> list[tuple[str, Broker]]:
        """Those whose start is over."""
        return [
            (name, broker) for name, broker in self.brokers.items() if self.machines[name].running
        ]


async def forever() -> None:
    await asyncio.Event().wait()
