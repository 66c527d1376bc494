"""Collects the health of a broker from its parts."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.health import DiskState, MasterLink, MemberHealth, MemberRole
from pocketmq.store.message_store import MessageStore


class Membership(Protocol):
    """A broker's place in its group, known to its replication."""

    @property
    def member_role(self) -> MemberRole:
        """The current role of this broker."""

    @property
    def epoch(self) -> int | None:
        """The master epoch of its role; None outside a controller group."""

    def master_link(self) -> MasterLink | None:
        """The connection to the master; None unless this broker is a slave."""

    @property
    def copies(self) -> int:
        """The number of members in sync, including this one."""

    @property
    def copies_needed(self) -> int:
        """The number of copies that a send waits for, including this one."""

    @property
    def why_fenced(self) -> str:
        """Why this broker has no role yet; empty if it has one."""


class HealthCheck:
    """The health of one broker. Use it on the event loop, with an open store.

    `unregistered()` returns why no client can find this broker; empty if clients can.
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
        """Return the current health."""
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
    """Return the path if it exists and can be reached, else its nearest parent of this kind."""
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


def used_percent(used: int, free: int) -> int:
    """Return the used percentage of a disk, rounded up; space reserved for root does not count."""
    return math.ceil(100 * used / (used + free)) if used + free else 0
