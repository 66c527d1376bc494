"""`pocketmq cluster`: each cluster in one row."""

from __future__ import annotations

import argparse
from typing import Any

from pocketmq.cli.administration.cluster_command import add_action, no_broker, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import print_rows
from pocketmq.client.admin import Admin
from pocketmq.client.admin.broker_figures import BrokerState, broker_states
from pocketmq.client.admin.system_names import is_users_group, users_topics
from pocketmq.client.admin.traffic import each
from pocketmq.dashboard.wording import short_size
from pocketmq.remoting.serving.service import ExitCode


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "cluster",
        description="Prints a row for each cluster: masters and replicas, messages in and out per "
        "second (over 10 s) and stored today, size of the commit logs, usage of the fullest "
        "disk, topics and consumer groups (without those of brokers and tools), and the total "
        "lag. Exit code 7 if a broker does not answer or none is registered.",
    )
    add_action(parser, _clusters, json=True)
    return parser


run = run_action


async def _clusters(admin: Admin, options: argparse.Namespace) -> int:
    states = await broker_states(admin)
    if not states:
        raise no_broker(options)
    names = sorted({state.cluster for state in states})
    rows = [
        await _row(admin, name, [state for state in states if state.cluster == name])
        for name in names
    ]
    if not options.json:
        rows = [row | {"log": short_size(row["log"])} for row in rows]
    print_rows(rows, as_json=options.json, empty="")
    return ExitCode.UNAVAILABLE if any(row["silent"] for row in rows) else ExitCode.OK


async def _row(admin: Admin, cluster: str, states: list[BrokerState]) -> dict[str, Any]:
    groups = [name for name in await admin.groups(cluster=cluster) if is_users_group(name)]
    stats = await each(groups, admin.consume_stats)
    figures = [state.figures for state in states]
    disks = [each.disk_percent for each in figures if each.disk_percent is not None]
    return {
        "cluster": cluster,
        "masters": sum(state.is_master and bool(state.address) for state in states),
        "replicas": sum(not state.is_master for state in states),
        "silent": sum(state.problem is not None for state in states),
        "inPerSecond": round(sum(each.in_per_second or 0.0 for each in figures), 1),
        "outPerSecond": round(sum(each.out_per_second or 0.0 for each in figures), 1),
        "today": sum(each.stored_today or 0 for each in figures),
        "log": sum(each.log_bytes or 0 for each in figures),
        "diskPercent": max(disks, default=None),
        "topics": len(await users_topics(admin, cluster=cluster)),
        "groups": len(groups),
        "lag": sum(each.lag for each in stats.values()),
    }
