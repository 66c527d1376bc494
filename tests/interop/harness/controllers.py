"""The official controller (DLedger), and brokers of either make in controller mode."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import official, ours, wire
from .official import QUICK_JAVA, Server, java_command, write_properties
from .ports import OFFICIAL_BROKER_SPAN, free_block, free_port
from .process import Process

GET_METADATA = 1005
GET_REPLICA_INFO = 1004
_MEMORY = ("-Xms64m", "-Xmx192m")

# Quick enough for tests: an official broker takes a silent peer for dead after 20 s otherwise.
QUICK: Mapping[str, object] = {
    "enableControllerMode": True,
    "haSendHeartbeatInterval": 1000,
    "haHousekeepingInterval": 4000,
    "allAckInSyncStateSet": True,
    "minInSyncReplicas": 1,
    "registerNameServerPeriod": 10_000,
    "timerWheelEnable": False,
}


class Controllers:
    """A group of controllers, one or three."""

    def __init__(self, directory: Path, count: int = 1, **settings: object) -> None:
        ports = [free_port() for _ in range(count)]
        peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(ports))
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self._settings = settings
        self._arguments = [self._command(directory, peers, n) for n in range(count)]
        self.processes = [self._start(n) for n in range(count)]

    def _command(self, directory: Path, peers: str, n: int) -> tuple[list[str | Path], Path]:
        home = directory / f"controller-{n}"
        config = write_properties(
            home / "controller.conf",
            {
                "controllerDLegerGroup": "g",
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{n}",
                "controllerStorePath": home / "store",
                "mappedFileSize": 1 << 20,
                "scanNotActiveBrokerInterval": 1000,
                **self._settings,
            },
        )
        main = "org.apache.rocketmq.controller.ControllerStartup"
        return [*java_command(home, main, *_MEMORY, *QUICK_JAVA), "-c", config], home

    def _start(self, n: int) -> Process:
        argv, home = self._arguments[n]
        return Process(
            f"controller {n}", argv, log=home / "output.log", env={"ROCKETMQ_HOME": str(home)}
        )

    @property
    def address(self) -> str:
        """As `controllerAddr` has it."""
        return ";".join(self.addresses)

    def wait(self) -> None:
        """Until there is a leader."""
        wire.until(lambda: bool(self.leader()), "a controller leads", 90, 0.2)

    def leader(self) -> str:
        """The leader's address; "" while there is none."""
        for address in self.addresses:
            try:
                answer = wire.call(address, GET_METADATA)
            except OSError:
                continue
            leader = answer.ext_fields.get("controllerLeaderAddress") or ""
            if leader:
                return leader
        return ""

    def restart(self, n: int) -> None:
        """Start controller `n` again, which was killed."""
        self.processes[n] = self._start(n)

    def group(self, name: str) -> dict[str, Any]:
        """What the leader knows of a group: masterBrokerId, masterAddress, masterEpoch,
        syncStateSet and syncStateSetEpoch; empty when it does not answer."""
        leader = self.leader()
        if not leader:
            return {}
        answer = wire.call(leader, GET_REPLICA_INFO, {"brokerName": name})
        if answer.code:
            return {}
        body = json.loads(answer.body) if answer.body else {}
        return {**answer.ext_fields, **body}

    def wait_for_master(self, name: str, *, but: int = -1, timeout: float = 60.0) -> int:
        """The id of the group's master, once it is another one than `but`."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.group(name).get("masterBrokerId")
            if found and int(found) != but:
                return int(found)
            assert time.monotonic() < deadline, f"{name} has no new master: {self.group(name)}"
            time.sleep(0.1)

    def wait_for_set(self, name: str, members: set[int], timeout: float = 60.0) -> None:
        """Until the SyncStateSet of a group has just these members."""
        wire.until(
            lambda: set(self.group(name).get("syncStateSet", ())) == members,
            f"the SyncStateSet of {name} is {members}",
            timeout,
            0.2,
        )

    def close(self) -> None:
        for process in self.processes:
            process.kill()


def spawn_replica(
    make: str,
    directory: Path,
    namesrv: str,
    controllers: Controllers,
    *,
    group: str,
    member: str,
    port: int | None = None,
    settings: Mapping[str, object] | None = None,
) -> Server:
    """One broker of a controller group, started but not waited for; `member` names its directory,
    `make` is "official" or "ours"."""
    settings = {
        **QUICK,
        "brokerName": group,
        "brokerId": -1,
        "controllerAddr": controllers.address,
        "brokerIP2": "127.0.0.1",
        **(settings or {}),
    }
    port = port or free_block(OFFICIAL_BROKER_SPAN)
    if make == "official":
        small = ("-Xms128m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", *QUICK_JAVA)
        return official.spawn_broker(
            directory, namesrv, name=member, port=port, flags=small,
            settings={"brokerRole": "SLAVE", "osPageCacheBusyTimeOutMills": 5000, **settings},
        )  # fmt: skip
    return ours.spawn_broker(
        directory, namesrv, name=member, port=port,
        settings={"haListenPort": port + 1, **settings},
    )  # fmt: skip
