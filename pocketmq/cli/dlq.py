"""`pocketmq dlq`: list the dead letters of a consumer group, and send them again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pocketmq.cli.cluster_command import CommandError, add_action, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.connection_options import connection_of
from pocketmq.cli.groups import existing_group
from pocketmq.cli.message_text import body_text, json_fields
from pocketmq.cli.options import count
from pocketmq.cli.output import counted, local_time, print_json, print_rows, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.dead_letters import DeadLetters, origin_topic
from pocketmq.client.producer.producer import Producer
from pocketmq.message import properties as names
from pocketmq.message.limits import DLQ_PREFIX
from pocketmq.message.message import Message, MessageExt
from pocketmq.remoting.service import ExitCode

_PRODUCER_GROUP = "pocketmq_dlq"
_BODY_CHARACTERS = 40


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "dlq",
        description="Lists dead letters, which are messages that a consumer group failed to "
        "consume in all attempts, and sends them again. Brokers keep dead letters like other "
        "messages, so what was sent again is still stored; for each queue they remember the offset "
        "up to which all was sent again.",
    )
    actions = parser.add_subparsers(metavar="list|resend", required=True)
    listing = actions.add_parser(
        "list",
        help="the dead letters of a group, or the groups that have any",
        description="Prints the dead letters of a group that were not resent yet. Without a "
        "group: the groups that have dead letters, and how many.",
    )
    listing.add_argument("group", metavar="GROUP", nargs="?")
    listing.add_argument("--all", action="store_true", help="include those that were sent again")
    resend = actions.add_parser(
        "resend",
        help="send the dead letters of a group again",
        description="Resends the dead letters of a group that were not resent yet, oldest "
        "first. Only this group gets them, once more: a message that fails again is a dead letter "
        "again. With --as-new each becomes a new message of the topic that it came from, with all "
        "its attempts, and every group that reads the topic gets it.",
    )
    resend.add_argument("group", metavar="GROUP")
    resend.add_argument(
        "--id",
        metavar="ID",
        help="only the dead letter with this id, sent or not; unless it is the oldest one left, it "
        "stays in the list",
    )
    resend.add_argument("--as-new", action="store_true", help="as new messages, for all groups")
    for action in (listing, resend):
        action.add_argument("--count", type=count, metavar="N", help="at most N dead letters")
    add_action(listing, _list, json=True)
    add_action(resend, _resend)
    return parser


run = run_action


async def _list(admin: Admin, options: argparse.Namespace) -> None:
    if options.group is None:
        await _list_groups(admin, options)
        return
    letters = DeadLetters(admin, options.group)
    rows: list[dict[str, Any]] = []
    async for _, message in letters.messages(sent_too=options.all):
        if len(rows) == options.count:
            break
        rows.append(_row(message, options.json))
    if options.json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(rows)
    else:
        await existing_group(admin, options.group)
        kind = "" if options.all else " left to resend"
        print(f"group {options.group} has no dead letters{kind}", file=sys.stderr)


def _row(message: MessageExt, as_json: bool) -> dict[str, Any]:
    if as_json:
        return {**json_fields(message), "originTopic": origin_topic(message)}
    body = body_text(message.body)
    return {
        "stored": local_time(message.store_timestamp),
        "originTopic": origin_topic(message),
        "id": message.msg_id,
        "keys": message.keys,
        "attempts": message.reconsume_times,
        "body": body if len(body) <= _BODY_CHARACTERS else body[: _BODY_CHARACTERS - 1] + "…",
    }


async def _list_groups(admin: Admin, options: argparse.Namespace) -> None:
    rows = []
    for topic in await admin.topics():
        if topic.startswith(DLQ_PREFIX):
            group = topic.removeprefix(DLQ_PREFIX)
            bounds = (await DeadLetters(admin, group).bounds()).values()
            stored = sum(each.end - each.begin for each in bounds)
            left = sum(each.end - each.first_left for each in bounds)
            if left or (options.all and stored):
                rows.append({"group": group, "deadLetters": left, "sentAgain": stored - left})
    print_rows(rows[: options.count], as_json=options.json, empty="there are no dead letters")


async def _resend(admin: Admin, options: argparse.Namespace) -> int:
    group = options.group
    await existing_group(admin, group)
    letters = DeadLetters(admin, group)
    sent = 0
    oldest = {queue: each.first_left for queue, each in (await letters.bounds()).items()}
    async with Producer(
        _PRODUCER_GROUP,
        namesrv=options.namesrv,
        timeout=options.timeout,
        **connection_of(options),
    ) as producer:
        async for queue, message in letters.messages(sent_too=options.id is not None):
            if sent == options.count:
                break
            if options.id is not None and message.msg_id != options.id:
                continue
            if options.as_new:
                await producer.send(_as_new(message))
            else:
                await admin.deliver_again(group, message)
            sent += 1
            if options.id is None or message.queue_offset == oldest[queue]:
                await letters.mark_sent(queue, message)
            elif message.queue_offset > oldest[queue]:
                print(
                    f"{message.msg_id} stays in the list, because older dead letters of "
                    f"{queue.broker_name} are left; without --id, resend sends it once more",
                    file=sys.stderr,
                )
    if options.id is not None and not sent:
        raise CommandError(f"group {group} has no dead letter with the id {options.id}")
    if not sent:
        print(f"group {group} has no dead letters left to resend", file=sys.stderr)
        return ExitCode.OK
    to = "as new messages" if options.as_new else f"to group {group}"
    print(f"sent {counted(sent, 'dead letter')} again {to}")
    if not options.as_new and await online(admin, group) is None:
        print("no client of the group is online: they wait for one", file=sys.stderr)
    return ExitCode.OK


def _as_new(message: MessageExt) -> Message:
    """A message to send that has what the application put into the dead letter."""
    topic = origin_topic(message)
    if not topic:
        raise CommandError(f"nothing says which topic the dead letter {message.msg_id} came from")
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties={
            name: value for name, value in message.properties.items() if name not in names.RESERVED
        },
        flag=message.flag,
    )
