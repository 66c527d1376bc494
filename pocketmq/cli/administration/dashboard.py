"""`pocketmq dashboard`: a web page about a cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from pocketmq.cli.administration.cluster_command import add_name_server_option, add_timeout_option
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.connection_options import connection_of
from pocketmq.cli.options import port
from pocketmq.cli.output import complain
from pocketmq.cli.password_file import read_password
from pocketmq.cli.servers.server_command import announce, run_server
from pocketmq.dashboard.config import DEFAULT_PORT, TIMEOUT, DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.remoting.settings.exposure import is_loopback

log = logging.getLogger("pocketmq")


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "dashboard",
        description="Serves a web page about a pocketmq or official cluster: brokers, topics, "
        "groups with their lag over time, messages, dead letters, clients, and a live tail. It "
        "is read-only until you log in: as a user of the cluster if the cluster checks "
        "signatures, else with the password of --password-file. Before login, visitors see what "
        "the user of --credentials may see.",
    )
    add_name_server_option(parser)
    add_timeout_option(parser, TIMEOUT)
    parser.add_argument(
        "--port",
        type=port,
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"port to listen on (default {DEFAULT_PORT}; 0: any free one)",
    )
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="HOST",
        help="address to listen on (default 127.0.0.1). The dashboard does not encrypt: for "
        "access from other machines put a TLS proxy in front",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name under which browsers reach it, such as that of a proxy (repeatable; "
        "localhost and IP addresses always work)",
    )
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="allow changes to users with the password in FILE",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    file = options.password_file
    try:
        config = DashboardConfig(
            namesrv=options.namesrv,
            host=options.bind,
            port=options.port,
            password=None if file is None else read_password("--password-file", file),
            hosts=options.allow_host,
            timeout=options.timeout,
            **connection_of(options),
        )
    except OSError as error:
        return complain(str(error), ExitCode.FAILURE)
    if not is_loopback(options.bind):
        log.warning(
            "the dashboard listens on %s without TLS: everybody who reaches the port can read "
            "what it shows, and passwords travel as they are; bind to 127.0.0.1 and put a proxy "
            "with TLS in front of it",
            options.bind,
        )
    if not options.verbose:
        # If the cluster does not answer, the pages say so.
        logging.getLogger("pocketmq.client").setLevel(logging.ERROR)

    def prepare() -> Callable[[asyncio.Event], Awaitable[None]]:
        return lambda stop: _serve(Dashboard(config), config, stop)

    return run_server(prepare)


async def _serve(dashboard: Dashboard, config: DashboardConfig, stop: asyncio.Event) -> None:
    async with dashboard:
        announce(f"dashboard on {dashboard.url}, name server {config.namesrv}")
        await stop.wait()
