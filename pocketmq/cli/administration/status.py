"""`pocketmq status`: the members of all broker groups, and what is wrong with them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from pocketmq.cli.administration.cluster_command import add_action, no_broker, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import print_json, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.broker_figures import BrokerState, broker_states
from pocketmq.client.routes.route import MASTER_ID
from pocketmq.dashboard.wording import short_size, short_time
from pocketmq.remoting.serving.service import ExitCode


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "status",
        description="Prints every member of every broker group: its role, state (ready, not "
        "ready, drained, no answer, or missing: a master that no name server knows; of official "
        "brokers only whether they answer), lag behind its master, messages in and out per "
        "second (over 10 s), disk usage, and uptime (seconds with --json). Below the table it "
        "lists problems and the members in sync. Exit code 7 if a member does not answer or is "
        "not ready, a group has no master or too few copies in sync, or no broker is registered.",
    )
    add_action(parser, _status, json=True)
    return parser


run = run_action


async def broker_rows(admin: Admin) -> list[dict[str, Any]]:
    """A row for each member; `problem` says why one does not answer."""
    return [broker_row(state) for state in await broker_states(admin)]


def broker_row(state: BrokerState) -> dict[str, Any]:
    """The row of a member, for programs."""
    figures = state.figures
    return {
        "cluster": state.cluster,
        "broker": state.broker,
        "id": state.broker_id,
        "address": state.address,
        "role": state.role,
        "state": state.state,
        "epoch": figures.epoch,
        "inSync": figures.in_sync,
        "lagBytes": figures.lag_bytes,
        "syncStateSet": figures.members,
        "copies": figures.copies,
        "copiesNeeded": figures.copies_needed,
        "permission": figures.permission,
        "acceptsSends": figures.accepts_sends,
        "version": figures.version,
        "inPerSecond": figures.in_per_second,
        "outPerSecond": figures.out_per_second,
        "today": figures.stored_today,
        "diskPercent": figures.disk_percent,
        "runningSeconds": figures.running_seconds,
        "problem": state.problem,
        "problems": list(figures.problems),
        "remarks": list(figures.remarks),
    }


async def _status(admin: Admin, options: argparse.Namespace) -> int:
    states = await broker_states(admin)
    if not states:
        raise no_broker(options)
    rows = [broker_row(state) for state in states]
    if options.json:
        for each in rows:
            print_json(each)
    else:
        print_table(list(map(shown_broker, rows)))
        for state in states:
            _explain(state)
    return ExitCode.OK if all(map(_is_well, states)) else ExitCode.UNAVAILABLE


def _is_well(state: BrokerState) -> bool:
    figures = state.figures
    return state.is_well and (figures.copies or 0) >= (figures.copies_needed or 0)


def _explain(state: BrokerState) -> None:
    """Print the details that do not fit into the table."""
    where = f" at {state.address}" if state.address else ""
    for reason in state.reasons:
        print(f"{state.role.lower()} of {state.broker}{where}: {reason}")
    figures = state.figures
    if figures.members is not None:
        print(f"group {state.broker}: epoch {figures.epoch}, in sync: members {figures.members}")
    elif state.replicas is not None:
        replicas = state.replicas
        print(
            f"group {state.broker}: {replicas.connected} of {replicas.registered} replicas "
            f"connected, {replicas.in_sync} in sync"
        )


def shown_broker(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for people: no wider than most terminals."""
    replica = "" if row["id"] == MASTER_ID else f" (replica {row['id']})"
    disk, lag = row["diskPercent"], row["lagBytes"]
    return {
        "cluster": row["cluster"],
        "broker": row["broker"] + replica,
        "address": row["address"],
        "role": row["role"].lower(),
        "state": row["state"],
        "lag": None if lag is None else short_size(lag),
        "in/s": row["inPerSecond"],
        "out/s": row["outPerSecond"],
        "disk": None if disk is None else f"{disk}%",
        "running": short_time(row["runningSeconds"]),
        "version": row["version"],
    }
