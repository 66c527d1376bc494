"""`pocketmq brokers`: drain a broker, and let producers choose it again."""

from __future__ import annotations

import argparse

from pocketmq.cli.administration.cluster_command import add_action, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import counted
from pocketmq.client.admin import Admin


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "brokers", description="Drains brokers before maintenance or removal, and reverts that."
    )
    actions = parser.add_subparsers(metavar="drain|undrain", required=True)
    drain = actions.add_parser(
        "drain",
        help="let producers choose other brokers; consumers go on",
        description="Sets brokerPermission to 4 (read) on every member of a broker group that is "
        "registered now. Producers choose other brokers within 30 s, and consumers read what is "
        "stored. Members stay drained over restarts and changes of master. `pocketmq status` "
        "shows that they are drained, and whether messages still arrive.",
    )
    drain.add_argument(
        "--name-servers",
        action="store_true",
        help="only at the name servers (wipeWritePerm), for a broker that does not answer; lasts "
        "until the broker registers changed topics or restarts; not shown by `pocketmq status`",
    )
    undrain = actions.add_parser(
        "undrain",
        help="let producers choose a broker again",
        description="Sets brokerPermission to 6 (read and write) on every member of a broker "
        "group that is registered now; one that is away then stays drained. Also reverts "
        "`drain --name-servers`.",
    )
    for action in (drain, undrain):
        action.add_argument("broker", metavar="BROKER", help="the name of the broker group")
    add_action(drain, _drain)
    add_action(undrain, _undrain)
    return parser


run = run_action


async def _drain(admin: Admin, options: argparse.Namespace) -> None:
    if options.name_servers:
        await admin.wipe_write_perm(options.broker)
        print(f"broker {options.broker} is drained at the name servers")
        return
    members = await admin.drain_broker(options.broker)
    print(f"broker {options.broker} is drained ({_members(members)})")


async def _undrain(admin: Admin, options: argparse.Namespace) -> None:
    members = await admin.undrain_broker(options.broker)
    print(f"broker {options.broker} accepts messages ({_members(members)})")


def _members(addresses: list[str]) -> str:
    return f"{counted(len(addresses), 'member')}: {', '.join(addresses)}"
