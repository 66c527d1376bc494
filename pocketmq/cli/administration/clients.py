"""`pocketmq clients`: the producers and consumers that are connected."""

from __future__ import annotations

import argparse

from pocketmq.cli.administration.cluster_command import add_action, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import print_rows
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import connected_clients


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "clients",
        description="Prints the consumers and producers that are connected to the brokers, with "
        "their groups, addresses, languages, and RocketMQ versions. A client is listed once for "
        "each of its groups. A producer appears with its first heartbeat.",
    )
    parser.add_argument(
        "group", metavar="GROUP", nargs="?", help="only this consumer or producer group"
    )
    add_action(parser, _clients, json=True)
    return parser


run = run_action


async def _clients(admin: Admin, options: argparse.Namespace) -> None:
    groups = None if options.group is None else [options.group]
    rows = [
        {
            "group": client.group,
            "role": client.role,
            "client": client.client_id,
            "address": client.address,
            "language": client.language,
            "version": client.release,
        }
        for client in await connected_clients(admin, groups)
    ]
    of_group = "" if options.group is None else f" of group {options.group}"
    print_rows(rows, as_json=options.json, empty=f"no client{of_group} is connected")
