"""`pocketmq broker`: a broker as a process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import port
from pocketmq.cli.servers.server_command import (
    STOP_AT_EOF,
    add_bind_option,
    add_config_options,
    add_repair_option,
    add_stop_option,
    announce,
    given_settings,
    need_proxy,
    read_broker_config,
    read_tls_config,
    run_server,
    started,
    stop_at_end_of_input,
    store_exit_codes,
)
from pocketmq.cli.servers.server_dashboard import (
    add_dashboard_options,
    check_dashboard_options,
    running_dashboard,
)
from pocketmq.remoting.settings.properties_file import Settings, check_home
from pocketmq.remoting.tls.tls_config import TlsConfig
from pocketmq.remoting.tls.tls_context import client_context

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.proxy.config import ProxyConfig

log = logging.getLogger("pocketmq")


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "broker",
        description="Stores and serves messages. Settings come from an official broker.conf; "
        "--set overrides the file, and other options override both.",
    )
    add_config_options(parser, "broker.conf")
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR;ADDR",
        help="name servers to register with (namesrvAddr, default $NAMESRV_ADDR)",
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="directory of the store (storePathRootDir, default ~/store); its commit log is "
        "DIR/commitlog: storePathCommitLog is ignored",
    )
    parser.add_argument(
        "--listen-port",
        type=port,
        metavar="PORT",
        help="port to listen on (listenPort, default 10911; 0: any free one)",
    )
    add_bind_option(parser)
    parser.add_argument(
        "--grpc-port",
        type=port,
        metavar="PORT",
        help="also serve RocketMQ 5's gRPC clients on this port; needs the extra `proxy` "
        "(official proxies use 8081; 0: any free one)",
    )
    add_repair_option(parser)
    add_dashboard_options(parser, on=False)
    parser.add_argument(
        STOP_AT_EOF,
        action="store_true",
        help="also stop when standard input ends, that is, when the process that writes to it ends",
    )
    add_stop_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM."""
    return run_server(
        lambda: _prepare(options), store_exit_codes(), stop_seconds=options.stop_timeout
    )


def _prepare(options: argparse.Namespace) -> Callable[[asyncio.Event], Awaitable[None]]:
    from pocketmq.broker.broker import Broker
    from pocketmq.proxy.config import load_local_config

    check_dashboard_options(options)
    addresses = [] if options.namesrv is None else [("namesrvAddr", options.namesrv)]
    config = read_broker_config(options, Settings.of_options(addresses, "-n"))
    if options.config is not None:
        config.broker_config_path = str(options.config.resolve())
    if options.store is not None:
        elsewhere = config.store_path_commit_log
        if elsewhere and config.commit_log_directory != config.root / "commitlog":
            # Not kept: the lock belongs to the root, and another broker may be writing that log.
            log.warning("%s: storePathCommitLog=%s gives way to --store", options.config, elsewhere)
        config.store_path_root_dir = str(options.store)
        config.store_path_commit_log = ""
    check_home("storePathRootDir", config.store_path_root_dir)
    check_home("storePathCommitLog", config.store_path_commit_log)
    if options.listen_port is not None:
        config.listen_port = options.listen_port
    if options.bind is not None:
        config.bind_address = options.bind
    tls = read_tls_config(options)
    if options.grpc_port is not None:
        need_proxy()
    proxy = load_local_config(*given_settings(options))
    links = client_context(tls)
    return lambda stop: _serve(Broker(config, tls=tls), options, tls, proxy, links, stop)


async def _serve(
    broker: Broker,
    options: argparse.Namespace,
    tls: TlsConfig,
    proxy_config: ProxyConfig,
    links: ssl.SSLContext | None,
    stop: asyncio.Event,
) -> None:
    config = broker.config
    if options.stop_at_eof:
        stop_at_end_of_input(stop)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(started(broker, repair=options.repair))
        proxy = ""
        if options.grpc_port is not None:
            from pocketmq.local_proxy import LocalProxy

            local = LocalProxy(broker, port=options.grpc_port, tls=tls, config=proxy_config)
            await stack.enter_async_context(local)
            proxy = f"gRPC on port {local.port}, "
        dashboard = await stack.enter_async_context(
            running_dashboard(
                options,
                ";".join(config.name_servers),
                tls=links,
                inner_credentials=config.inner_client_authentication_credentials,
            )
        )
        name_servers = ", ".join(config.name_servers) or "none"
        announce(
            f"broker {config.broker_name} listening on {broker.address}, {proxy}{dashboard}"
            f"store {config.root}, name server {name_servers}"
        )
        await stop.wait()
