"""`pocketmq proxy`: the gRPC proxy of a cluster, as a process."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import port
from pocketmq.cli.servers.server_command import (
    add_bind_option,
    add_config_options,
    add_stop_option,
    announce,
    log,
    run_server,
    warn_of_secrets,
)

if TYPE_CHECKING:
    from pocketmq.cluster_proxy import ClusterProxy


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "proxy",
        description="Serves RocketMQ 5's gRPC clients in front of the brokers of a cluster, "
        "pocketmq's or official ones. Settings come from an official rmq-proxy.json; --set "
        "overrides the file, and other options override both. `pocketmq serve` needs no separate "
        "proxy.",
    )
    add_config_options(parser, "rmq-proxy.json")
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR;ADDR",
        help="name servers of the cluster (namesrvAddr, default $NAMESRV_ADDR)",
    )
    parser.add_argument(
        "--grpc-port",
        type=port,
        metavar="PORT",
        help="port to listen on (grpcServerPort, default 8081; 0: any free one)",
    )
    add_bind_option(parser)
    add_stop_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return run_server(lambda: _prepare(options), stop_seconds=options.stop_timeout)


def _prepare(options: argparse.Namespace) -> Callable[[asyncio.Event], Awaitable[None]]:
    from pocketmq.cluster_proxy import ClusterProxy
    from pocketmq.proxy.config import load_proxy_config, read_proxy_file, tls_settings
    from pocketmq.remoting.settings.properties_file import Settings
    from pocketmq.remoting.tls.tls_config import load_tls_config

    sources = [] if options.config is None else [read_proxy_file(options.config)]
    sources.append(Settings.of_options(options.settings, "--set"))
    config, warnings = load_proxy_config(*sources)
    tls, more = load_tls_config(*map(tls_settings, sources))
    for warning in warnings + more:
        log.warning("%s", warning)
    warn_of_secrets(tls, options.config, sources[0])
    if options.namesrv is not None:
        config.namesrv_addr = options.namesrv
    if options.grpc_port is not None:
        config.grpc_server_port = options.grpc_port
    if options.bind is not None:
        config.bind_address = options.bind
    return lambda stop: _serve(ClusterProxy(config, tls=tls), stop)


async def _serve(proxy: ClusterProxy, stop: asyncio.Event) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(proxy)
        announce(f"proxy listening on {proxy.address}, name server {proxy.name_servers}")
        await stop.wait()
