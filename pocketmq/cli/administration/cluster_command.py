"""Shared by the commands that talk to a cluster: its address, and how a command ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from pocketmq.cli.connection_options import add_connection_options, connection_of
from pocketmq.cli.options import duration, name_servers
from pocketmq.cli.output import complain
from pocketmq.cli.standard_files import READER_GONE, discard_output
from pocketmq.client.errors import RemotingError
from pocketmq.client.routes.name_server_list import NAMESRV_ADDR
from pocketmq.remoting.serving.service import ExitCode, StopEvent
from pocketmq.remoting.serving.service import run as run_until_stopped

if TYPE_CHECKING:
    from pocketmq.client.admin import Admin

DEFAULT_NAME_SERVER = "127.0.0.1:9876"

#: Timeout for each response of a server, in seconds.
TIMEOUT = 5.0

#: Seconds before a command says what it waits for.
PATIENCE = 1.0


class CommandError(Exception):
    """An error message for the user, in one sentence, and the exit code."""

    def __init__(self, text: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(text)
        self.code = code


def add_name_server_option(parser: argparse.ArgumentParser) -> None:
    """Add `-n ADDR;ADDR`, the name servers (default: from the environment, else this machine), and
    the options for encrypting connections to them and to the brokers."""
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR;ADDR",
        type=name_servers,
        default=os.environ.get(NAMESRV_ADDR) or DEFAULT_NAME_SERVER,
        help=f"name servers (default: ${NAMESRV_ADDR}, else {DEFAULT_NAME_SERVER})",
    )
    add_connection_options(parser)


def add_timeout_option(
    parser: argparse.ArgumentParser, default: float = TIMEOUT, what: str = "for each answer"
) -> None:
    """`--timeout TIME`: how long to wait for servers."""
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        default=default,
        help=f"time limit {what}, such as 500ms or 30s (default {default:g}s)",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`: one object a line."""
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """`--cluster` or `--broker`: where something is created, instead of on every broker."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--cluster", help="only on the brokers of this cluster")
    place.add_argument("--broker", help="only on this broker")


def run_command(main: Callable[[StopEvent], Awaitable[int]], options: argparse.Namespace) -> int:
    """Run `main(stop)`, which returns the exit code, until it ends or a signal arrives.

    If the cluster is unreachable or refuses, the command prints one line to stderr. The client's
    own warnings are suppressed, except with `-v`.
    """
    if not options.verbose:
        logging.getLogger("pocketmq.client").setLevel(logging.ERROR)
    code: int = ExitCode.OK

    async def guarded(stop: StopEvent) -> None:
        nonlocal code
        try:
            code = await main(stop)
        except CommandError as error:
            code = complain(str(error), error.code)
        except RemotingError as error:
            from pocketmq.cli.explanation import explained

            code = complain(*await explained(error, options))
        except BrokenPipeError:
            discard_output()
            code = READER_GONE
        except OSError as error:
            code = complain(str(error), ExitCode.FAILURE)

    return run_until_stopped(guarded) or code


Action = Callable[["Admin", argparse.Namespace], Coroutine[Any, Any, "int | None"]]


def run_action(options: argparse.Namespace) -> int:
    """Run the action set by `add_action` with an Admin of the cluster; return its result as the
    exit code, 0 for None."""
    from pocketmq.client.admin import Admin

    action: Action = options.action

    async def reach_and_run(admin: Admin) -> int | None:
        with telling_what_is_awaited(f"name server {options.namesrv}"):
            await admin.cluster_info()
        return await action(admin, options)

    async def ask(stop: StopEvent) -> int:
        async with Admin(
            namesrv=options.namesrv, timeout=options.timeout, **connection_of(options)
        ) as admin:
            asking = asyncio.ensure_future(reach_and_run(admin))
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                if not asking.done():
                    asking.cancel()
            if stop.is_set() and not asking.done():
                return stop.exit_code
            return await asking or ExitCode.OK

    return run_command(ask, options)


def add_action(parser: argparse.ArgumentParser, action: Action, *, json: bool = False) -> None:
    """Make a command run `action(admin, options)`; add `-n` and `--timeout`, and `--json` if the
    command supports it."""
    add_name_server_option(parser)
    add_timeout_option(parser)
    if json:
        add_json_option(parser)
    parser.set_defaults(action=action)


@contextlib.contextmanager
def telling_what_is_awaited(what: str) -> Iterator[None]:
    """Print to stderr what the block waits for, if it takes longer than `PATIENCE`."""
    text = f"waiting for {what}"
    loop = asyncio.get_running_loop()
    timer = loop.call_later(PATIENCE, lambda: print(text, file=sys.stderr, flush=True))
    try:
        yield
    finally:
        timer.cancel()


def no_broker(options: argparse.Namespace) -> CommandError:
    """Return the error of a command that finds no broker."""
    return CommandError(
        f"no broker is registered with the name server {options.namesrv}", ExitCode.UNAVAILABLE
    )


async def check_cluster(admin: Admin, cluster: str | None) -> None:
    """Raise CommandError for a cluster that no broker belongs to; None stands for all."""
    if cluster is None:
        return
    clusters = (await admin.cluster_info()).cluster_addr_table
    if cluster not in clusters:
        names = ", ".join(sorted(clusters)) or "none"
        raise CommandError(
            f"there is no cluster {cluster}; the clusters are: {names}", ExitCode.UNAVAILABLE
        )
