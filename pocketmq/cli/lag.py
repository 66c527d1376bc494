"""`pocketmq lag`: how many stored messages a consumer group has not consumed yet."""

from __future__ import annotations

import argparse

from pocketmq.cli.cluster_command import add_json_option, add_name_server_option, run_admin
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.group_progress import progress_by_queue
from pocketmq.cli.groups import existing_group, online
from pocketmq.cli.output import counted, local_time, print_rows, print_table
from pocketmq.client.admin import Admin


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "lag",
        description="Prints for each queue how many stored messages a consumer group has not "
        "consumed yet, in one topic or in all topics in which it has offsets. CONSUMED is the "
        "offset of the group's next message; STORE TIMESTAMP is when the message before it was "
        "stored. A reset changes both without any message being consumed.",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only this topic")
    add_name_server_option(parser)
    add_json_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the lag; a group or a topic that does not exist is an error."""
    return run_admin(lambda admin: _lag(admin, options), options)


async def _lag(admin: Admin, options: argparse.Namespace) -> None:
    group = options.group
    await existing_group(admin, group)
    if options.topic is not None:
        await admin.topic_route(options.topic)  # an unknown topic is not a lag of 0
    rows = progress_by_queue(await admin.consume_stats(group, options.topic))
    if options.json:
        print_rows(rows, as_json=True, empty="")
        return
    where = f" in topic {options.topic}" if options.topic else ""
    if not rows:
        print(f"group {group} has no offset{where}: it has not consumed anything there yet")
        return
    for row in rows:
        row["storeTimestamp"] = local_time(row["storeTimestamp"] or 0)
    print_table(rows)
    lag = sum(row["lag"] for row in rows)
    state = "" if await online(admin, group) else "; no client of the group is online"
    print(f"\ngroup {group} is {counted(lag, 'message')} behind{where}{state}")
