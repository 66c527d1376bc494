"""Looks at the parts of a broker, and says how it is."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.health import DiskState, MasterLink, MemberHealth, MemberRole
from pocketmq.store.message_store import MessageStore


class Membership(Protocol):
    """What a broker's replication knows of its place in the group."""

    @property
    def member_role(self) -> MemberRole:
        """What this broker does now."""

    @property
    def epoch(self) -> int | None:
        """The reign in which it has its role; None outside a controller group."""

    def master_link(self) -> MasterLink | None:
        """The connection to the master; None unless this broker is a slave."""

    @property
    def copies(self) -> int:
        """How many members are in sync, this one among them."""

    @property
    def copies_needed(self) -> int:
        """How many copies a send waits for, this one among them."""

    @property
    def why_fenced(self) -> str:
        """Why there is no role yet; empty where there is one."""


class HealthCheck:
    """The health of one broker. To be used on the event loop, with an open store.

    `unregistered()` says why no client finds this broker; it is empty if clients do.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        membership: Membership,
        unregistered: Callable[[], str],
    ) -> None:
        self._unregistered = unregistered
        self._config = config
        self._store = store
        self._membership = membership

    def now(self) -> MemberHealth:
        """Return the health at this moment."""
        member, store = self._membership, self._store
        role = member.member_role
        refusal = member.why_fenced
        if not refusal and role is MemberRole.MASTER:
            refusal = store.role_refusal
        return MemberHealth(
            role=role,
            epoch=member.epoch,
            permission=self._config.broker_permission,
            disk=self._disk(),
            link=member.master_link(),
            refusal=refusal,
            unregistered=self._unregistered(),
            copies=member.copies,
            copies_needed=member.copies_needed,
        )

    def _disk(self) -> DiskState:
        config, store = self._config, self._store
        directory = config.commit_log_directory
        usage = shutil.disk_usage(existing(directory))
        return DiskState(
            str(directory),
            usage.free,
            used_percent(usage.used, usage.free),
            config.disk_space_warning_level_ratio,
            store.trouble,
            store.flush_failed,
        )


def existing(path: Path) -> Path:
    """Return the nearest directory above that exists, or the path itself."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def used_percent(used: int, free: int) -> int:
    """Return how full a disk is, rounded up; space that only root may use does not count."""
    return math.ceil(100 * used / (used + free)) if used + free else 0
