"""`pocketmq reset`: move a consumer group to another place."""

from __future__ import annotations

import argparse

from pocketmq.cli.administration.cluster_command import CommandError, add_action, run_action
from pocketmq.cli.administration.groups import existing_group
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import position
from pocketmq.cli.output import complain, counted, print_rows
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.serving.service import ExitCode


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "reset",
        description="Sets the offset of a consumer group in every queue of a topic, or in one. "
        "Running consumers follow at once; an OFFSET can only be set while none runs.",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--to",
        required=True,
        type=position,
        metavar="begin|end|-10m|TIME|OFFSET",
        help="the first message, the end of the queues, a time ago (ms, s, m, h, d), a store time "
        "in ISO 8601, or a queue offset",
    )
    parser.add_argument(
        "--queue", metavar="BROKER/QUEUE", help="only this queue; only with an OFFSET"
    )
    add_action(parser, _reset, json=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """Set the offsets, and print them."""
    if options.queue is not None and not isinstance(options.to, int):
        return complain("--queue needs a queue offset: --to NUMBER", ExitCode.USAGE)
    return run_action(options)


async def _reset(admin: Admin, options: argparse.Namespace) -> None:
    await existing_group(admin, options.group)
    if isinstance(options.to, int):
        offsets = await _to_offset(admin, options)
    else:
        offsets = await admin.reset_offsets(options.group, options.topic, options.to)
    rows = [
        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
        for queue, offset in sorted(offsets.items())
    ]
    print_rows(rows, as_json=options.json, empty=f"topic {options.topic} has no queues")
    if not options.json:
        print(
            f"\ngroup {options.group} continues there in {counted(len(rows), 'queue')} "
            f"of topic {options.topic}"
        )


async def _to_offset(admin: Admin, options: argparse.Namespace) -> dict[MessageQueue, int]:
    """Set the offset of the chosen queues to a number, which must exist in all of them."""
    await admin.topic_route(options.topic)
    if (connected := await online(admin, options.group)) is not None:
        clients = counted(len(connected.connection_set), "client")
        raise CommandError(
            f"group {options.group} has {clients} online, which would overwrite the offset: stop "
            "them first, or use a time"
        )
    queues = await admin.queues(options.topic)
    if options.queue is not None:
        queues = tuple(q for q in queues if f"{q.broker_name}/{q.queue_id}" == options.queue)
        if not queues:
            names = ", ".join(
                f"{queue.broker_name}/{queue.queue_id}"
                for queue in await admin.queues(options.topic)
            )
            raise CommandError(
                f"topic {options.topic} has no queue {options.queue}; it has {names}"
            )
    for queue in queues:
        first, end = await admin.min_offset(queue), await admin.max_offset(queue)
        if not first <= options.to <= end:
            raise CommandError(
                f"queue {queue.broker_name}/{queue.queue_id} of topic {options.topic} has the "
                f"offsets {first} to {end}, not {options.to}; --queue chooses one queue"
            )
    for queue in queues:
        await admin.set_group_offset(options.group, queue, options.to)
    return dict.fromkeys(queues, options.to)
