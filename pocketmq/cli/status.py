"""`pocketmq status`: the brokers with their versions, rates, and disks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from pocketmq.cli.cluster_command import add_action, no_broker, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import print_json, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.broker_figures import broker_states
from pocketmq.client.route import MASTER_ID
from pocketmq.dashboard.wording import short_time
from pocketmq.remoting.service import ExitCode


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "status",
        description="Prints the brokers that are registered with the name server: version, "
        "messages in and out per second (over the last 10 s), how full the disk is, and how long "
        "the broker has been running (seconds with --json); with --json also the messages stored "
        "today. Exit code 7 when a broker does not answer, or none is registered.",
    )
    add_action(parser, _status, json=True)
    return parser


run = run_action


async def broker_rows(admin: Admin) -> list[dict[str, Any]]:
    """A row for each registered broker; `problem` says why one does not answer."""
    return [
        {
            "cluster": state.cluster,
            "broker": state.broker,
            "id": state.broker_id,
            "address": state.address,
            "version": state.figures.version,
            "inPerSecond": state.figures.in_per_second,
            "outPerSecond": state.figures.out_per_second,
            "today": state.figures.stored_today,
            "diskPercent": state.figures.disk_percent,
            "runningSeconds": state.figures.running_seconds,
            "problem": state.problem,
        }
        for state in await broker_states(admin)
    ]


async def _status(admin: Admin, options: argparse.Namespace) -> int:
    rows = await broker_rows(admin)
    if not rows:
        raise no_broker(options)
    silent = [row for row in rows if row["problem"] is not None]
    if options.json:
        for each in rows:
            print_json(each)
    else:
        print_table(list(map(shown_broker, rows)))
        for each in silent:
            print(f"broker {each['broker']} at {each['address']}: {each['problem']}")
    return ExitCode.UNAVAILABLE if silent else ExitCode.OK


def shown_broker(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for people: no wider than most terminals."""
    replica = "" if row["id"] == MASTER_ID else f" (replica {row['id']})"
    disk = row["diskPercent"]
    return {
        "cluster": row["cluster"],
        "broker": row["broker"] + replica,
        "address": row["address"],
        "version": row["version"],
        "in/s": row["inPerSecond"],
        "out/s": row["outPerSecond"],
        "disk": None if disk is None else f"{disk}%",
        "running": short_time(row["runningSeconds"]),
    }
