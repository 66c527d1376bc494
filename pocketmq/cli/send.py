"""`pocketmq send`: each line of files or of standard input becomes a message."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from pocketmq.cli.blocking import BlockingThread
from pocketmq.cli.cluster_command import (
    add_name_server_option,
    complain,
    run_command,
)
from pocketmq.cli.line_sender import LineSender, Tally
from pocketmq.cli.lines import STDIN, LineReader, LineTooLong, total_size
from pocketmq.cli.options import Subparsers, count
from pocketmq.client.producer.producer import Producer
from pocketmq.client.validation import check_topic_name
from pocketmq.message.limits import MAX_BODY
from pocketmq.message.message import Message
from pocketmq.remoting.service import ExitCode, StopEvent

GROUP = "pocketmq_send"


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "send",
        help="send each line of files or stdin as a message",
        description="Each line of FILE, or of standard input, becomes one message; empty lines "
        "are skipped. Ends with the count and the rate; exit code 1 when a line was not sent.",
    )
    add_name_server_option(parser)
    parser.add_argument("-t", "--topic", required=True, help="where to send")
    parser.add_argument("--tag", help="the messages' tag, for consumers that filter")
    parser.add_argument("--key", action="append", help="an index key of every message (repeatable)")
    parser.add_argument(
        "--batch", type=count, default=1, metavar="N", help="up to N lines in one request"
    )
    parser.add_argument(
        "files", nargs="*", default=[STDIN], metavar="FILE", help="- or none: standard input"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Sends until the files end; SIGINT stops reading and waits for what is on the way."""
    return run_command(lambda stop: _send(options, stop), options)


async def _send(options: argparse.Namespace, stop: StopEvent) -> int:
    check_topic_name(options.topic)
    size = total_size(options.files)  # also says at once that a file is missing

    def message(body: bytes) -> Message:
        return Message(options.topic, body, tags=options.tag, keys=options.key or ())

    thread = BlockingThread("lines")
    reader = LineReader(options.files, thread, max_line=MAX_BODY)
    async with Producer(GROUP, namesrv=options.namesrv) as producer:
        await producer.queues(options.topic)  # no route: say so before anything is read
        began = time.perf_counter()
        with _progress(size) as on_progress:
            sender = LineSender(producer, message, batch=options.batch, on_progress=on_progress)
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
        except LineTooLong as error:
            return complain(str(error), ExitCode.FAILURE)
    thread.close()
    if stop.is_set():
        return stop.exit_code
    return ExitCode.FAILURE if tally.failed or tally.gave_up else ExitCode.OK


def _summarise(tally: Tally, seconds: float) -> None:
    rate = tally.sent / seconds if seconds else 0.0
    text = f"sent {tally.sent} messages in {seconds:.2f} s ({rate:.0f}/s)"
    if tally.failed:
        text += f", {tally.failed} failed"
    if tally.skipped:
        text += f", {tally.skipped} empty lines skipped"
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
    except ModuleNotFoundError:  # not in a base install; the bar is all that is missing
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
