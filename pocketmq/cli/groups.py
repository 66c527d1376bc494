"""`pocketmq groups`: list consumer groups, and show who is in one and how far it is."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from pocketmq.cli.cluster_command import CommandError, add_action, check_cluster, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers, nearest
from pocketmq.cli.explanation import no_such_group
from pocketmq.cli.group_progress import progress_by_topic
from pocketmq.cli.output import counted, print_json, print_rows, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.system_names import is_users_group
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.remoting.bodies.consumer import ConsumerConnection
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.service import ExitCode

#: Groups that are asked for at the same time.
_AT_ONCE = 16


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser("groups", description="Lists and shows consumer groups.")
    actions = parser.add_subparsers(metavar="list|show", required=True)
    listing = actions.add_parser(
        "list",
        help="the consumer groups, how many clients they have, and how far they are behind",
        description="Prints the consumer groups with the number of their clients that are online, "
        "and with their lag: the stored messages that they have not consumed yet.",
    )
    listing.add_argument("--all", action="store_true", help="include groups of brokers and tools")
    listing.add_argument("--cluster", help="only the groups of this cluster")
    show = actions.add_parser(
        "show",
        help="the clients, subscriptions, and lag of a group",
        description="Prints the clients of a group that are online, what the group subscribes to, "
        "and how far it is in each topic.",
    )
    show.add_argument("group", metavar="GROUP")
    add_action(listing, _list, json=True)
    add_action(show, _show, json=True)
    return parser


run = run_action


async def existing_group(admin: Admin, group: str) -> SubscriptionGroupConfig:
    """The settings of a group. Raises CommandError when no broker knows it."""
    groups = await admin.groups()
    if group not in groups:
        raise CommandError(no_such_group(group, nearest(group, groups)), ExitCode.UNAVAILABLE)
    return groups[group]


async def online(admin: Admin, group: str) -> ConsumerConnection | None:
    """The clients of a group that are connected; None when there is none."""
    try:
        return await admin.consumers(group)
    except ConsumerNotOnline:
        return None


async def _list(admin: Admin, options: argparse.Namespace) -> None:
    await check_cluster(admin, options.cluster)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def row(group: str) -> dict[str, Any]:
        async with gate:
            connected = await online(admin, group)
            lag = await admin.lag(group)
        clients = [] if connected is None else connected.connection_set
        return {"group": group, "clients": len(clients), "lag": lag}

    names = [
        group
        for group in await admin.groups(cluster=options.cluster)
        if options.all or is_users_group(group)
    ]
    rows = await asyncio.gather(*map(row, names))
    print_rows(rows, as_json=options.json, empty="there is no consumer group")


async def _show(admin: Admin, options: argparse.Namespace) -> None:
    group = options.group
    config = await existing_group(admin, group)
    connected = await online(admin, group)
    topics = await progress_by_topic(admin, group)
    clients = [
        {
            "client": client.client_id,
            "address": client.client_addr,
            "language": client.language,
        }
        for client in (connected.connection_set if connected else ())
    ]
    subscriptions = [
        {"topic": topic, "type": data.expression_type, "expression": data.sub_string}
        for topic, data in sorted((connected.subscription_table if connected else {}).items())
    ]
    if options.json:
        print_json(
            {
                "group": group,
                "online": connected is not None,
                "consumeEnable": config.consume_enable,
                "retryMaxTimes": config.retry_max_times,
                "messageModel": connected.message_model if connected else None,
                "consumeType": connected.consume_type if connected else None,
                "clients": clients,
                "subscriptions": subscriptions,
                "topics": topics,
                "lag": sum(topic["lag"] for topic in topics),
            }
        )
        return
    if connected is None:
        print(f"group {group}: no client is online")
    else:
        how = "pull" if connected.consume_type == "CONSUME_ACTIVELY" else "push"
        model = connected.message_model.lower()
        print(f"group {group}: {counted(len(clients), 'client')} online ({how}, {model})")
    if not config.consume_enable:
        print("the brokers do not let it consume (consumeEnable=false)")
    for title, rows in (("clients", clients), ("subscriptions", subscriptions), ("lag", topics)):
        if rows:
            print(f"\n{title}")
            print_table(rows)
    if not topics:
        print("\nthe group has no offset in any topic")
