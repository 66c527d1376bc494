"""A controller, a name server, and the members of a group in this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig, BrokerRole
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from tests.client.waiting import until

from .controller_stub import ControllerStub

NAME = "group"
FILE = 256 * 1024
PATIENCE = 90.0


class Group:
    """Members by the name of their directory under `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.controller = ControllerStub()
        self.name_server = NameServer(
            NamesrvConfig(
                listen_port=0,
                kv_config_path=str(directory / "kv.json"),
                config_store_path=str(directory / "namesrv.properties"),
            )
        )
        self.members: dict[str, Broker] = {}

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def master(self) -> Broker:
        [master] = [
            b for b in self.members.values() if b.config.broker_role is not BrokerRole.SLAVE
        ]
        return master

    @property
    def slaves(self) -> list[Broker]:
        return [b for b in self.members.values() if b.config.broker_role is BrokerRole.SLAVE]

    async def start(self, name: str, *, wait: bool = True, **settings: Any) -> Broker:
        """Start a member, and wait until it has a role, unless told not to."""
        values: dict[str, Any] = {
            "namesrv_addr": self.namesrv,
            "broker_name": NAME,
            "broker_id": -1,
            "broker_role": BrokerRole.SLAVE,
            "enable_controller_mode": True,
            "controller_addr": self.controller.address,
            "all_ack_in_sync_state_set": True,
            "sync_broker_metadata_period": 50,
            "ha_send_heartbeat_interval": 50,
            "listen_port": 0,
            "vip_channel_enable": False,
            "store_path_root_dir": str(self.directory / name),
            "mapped_file_size_commit_log": FILE,
            "mapped_file_size_consume_queue": 4_000,
            "slave_read_enable": True,
            "message_index_enable": False,
            "disk_max_used_space_ratio": 95,
        }
        broker = Broker(BrokerConfig(**values | settings))
        await broker.start()
        self.members[name] = broker
        if wait:
            await until(lambda: broker.config.broker_id >= 0, PATIENCE)
        return broker

    async def start_single(self, name: str) -> Broker:
        """Start a broker that is not a member of the group, on the store of one."""
        return await self.start(
            name, broker_id=0, broker_role=BrokerRole.ASYNC_MASTER, enable_controller_mode=False
        )

    async def stop(self, name: str) -> None:
        """Stop a member; the controller notices."""
        broker = self.members.pop(name)
        group = broker.components.group
        await broker.stop()
        if group is not None and group.identity is not None:
            self.controller.decides.gone(group.identity.broker_id)

    def elect(self, name: str | None = None) -> None:
        """Have the controller choose another master, the named one if it may be."""
        wanted = 0
        if name is not None:
            group = self.members[name].components.group
            assert group is not None
            assert group.identity is not None
            wanted = group.identity.broker_id
        self.controller.decides.elect(self.controller.now, wanted=wanted)

    async def in_sync(self, count: int) -> None:
        """Until so many members are in the SyncStateSet, and the master knows it."""
        await until(lambda: len(self.controller.decides.members) == count, PATIENCE)
        await until(lambda: len(self._set()) == count, PATIENCE)

    def _set(self) -> frozenset[int]:
        masters = [b for b in self.members.values() if b.config.broker_role is not BrokerRole.SLAVE]
        group = masters[0].components.group if masters else None
        replica = None if group is None else group.replica
        return frozenset() if replica is None else replica.set.members

    async def leads(self, name: str) -> Broker:
        """Until a member is the master, and takes messages."""
        broker = self.members[name]
        await until(
            lambda: broker.config.broker_role is not BrokerRole.SLAVE and not broker.store.refusal,
            PATIENCE,
        )
        return broker

    async def copied(self) -> None:
        """Until all members have entered everything that the master has stored by now."""
        end = self.master.store.commit_log.end
        for broker in self.members.values():
            store = broker.store
            await until(
                lambda store=store: store.commit_log.whole >= end and not store.dispatch_behind,  # type: ignore[misc]
                PATIENCE,
            )


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Group]:
    """A group without members."""
    group = Group(directory)
    await group.name_server.start()
    await group.controller.server.start()
    try:
        yield group
    finally:
        for broker in list(group.members.values()):
            await broker.stop()
        await group.controller.server.stop()
        await group.name_server.stop()
