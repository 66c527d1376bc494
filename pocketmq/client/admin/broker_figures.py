"""The state of brokers, including official ones, from their runtime figures."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from pocketmq.client.admin.admin import Admin
from pocketmq.client.errors import RemotingError
from pocketmq.client.routes.route import MASTER_ID
from pocketmq.remoting.bodies.cluster import HARuntimeInfo

#: Seconds of each unit.
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SIZES: Final = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_WRITE: Final = 2  # of a permission
_SEPARATOR: Final = "; "
_CAPACITY: Final = re.compile(r"(Total|Free) : ([\d.]+) ?([BKMGTP])")


class BrokerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one broker; None for those that it does not report.

    Attributes:
        version: of RocketMQ, such as V5_5_0.
        in_per_second, out_per_second: messages, over the last 10 s.
        stored_today, read_today: messages since midnight.
        disk_percent: used part of the disk with the commit log.
        disk_total, disk_free: its size and free space, bytes.
        log_bytes: size of the commit log.
        unflushed_bytes: stored, but not on the disk yet.
        running_seconds: since the start.
        oldest_message: its store time, Unix ms; None without a message.
        role: MASTER, SLAVE, or FENCED for one without a role in its controller group; only pocketmq
            brokers report this and the following.
        epoch: the master epoch, in a controller group.
        ready, accepts_sends: whether it can do the work of its role; whether producers may send.
        permission: brokerPermission: 4 read, 2 write.
        in_sync, lag_bytes: of a slave: whether it is in sync; bytes of the log that it lacks.
        members: of a master in a controller group: the ids in its SyncStateSet.
        copies, copies_needed: of a master: members in sync, including itself; copies that a send
            waits for.
        problems, remarks: why it is not ready; other notes.
    """

    version: str | None = None
    in_per_second: float | None = None
    out_per_second: float | None = None
    stored_today: int | None = None
    read_today: int | None = None
    disk_percent: int | None = None
    disk_total: int | None = None
    disk_free: int | None = None
    log_bytes: int | None = None
    unflushed_bytes: int | None = None
    running_seconds: int | None = None
    oldest_message: int | None = None
    role: str | None = None
    epoch: int | None = None
    ready: bool | None = None
    accepts_sends: bool | None = None
    permission: int | None = None
    in_sync: bool | None = None
    lag_bytes: int | None = None
    members: str | None = None
    copies: int | None = None
    copies_needed: int | None = None
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @classmethod
    def read(cls, table: Mapping[str, str]) -> BrokerFigures:
        """Decode the result of `Admin.broker_runtime`."""
        disk = _number(table.get("commitLogDiskRatio", ""))
        capacity = {
            name: int(float(number) * _SIZES[unit])
            for name, number, unit in _CAPACITY.findall(table.get("commitLogDirCapacity", ""))
        }
        begin = _number(table.get("commitLogMinOffset", ""))
        end = _number(table.get("commitLogMaxOffset", ""))
        oldest = _number(table.get("earliestMessageTimeStamp", ""))
        return cls(
            version=table.get("brokerVersionDesc"),
            in_per_second=_number(table.get("putTps", "")),
            out_per_second=_number(table.get("getTransferredTps", "")),
            stored_today=_difference(table, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
            read_today=_difference(table, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
            disk_percent=None if disk is None else round(disk * 100),
            disk_total=capacity.get("Total"),
            disk_free=capacity.get("Free"),
            log_bytes=None if begin is None or end is None else int(end - max(begin, 0)),
            unflushed_bytes=_size(table.get("remainHowManyDataToFlush", "")),
            running_seconds=_seconds(table.get("runtime", "")),
            oldest_message=None if oldest is None or oldest <= 0 else int(oldest),
            role=table.get("brokerRole", "").removeprefix("SYNC_").removeprefix("ASYNC_") or None,
            epoch=_whole(table, "masterEpoch"),
            ready=_flag(table, "memberReady"),
            accepts_sends=_flag(table, "memberAcceptsSends"),
            permission=_whole(table, "memberPermission"),
            in_sync=_flag(table, "haInSync"),
            lag_bytes=_whole(table, "haLag"),
            members=table.get("syncStateSet"),
            copies=_whole(table, "haCopies"),
            copies_needed=_whole(table, "haCopiesNeeded"),
            problems=_texts(table, "memberProblems"),
            remarks=_texts(table, "memberRemarks"),
        )


class ReplicaFigures(msgspec.Struct, frozen=True):
    """The replicas of a broker group, as its master sees them.

    Attributes:
        registered: number that the name server knows.
        connected: number that copy the log now.
        in_sync: number of these that are in sync.
        lag_bytes: bytes of the log that the slowest of these lacks.
    """

    registered: int
    connected: int
    in_sync: int
    lag_bytes: int


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a broker group: a registered one, or the missing master.

    Attributes:
        address: empty for a master that is not registered.
        problem: why there are no figures: it does not answer, or the group has no master.
        replicas: of a master: the figures of its replicas; None if it has or reports none.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    figures: BrokerFigures
    problem: str | None = None
    replicas: ReplicaFigures | None = None

    @property
    def is_master(self) -> bool:
        """Whether it is the master, to which clients send."""
        return self.broker_id == MASTER_ID

    @property
    def role(self) -> str:
        """Its role as it reports it, or else as it is registered."""
        return self.figures.role or ("MASTER" if self.is_master else "SLAVE")

    @property
    def state(self) -> str:
        """Its state, in one or two words."""
        if self.problem is not None:
            return "no answer" if self.address else "missing"
        if self.figures.ready is False:
            return "not ready"
        if self.figures.permission is not None and not self.figures.permission & _WRITE:
            return "drained"
        return "answers" if self.figures.ready is None else "ready"

    @property
    def is_well(self) -> bool:
        """Whether it answers and reports no problem."""
        return self.problem is None and self.figures.ready is not False

    @property
    def reasons(self) -> tuple[str, ...]:
        """Problems and remarks."""
        if self.problem is not None:
            return (self.problem,)
        return (*self.figures.problems, *self.figures.remarks)


async def broker_states(admin: Admin) -> list[BrokerState]:
    """Return every member of every broker group that the name server knows, sorted by name and id.
    All are asked at the same time, so this takes at most the timeout of `admin`."""
    info = await admin.cluster_info()
    cluster_of = {
        broker: cluster for cluster, names in info.cluster_addr_table.items() for broker in names
    }

    async def state(name: str, broker_id: int, address: str, others: int) -> BrokerState:
        table: Mapping[str, str] = {}
        problem = None
        replicas = None
        if not address:
            problem = f"group {name} has no master"
        else:
            try:
                table = await admin.broker_runtime(name, member=broker_id)
            except RemotingError as error:
                problem = error.remark or str(error)
            if others and problem is None and broker_id == MASTER_ID:
                # Brokers before release 5 do not know the request.
                with contextlib.suppress(RemotingError):
                    replicas = _replicas(others, await admin.broker_replication(name))
        return BrokerState(
            cluster=cluster_of.get(name, ""),
            broker=name,
            broker_id=broker_id,
            address=address,
            figures=BrokerFigures.read(table),
            problem=problem,
            replicas=replicas,
        )

    return await asyncio.gather(
        *(
            state(name, broker_id, address, len(data.broker_addrs) - 1)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(({MASTER_ID: ""} | data.broker_addrs).items())
        )
    )


def _replicas(registered: int, info: HARuntimeInfo) -> ReplicaFigures:
    connections = info.ha_connection_info
    return ReplicaFigures(
        registered=registered,
        connected=len(connections),
        in_sync=sum(connection.in_sync for connection in connections),
        lag_bytes=max((connection.diff for connection in connections), default=0),
    )


def _whole(table: Mapping[str, str], name: str) -> int | None:
    number = _number(table.get(name, ""))
    return None if number is None else int(number)


def _flag(table: Mapping[str, str], name: str) -> bool | None:
    return {"true": True, "false": False}.get(table.get(name, ""))


def _texts(table: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, table.get(name, "").split(_SEPARATOR)))


def _number(text: str) -> float | None:
    """Return the first number of a text, such as rates over 10, 60 and 600 s."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _difference(table: Mapping[str, str], now: str, before: str) -> int | None:
    end, begin = _number(table.get(now, "")), _number(table.get(before, ""))
    return None if end is None or begin is None else int(end - begin)


def _size(text: str) -> int | None:
    """Convert a text such as "1.5 KiB" to bytes."""
    match = re.match(r"([\d.]+) ?([BKMGTP])", text)
    return None if match is None else int(float(match[1]) * _SIZES[match[2]])


def _seconds(text: str) -> int | None:
    """Convert a text such as "[ 0 days, 2 hours, 5 minutes, 1 seconds ]" to seconds."""
    parts = re.findall(r"(\d+) ([dhms])", text)
    return sum(int(number) * _UNITS[unit] for number, unit in parts) if parts else None
