"""`pocketmq send`: messages from the command line, or from lines of files or standard input."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from pocketmq.blocking_thread import BlockingThread
from pocketmq.cli.administration.cluster_command import (
    add_name_server_option,
    add_timeout_option,
    run_command,
    telling_what_is_awaited,
)
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.connection_options import connection_of
from pocketmq.cli.messages.line_sender import LineSender, Tally
from pocketmq.cli.messages.lines import STDIN, LineReader, total_size
from pocketmq.cli.messages.message_lines import LineFormat, MessageTemplate
from pocketmq.cli.options import count, duration, key, message_property, offset, tag
from pocketmq.cli.output import complain, counted
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.send_result import SendResult
from pocketmq.client.validation import check_topic_name
from pocketmq.message.limits import MAX_BODY
from pocketmq.message.message import Message
from pocketmq.remoting.serving.service import ExitCode, StopEvent

GROUP = "pocketmq_send"

#: Timeout for each message, in seconds.
SEND_TIMEOUT = 10.0


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "send",
        description="Sends each BODY as one message; without a BODY, each line of standard input "
        "or --file that is not empty. At the end it prints the number of messages. The exit code "
        "is 1 if a message was not sent.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic to send to")
    parser.add_argument(
        "bodies", nargs="*", default=[], metavar="BODY", help="the body of a message"
    )
    add_name_server_option(parser)
    add_timeout_option(parser, SEND_TIMEOUT, "for each message, all attempts together")
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        metavar="FILE",
        help="send the lines of FILE; - is standard input (repeatable)",
    )
    lines = parser.add_mutually_exclusive_group()
    lines.add_argument(
        "--json",
        action="store_true",
        help="each line is a JSON object with body or bodyBase64 and optionally tags, keys, "
        "properties, delay (seconds, or text such as 5m), and priority",
    )
    lines.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=_separator,
        help="the part of each line before TEXT becomes a key of the message (\\t is a tab)",
    )
    parser.add_argument("--tag", type=tag, help="tag of the messages")
    parser.add_argument(
        "--key",
        action="append",
        type=key,
        default=[],
        help="index key of the messages (repeatable)",
    )
    parser.add_argument(
        "--property",
        dest="properties",
        action="append",
        type=message_property,
        default=[],
        metavar="NAME=VALUE",
        help="property of the messages (repeatable)",
    )
    parser.add_argument(
        "--delay",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="deliver the messages later: seconds, or a number with ms, s, m, h, d",
    )
    parser.add_argument(
        "--priority",
        type=offset,
        metavar="N",
        help="priority of the messages, from 0 on, in a topic of --type priority",
    )
    parser.add_argument(
        "--batch", type=count, default=1, metavar="N", help="send up to N lines in one request"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Send until the input ends; SIGINT stops reading and waits for the requests in flight."""
    if options.bodies and (options.files or options.key_separator or options.batch > 1):
        text = "give either BODY or lines (--file, --key-separator, --batch)"
        return complain(text, ExitCode.USAGE)
    return run_command(lambda stop: _send(options, stop), options)


async def _send(options: argparse.Namespace, stop: StopEvent) -> int:
    check_topic_name(options.topic)
    template = MessageTemplate(
        options.topic,
        tag=options.tag,
        keys=tuple(options.key),
        properties=dict(options.properties),
        delay=options.delay,
        priority=options.priority,
    )
    make_message: LineFormat = template.plain
    if options.json:
        make_message = template.json
    elif options.key_separator:
        make_message = template.keyed(options.key_separator)
    if options.bodies:
        # The original bytes, even if they are not UTF-8.
        messages = [make_message(os.fsencode(body)) for body in options.bodies]
        return await _send_all(options, messages)
    return await _send_lines(options, make_message, stop)


async def _find_queues(producer: Producer, options: argparse.Namespace) -> None:
    awaited = f"name server {options.namesrv} to name a broker for topic {options.topic}"
    with telling_what_is_awaited(awaited):
        await producer.queues(options.topic)


async def _send_all(options: argparse.Namespace, messages: Sequence[Message]) -> int:
    """Send the messages one after another, so that they are stored in order."""
    async with Producer(
        GROUP, namesrv=options.namesrv, timeout=options.timeout, **connection_of(options)
    ) as producer:
        await _find_queues(producer, options)
        for number, message in enumerate(messages):
            try:
                with telling_what_is_awaited(f"a broker that takes messages of {options.topic}"):
                    result = await producer.send(message)
            except RemotingError:
                if number:
                    print(f"sent {counted(number, 'message')}", file=sys.stderr)
                raise
            print(f"{_stored(message, result)}, id {result.msg_id}", file=sys.stderr)
    print(f"sent {counted(len(messages), 'message')}", file=sys.stderr)
    return ExitCode.OK


def _stored(message: Message, result: SendResult) -> str:
    """Return the argument with which `pocketmq message --offset` finds the message, or when the
    message will be in its topic."""
    if message.delay:  # it gets its offset when it is delivered
        return f"stored, to be delivered to {message.topic} in {message.delay:.12g} s"
    queue = result.queue
    return f"stored as {queue.topic}/{queue.broker_name}/{queue.queue_id}/{result.queue_offset}"


async def _send_lines(
    options: argparse.Namespace, make_message: LineFormat, stop: StopEvent
) -> int:
    files = options.files or [STDIN]
    size = total_size(files)  # also reports a missing file at once
    thread = BlockingThread("lines")
    reader = LineReader(files, thread, max_line=MAX_BODY)
    async with Producer(
        GROUP, namesrv=options.namesrv, timeout=options.timeout, **connection_of(options)
    ) as producer:
        await _find_queues(producer, options)  # report a missing route before reading
        began = time.perf_counter()
        with _progress(size) as on_progress:
            sender = LineSender(
                producer, make_message, batch=options.batch, on_progress=on_progress
            )
            feeding = asyncio.ensure_future(sender.feed(reader))
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({feeding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                feeding.cancel()
                tally = await sender.drained()
        _summarise(tally, time.perf_counter() - began)
        try:
            await feeding
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
    thread.close()
    if stop.is_set():
        return stop.exit_code
    return ExitCode.FAILURE if tally.failed or tally.gave_up else ExitCode.OK


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the separator is empty")
    return text.replace(r"\t", "\t")


def _summarise(tally: Tally, seconds: float) -> None:
    rate = tally.sent / seconds if seconds else 0.0
    text = f"sent {counted(tally.sent, 'message')} in {seconds:.2f} s ({rate:.0f}/s)"
    if tally.failed:
        text += f", {tally.failed} failed"
    if tally.skipped:
        text += f", {counted(tally.skipped, 'empty line')} skipped"
    if tally.gave_up:
        text += "; gave up, the rest was not tried"
    print(text, file=sys.stderr)


@contextlib.contextmanager
def _progress(size: int | None) -> Iterator[Callable[[Tally], None]]:
    """A bar on a terminal, nothing elsewhere; `size` bytes are to be read, None: unknown."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda tally: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:  # not in a base install; only the bar is missing
        yield lambda tally: None
        return

    columns = (
        BarColumn(),
        TextColumn("{task.fields[sent]} sent, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("send", total=size, sent=0, failed=0)
        shown = 0.0

        def show(tally: Tally) -> None:
            nonlocal shown
            # The bar is drawn ten times a second; an update costs more than a send.
            now = time.perf_counter()
            if now - shown >= 0.1:
                shown = now
                progress.update(task, completed=tally.read, sent=tally.sent, failed=tally.failed)

        yield show
