"""`pocketmq message`: look up single messages by key, tag, id, or place."""

from __future__ import annotations

import argparse
import sys

from pocketmq.cli.administration.cluster_command import CommandError, add_action, run_action
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.messages.message_text import json_line, shown
from pocketmq.cli.options import count, key, queue_offset
from pocketmq.cli.output import complain
from pocketmq.client.admin import Admin
from pocketmq.message.message import MessageExt
from pocketmq.remoting.serving.service import ExitCode


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "message",
        description="Prints single messages with all their fields. The exit code is 1 if "
        "there is no such message.",
    )
    parser.add_argument(
        "topic",
        metavar="TOPIC",
        nargs="?",
        help="topic; needed with --key and --tag, and with an id that does not contain a broker's "
        "address",
    )
    by = parser.add_mutually_exclusive_group(required=True)
    by.add_argument("--key", type=key, help="the messages of the topic with this key")
    by.add_argument(
        "--tag",
        type=key,
        help="the messages of the topic with this tag (stored by pocketmq, or by RocketMQ from 5.4 "
        "on)",
    )
    by.add_argument("--id", metavar="ID", help="the message with this id")
    by.add_argument(
        "--offset",
        type=queue_offset,
        metavar="TOPIC/BROKER/QUEUE/OFFSET",
        help="the message at this offset of a queue, such as orders/broker-a/3/1024",
    )
    parser.add_argument(
        "--count", type=count, default=64, metavar="N", help="print at most N messages (default 64)"
    )
    add_action(parser, _message, json=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the messages that are found."""
    for name in ("key", "tag"):
        if getattr(options, name) is not None and options.topic is None:
            need = f"--{name} needs a topic: pocketmq message TOPIC --{name} {name.upper()}"
            return complain(need, ExitCode.USAGE)
    return run_action(options)


async def _message(admin: Admin, options: argparse.Namespace) -> int:
    found = await _found(admin, options)
    if not found:
        print("no such message is stored", file=sys.stderr)
        return ExitCode.FAILURE
    for number, message in enumerate(found[: options.count]):
        if options.json:
            sys.stdout.write(json_line(message).decode())
        else:
            print("\n" * bool(number) + shown(message))
    return ExitCode.OK


async def _found(admin: Admin, options: argparse.Namespace) -> list[MessageExt]:
    if options.offset is not None:
        options.topic = options.offset[0].topic
        message = await admin.message_at(*options.offset)
    elif options.topic is not None:
        if options.key is not None:
            return await admin.messages_by_key(
                options.topic, options.key, max_messages=options.count
            )
        if options.tag is not None:
            return await admin.messages_by_tag(
                options.topic, options.tag, max_messages=options.count
            )
        return await admin.messages_by_id(options.topic, options.id)
    else:
        message = await admin.message_by_offset_id(options.id)
        if message is None:
            raise CommandError(
                f"the id {options.id} does not name a place on a broker; if a producer made it, "
                "name the topic: pocketmq message TOPIC --id ID"
            )
    return [] if message is None else [message]
