"""`pocketmq pull`: prints the messages of a topic."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Mapping
from functools import partial

from pocketmq.blocking_thread import BlockingThread
from pocketmq.cli.administration.cluster_command import (
    add_name_server_option,
    add_timeout_option,
    run_command,
    telling_what_is_awaited,
)
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.connection_options import connection_of
from pocketmq.cli.messages.message_text import json_line, terminal_line, text_line
from pocketmq.cli.options import count, start
from pocketmq.cli.standard_files import UnreadOutput, discard_output
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import NoRouteInfo
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.serving.service import ExitCode, StopEvent

#: The group of a reader that commits nothing.
GROUP = "pocketmq_pull"

#: How long to look for a name server, in seconds; the same as in `pocketmq send`.
START_TIMEOUT = 10.0

BATCH = 512
POLL_SECONDS = 0.25

#: How long a reader may stall before a signal ends the command in the middle of a line.
LAST_WRITE_SECONDS = 1.0


class _NotTaken(Exception):
    """The last messages were not written. Raised as an exception, so that they stay
    unacknowledged."""


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "pull",
        description="Prints the messages of a topic, in order within each queue. It stops at the "
        "offsets where the queues ended when the command began, unless --follow is given. On a "
        "terminal, control characters and bytes that are not UTF-8 are replaced.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic to read")
    add_name_server_option(parser)
    add_timeout_option(parser, START_TIMEOUT, "for a name server to answer at the start")
    parser.add_argument(
        "-g",
        "--group",
        help="begin at the offsets of this consumer group, and commit what was printed",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=start,
        metavar="begin|end|-10m|TIME",
        help="the first message, the end of the queues, a time ago (ms, s, m, h, d), or a store "
        "time in ISO 8601 or milliseconds since 1970 (default: the group's offset, else begin)",
    )
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--tags", default="*", help="only messages with these tags: 'paid || open'")
    wanted.add_argument(
        "--sql", metavar="CONDITION", help="only messages whose properties match: 'amount > 10'"
    )
    parser.add_argument("--count", type=count, metavar="N", help="end after N messages")
    parser.add_argument("--follow", action="store_true", help="wait for new messages")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a line instead of the body"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Print until the end, until SIGINT, or until nobody reads the output any more."""
    # Show the warning of a queue that cannot be read: the others are still printed.
    logging.getLogger("pocketmq.client.consumer").setLevel(logging.WARNING)
    return run_command(lambda stop: _pull(options, stop), options)


async def _pull(options: argparse.Namespace, stop: StopEvent) -> int:
    thread = BlockingThread("output")
    to_bytes = terminal_line if sys.stdout.isatty() else text_line
    if options.json:
        to_bytes = json_line
    unread = UnreadOutput()
    left = options.count
    try:
        consumer = PullConsumer(
            options.group or GROUP,
            namesrv=options.namesrv,
            start="begin",
            auto_commit=options.group is not None,
            start_timeout=options.timeout,
            **connection_of(options),
        )
        awaited = f"name server {options.namesrv}"
        with telling_what_is_awaited(awaited):
            await consumer.start()
        async with consumer:
            with telling_what_is_awaited(awaited):
                await _assign(consumer, options)
            ends = None if options.follow else await _ends(consumer)
            while not stop.is_set() and left != 0 and not _reached(consumer, ends):
                if unread:
                    raise BrokenPipeError
                wanted = BATCH if left is None else min(left, BATCH)
                messages = await consumer.poll(wanted, POLL_SECONDS)
                if messages:
                    # The next poll acknowledges these, so they must be written by then.
                    text = b"".join(map(to_bytes, messages))
                    await _written(thread.call(partial(_write, text)), stop)
                    left = None if left is None else left - len(messages)
    except BrokenPipeError:
        discard_output()  # the reader has seen enough
        return ExitCode.OK
    except _NotTaken:
        discard_output()
        return stop.exit_code
    thread.close()
    return ExitCode.OK if options.follow else stop.exit_code


async def _written(writing: Awaitable[None], stop: StopEvent) -> None:
    """Raise _NotTaken if the command has to stop while the output is blocked."""
    task = asyncio.ensure_future(writing)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=LAST_WRITE_SECONDS)
        if not task.done():
            raise _NotTaken
        await task
    finally:
        stopping.cancel()
        task.cancel()


async def _assign(consumer: PullConsumer, options: argparse.Namespace) -> None:
    if not options.follow and not await consumer.queues(options.topic):
        raise NoRouteInfo(options.topic, "it does not exist")
    await consumer.assign(options.topic, options.tags, sql=options.sql)
    if options.start is not None or options.group is None:
        await consumer.seek(options.start or "begin")


async def _ends(consumer: PullConsumer) -> Mapping[MessageQueue, int]:
    return {queue: await consumer.end_offset(queue) for queue in consumer.assignment}


def _reached(consumer: PullConsumer, ends: Mapping[MessageQueue, int] | None) -> bool:
    return ends is not None and all(
        (consumer.position(queue) or 0) >= end for queue, end in ends.items()
    )


def _write(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
