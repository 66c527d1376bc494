"""`pocketmq groups`: list consumer groups, and show the members and progress of one."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec

from pocketmq.cli.administration.cluster_command import (
    CommandError,
    add_action,
    add_place_options,
    check_cluster,
    run_action,
)
from pocketmq.cli.administration.confirmation import confirm
from pocketmq.cli.administration.group_progress import progress_by_topic
from pocketmq.cli.command_parser import CommandParser, Subparsers, nearest
from pocketmq.cli.explanation import no_such_group
from pocketmq.cli.options import offset
from pocketmq.cli.output import counted, print_json, print_rows, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.system_names import is_users_group
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.serving.service import ExitCode

#: Groups that are queried at the same time.
_AT_ONCE = 16


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "groups", description="Lists, shows, creates, and deletes consumer groups."
    )
    actions = parser.add_subparsers(metavar="list|show|create|delete", required=True)
    listing = actions.add_parser(
        "list",
        help="the consumer groups, how many clients they have, and how far they are behind",
        description="Prints the consumer groups with the number of online clients and their lag: "
        "the stored messages not yet consumed.",
    )
    listing.add_argument("--all", action="store_true", help="include groups of brokers and tools")
    listing.add_argument("--cluster", help="only the groups of this cluster")
    show = actions.add_parser(
        "show",
        help="the clients, subscriptions, and lag of a group",
        description="Prints the online clients of a group, its subscriptions, and its lag in each "
        "topic.",
    )
    show.add_argument("group", metavar="GROUP")
    create = actions.add_parser(
        "create",
        help="create a group, or change it",
        description="Creates a consumer group on every broker, on those of a cluster, or on one. "
        "If the group exists, only the settings that you name change.",
    )
    create.add_argument("group", metavar="GROUP")
    create.add_argument(
        "--retries",
        type=offset,
        metavar="N",
        help="redeliveries before a message is a dead letter (retryMaxTimes, default 16)",
    )
    create.add_argument(
        "--consume",
        choices=("on", "off"),
        help="whether brokers let the group consume (consumeEnable, default on)",
    )
    add_place_options(create)
    delete = actions.add_parser(
        "delete",
        help="delete groups",
        description="Deletes consumer groups and their offsets from the brokers. A group that is "
        "used again begins as a new group.",
    )
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.add_argument("--cluster", help="only on the brokers of this cluster")
    delete.add_argument(
        "--keep-offsets", action="store_true", help="keep the offsets of the groups"
    )
    delete.add_argument("--yes", action="store_true", help="do not ask")
    add_action(listing, _list, json=True)
    add_action(show, _show, json=True)
    add_action(create, _create)
    add_action(delete, _delete)
    return parser


run = run_action


async def existing_group(admin: Admin, group: str) -> SubscriptionGroupConfig:
    """The settings of a group. Raises CommandError when no broker knows it."""
    groups = await admin.groups()
    if group not in groups:
        raise CommandError(no_such_group(group, nearest(group, groups)), ExitCode.UNAVAILABLE)
    return groups[group]


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


async def _create(admin: Admin, options: argparse.Namespace) -> None:
    await check_cluster(admin, options.cluster)
    before = (await admin.groups()).get(options.group)
    changes: dict[str, Any] = {}
    if options.retries is not None:
        changes["retry_max_times"] = options.retries
    if options.consume is not None:
        changes["consume_enable"] = options.consume == "on"
    config = msgspec.structs.replace(before or SubscriptionGroupConfig(), **changes)
    brokers = await admin.create_group(
        options.group, cluster=options.cluster, broker=options.broker, config=config
    )
    done = "is created" if before is None else "is changed"
    print(f"group {options.group} {done} on {', '.join(brokers)}")


async def _delete(admin: Admin, options: argparse.Namespace) -> None:
    groups = list(dict.fromkeys(options.groups))
    cluster, clean = options.cluster, not options.keep_offsets
    for group in groups:
        await existing_group(admin, group)
    await check_cluster(admin, cluster)
    for group in groups:
        connected = await online(admin, group)
        if connected is not None:
            clients = counted(len(connected.connection_set), "client")
            raise CommandError(f"group {group} has {clients} online; stop them first")
    if len(groups) == 1:
        confirm(f"Delete group {groups[0]}{' with its offsets' if clean else ''}?", options.yes)
        await admin.delete_group(groups[0], cluster=cluster, clean_offsets=clean)
    else:
        offsets = " with their offsets" if clean else ""
        confirm(f"Delete groups {', '.join(groups)}{offsets}?", options.yes)
        await admin.delete_groups(groups, cluster=cluster, clean_offsets=clean)
    for group in groups:
        print(f"group {group} is deleted")
