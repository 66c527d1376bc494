"""`pocketmq pull`: prints the messages of a topic."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import logging
import sys
from collections.abc import Awaitable, Mapping
from functools import partial

from pocketmq.cli.blocking import BlockingThread
from pocketmq.cli.cluster_command import (
    add_name_server_option,
    run_command,
)
from pocketmq.cli.message_text import FORMATS
from pocketmq.cli.options import Subparsers, timestamp
from pocketmq.cli.standard_files import discard_output
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import NoRouteInfo
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.service import ExitCode, StopEvent

#: The group of a reader that commits nothing.
GROUP = "pocketmq_pull"

BATCH = 512
POLL_SECONDS = 0.25

#: How long a reader may stop reading before a signal ends the command in the midst of a line.
LAST_WRITE_SECONDS = 1.0

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _NotTaken(Exception):
    """The messages handed out last are not written: as an exception it leaves them undone."""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "pull",
        help="print the messages of a topic",
        description="Prints messages as they come, those of each queue in their order. Without "
        "--follow it ends at the end of the queues as it was when it began.",
    )
    add_name_server_option(parser)
    parser.add_argument("-t", "--topic", required=True, help="what to read")
    parser.add_argument(
        "-g",
        "--group",
        help="begin where this consumer group stands, and commit to the broker what was printed",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=_start,
        metavar="first|last|TIMESTAMP",
        help="first message, end of the queues, or store time in ISO 8601 or ms since 1970 "
        "(default: the group's offset, else first)",
    )
    parser.add_argument("--follow", action="store_true", help="go on with messages to come")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="the body, or a JSON object a line"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Prints until the end, SIGINT, or until nobody reads the output any more."""
    # That a queue can not be read is news while others are printed.
    logging.getLogger("pocketmq.client.consumer").setLevel(logging.WARNING)
    return run_command(lambda stop: _pull(options, stop), options)


def _start(text: str) -> str | dt.datetime:
    if text in ("first", "last"):
        return "begin" if text == "first" else "end"
    try:
        return _EPOCH + dt.timedelta(milliseconds=timestamp(text))
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is behind the year 9999") from None


async def _pull(options: argparse.Namespace, stop: StopEvent) -> int:
    thread = BlockingThread("output")
    to_bytes = FORMATS[options.format]
    try:
        async with PullConsumer(
            options.group or GROUP,
            namesrv=options.namesrv,
            start="begin",
            auto_commit=options.group is not None,
        ) as consumer:
            await _assign(consumer, options)
            ends = None if options.follow else await _ends(consumer)
            while not stop.is_set() and not (ends is not None and _reached(consumer, ends)):
                messages = await consumer.poll(BATCH, POLL_SECONDS)
                if messages:
                    # The next poll says that these are done, so they have to be out by then.
                    text = b"".join(map(to_bytes, messages))
                    await _written(thread.call(partial(_write, text)), stop)
    except BrokenPipeError:
        discard_output()  # whoever read has seen enough
        return ExitCode.OK
    except _NotTaken:
        discard_output()
        return stop.exit_code
    thread.close()
    return ExitCode.OK if options.follow else stop.exit_code


async def _written(writing: Awaitable[None], stop: StopEvent) -> None:
    """Raises _NotTaken when it is told to stop and the output does not go on."""
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
        raise NoRouteInfo(options.topic, "it does not exist; --follow waits for it")
    await consumer.assign(options.topic)
    if options.start is not None or options.group is None:
        await consumer.seek(options.start or "begin")


async def _ends(consumer: PullConsumer) -> Mapping[MessageQueue, int]:
    return {queue: await consumer.end_offset(queue) for queue in consumer.assignment}


def _reached(consumer: PullConsumer, ends: Mapping[MessageQueue, int]) -> bool:
    return all((consumer.position(queue) or 0) >= end for queue, end in ends.items())


def _write(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
