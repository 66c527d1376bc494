"""`pocketmq namesrv`: the name server as a process."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import port
from pocketmq.cli.servers.server_command import (
    add_bind_option,
    add_config_options,
    add_stop_option,
    announce,
    read_config,
    read_tls_config,
    run_server,
)
from pocketmq.namesrv.config import NamesrvConfig, load_namesrv_config, take_kept
from pocketmq.namesrv.server import NameServer
from pocketmq.namesrv.text_file import TextFile
from pocketmq.remoting.tls.tls_config import TlsConfig


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "namesrv",
        description="Tells clients which broker has which topic. Settings come from an official "
        "namesrv.conf; --set overrides the file, and other options override both. The key-value "
        "config is stored in kvConfigPath, by default ~/namesrv/kvConfig.json.",
    )
    add_config_options(parser, "namesrv.conf")
    parser.add_argument(
        "--listen-port",
        type=port,
        metavar="PORT",
        help="port to listen on (listenPort, default 9876; 0: any free one)",
    )
    add_bind_option(parser)
    add_stop_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM."""
    return run_server(lambda: _prepare(options), stop_seconds=options.stop_timeout)


def _prepare(options: argparse.Namespace) -> Callable[[asyncio.Event], Awaitable[None]]:
    config = read_config(load_namesrv_config, options)
    if options.config is not None and TextFile(options.config).writable:
        # Settings changed at run time are written back to their file.
        config.config_store_path = str(options.config)
    else:
        take_kept(config)
    if options.listen_port is not None:
        config.listen_port = options.listen_port
    if options.bind is not None:
        config.bind_address = options.bind
    tls = read_tls_config(options)
    return lambda stop: _serve(config, tls, stop)


async def _serve(config: NamesrvConfig, tls: TlsConfig, stop: asyncio.Event) -> None:
    async with NameServer(config, tls=tls) as server:
        announce(f"name server listening on {server.address}, store {config.kv_config_path}")
        await stop.wait()
