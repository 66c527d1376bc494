"""`pocketmq status`: the brokers with their versions, rates, and disks."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping
from typing import Any

from pocketmq.cli.cluster_command import (
    CommandError,
    add_json_option,
    add_name_server_option,
    run_admin,
)
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import print_json, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.errors import RemotingError
from pocketmq.remoting.service import ExitCode

_MASTER_ID = 0
#: Seconds of each unit, the largest first.
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "status",
        description="Prints the brokers that are registered with the name server: version, "
        "messages in and out per second (over the last 10 s), how full the disk is, and how long "
        "the broker has been running (seconds with --json); with --json also the messages stored "
        "today. Exit code 7 when a broker does not answer, or none is registered.",
    )
    add_name_server_option(parser)
    add_json_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Print a row for each broker."""
    return run_admin(lambda admin: _status(admin, options), options)


async def broker_rows(admin: Admin) -> list[dict[str, Any]]:
    """A row for each registered broker; `problem` says why one does not answer."""
    info = await admin.cluster_info()
    cluster_of = {
        broker: cluster for cluster, names in info.cluster_addr_table.items() for broker in names
    }

    async def row(name: str, broker_id: int, address: str) -> dict[str, Any]:
        figures: Mapping[str, str] = {}
        problem = None
        if broker_id == _MASTER_ID:
            try:
                figures = await admin.broker_runtime(name)
            except RemotingError as error:
                problem = error.remark or str(error)
        return {
            "cluster": cluster_of.get(name, ""),
            "broker": name,
            "id": broker_id,
            "address": address,
            **_figures(figures),
            "problem": problem,
        }

    return await asyncio.gather(
        *(
            row(name, broker_id, address)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
        )
    )


async def _status(admin: Admin, options: argparse.Namespace) -> int:
    rows = await broker_rows(admin)
    if not rows:
        raise CommandError(
            f"no broker is registered with the name server {options.namesrv}", ExitCode.UNAVAILABLE
        )
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
    replica = "" if row["id"] == _MASTER_ID else f" (replica {row['id']})"
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


def _figures(figures: Mapping[str, str]) -> dict[str, Any]:
    """What to show of a broker's runtime figures; None for what it does not tell."""
    disk = _number(figures.get("commitLogDiskRatio", ""))
    return {
        "version": figures.get("brokerVersionDesc"),
        "inPerSecond": _number(figures.get("putTps", "")),
        "outPerSecond": _number(figures.get("getTransferredTps", "")),
        "today": _today(figures),
        "diskPercent": None if disk is None else round(disk * 100),
        "runningSeconds": _seconds(figures.get("runtime", "")),
    }


def _number(text: str) -> float | None:
    """The first number of a text, such as of rates over 10, 60 and 600 s."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _today(figures: Mapping[str, str]) -> int | None:
    """Messages stored since midnight."""
    now = _number(figures.get("msgPutTotalTodayNow", ""))
    morning = _number(figures.get("msgPutTotalTodayMorning", ""))
    return None if now is None or morning is None else int(now - morning)


def _seconds(text: str) -> int | None:
    """ "[ 0 days, 2 hours, 5 minutes, 1 seconds ]" as 7501."""
    parts = re.findall(r"(\d+) ([dhms])", text)
    return sum(int(number) * _UNITS[unit] for number, unit in parts) if parts else None


def short_time(seconds: int | None) -> str | None:
    """7501 as "2h 5m": the two largest units."""
    if seconds is None:
        return None
    told = []
    for unit, length in _UNITS.items():
        number, seconds = divmod(seconds, length)
        if number:
            told.append(f"{number}{unit}")
    return " ".join(told[:2]) or "0s"
