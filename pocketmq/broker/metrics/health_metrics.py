"""The health of a broker as metrics: pocketmq_ready and others."""

from __future__ import annotations

from collections.abc import Iterator

from pocketmq.broker.health import MemberHealth, MemberRole
from pocketmq.monitoring.families import GAUGE, Family


def health_metrics(health: MemberHealth) -> Iterator[Family]:
    """Return the health as metrics; those of a master have no series on a slave."""
    yield _gauge("pocketmq_ready", "1 while /ready answers 200", int(health.ready))
    yield _gauge(
        "pocketmq_accepts_sends", "1 while producers may send here", int(health.accepts_sends)
    )
    yield _gauge(
        "pocketmq_storage_refusing",
        "1 while the disk is full or fails",
        int(bool(health.disk.problem)),
    )
    yield Family(
        "pocketmq_member_role",
        GAUGE,
        "1 for the role of the broker",
        ("role",),
        [((role.value,), int(role is health.role)) for role in MemberRole],
    )
    is_master = health.role is MemberRole.MASTER
    yield _gauge(
        "pocketmq_replication_copies",
        "Members in sync, including the master",
        health.copies if is_master else None,
    )
    yield _gauge(
        "pocketmq_replication_copies_needed",
        "Copies that a send waits for, including the master's",
        health.copies_needed if is_master else None,
    )
    yield _gauge(
        "pocketmq_replication_behind",
        "Bytes of the master's log that this slave does not have yet",
        None if health.link is None else health.link.lag,
        "bytes",
    )


def _gauge(name: str, text: str, value: int | None, unit: str = "") -> Family:
    return Family(name, GAUGE, text, (), [] if value is None else [((), value)], unit)
