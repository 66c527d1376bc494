"""`pocketmq serve`: a name server and a broker in one process, or several brokers beside it."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pocketmq._extras import is_installed
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import count, port
from pocketmq.cli.output import complain
from pocketmq.cli.servers.server_command import (
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
    store_exit_codes,
)
from pocketmq.cli.servers.server_dashboard import (
    add_dashboard_options,
    check_dashboard_options,
    running_dashboard,
)
from pocketmq.cli.servers.store_layout import check_layout
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.remoting.settings.properties_file import ConfigError, check_home
from pocketmq.remoting.tls.tls_config import PREFIX as TLS_PREFIX

if TYPE_CHECKING:
    from pocketmq.cli.servers.many_brokers import ManyBrokers
    from pocketmq.embedded import EmbeddedServer

log = logging.getLogger("pocketmq")

#: The port of the official proxy.
GRPC_PORT = 8081
DEFAULT_STORE = Path("~/store")
_OWN_NAME_SERVER = "`pocketmq serve` runs its own name server"


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "serve",
        description="Runs a name server and a broker in one process, without configuration. "
        "Topics can be used as soon as it prints that it listens. Broker settings may come from "
        "an official broker.conf; --set overrides the file, and other options override both. "
        "With --brokers, each broker runs in its own process, to use several cores, and is "
        "restarted if it exits.",
    )
    add_config_options(parser, "broker.conf")
    parser.add_argument(
        "--brokers",
        type=count,
        default=1,
        metavar="N",
        help="number of brokers (default 1). Several are named broker-0, broker-1, ... (with "
        "brokerName: NAME-0, ...), have their stores in DIR/broker-0, ..., and use ports in "
        "steps of ten",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help=f"directory of the store (storePathRootDir, default {DEFAULT_STORE})",
    )
    place.add_argument(
        "--ephemeral", action="store_true", help="use a temporary store and remove it at the end"
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST",
        help="host that clients connect to (brokerIP1, default: the bound address)",
    )
    parser.add_argument(
        "--bind",
        metavar="HOST",
        help="address on which both servers listen (bindAddress, default 127.0.0.1)",
    )
    parser.add_argument(
        "--namesrv-port",
        type=port,
        default=9876,
        metavar="PORT",
        help="port of the name server (default 9876; 0: any free one)",
    )
    parser.add_argument(
        "--listen-port",
        type=port,
        metavar="PORT",
        help="port of the (first) broker (listenPort, default 10911; 0: any free one)",
    )
    parser.add_argument(
        "--grpc-port",
        type=port,
        metavar="PORT",
        help=f"port for RocketMQ 5's own clients, with the extra `proxy` (default {GRPC_PORT}, "
        "or a free one if that is taken; 0: any free one)",
    )
    parser.add_argument(
        "--no-grpc", action="store_true", help="do not serve RocketMQ 5's gRPC clients"
    )
    add_repair_option(parser)
    add_dashboard_options(parser, on=True)
    add_stop_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    exit_codes = store_exit_codes()
    if options.brokers == 1:
        return run_server(lambda: _prepare(options), exit_codes, stop_seconds=options.stop_timeout)
    from pocketmq.cli.servers.broker_process import BrokerFailed
    from pocketmq.cli.servers.many_brokers import OWN_STOP_SECONDS

    code: int = ExitCode.OK

    async def serve(brokers: ManyBrokers, stop: asyncio.Event) -> None:
        nonlocal code
        try:
            await brokers.serve(stop)
        except BrokerFailed as error:
            # The broker has printed the cause.
            complain(str(error), ExitCode.FAILURE)
            code = error.code if error.code > 0 else ExitCode.FAILURE

    def prepare() -> Callable[[asyncio.Event], Awaitable[None]]:
        brokers = _prepare_many(options)
        return lambda stop: serve(brokers, stop)

    stop_seconds = options.stop_timeout + OWN_STOP_SECONDS
    return run_server(prepare, exit_codes, stop_seconds=stop_seconds) or code


def _prepare(options: argparse.Namespace) -> Callable[[asyncio.Event], Awaitable[None]]:
    from pocketmq.embedded import EmbeddedServer

    check_dashboard_options(options)
    properties = _properties(options)
    root = _root(options, properties.pop("storePathRootDir", None))
    if root is not None:
        check_layout(root, 1)
    grpc_port = options.grpc_port
    if options.no_grpc:
        grpc_port = None
    elif is_installed("proxy"):
        grpc_port = GRPC_PORT if grpc_port is None else grpc_port
    elif grpc_port is not None:
        need_proxy()
    server = EmbeddedServer(
        store=root,
        grpc_port=grpc_port,
        or_any_grpc_port=options.grpc_port is None,
        bind=properties.get("bindAddress", "127.0.0.1"),
        namesrv_port=options.namesrv_port,
        listen_port=10911,
        properties=properties,
    )
    return lambda stop: _serve(server, options, stop)


def _prepare_many(options: argparse.Namespace) -> ManyBrokers:
    if options.grpc_port is not None:
        text = "one broker's: with --brokers, run `pocketmq proxy` beside them"
        raise ConfigError("--grpc-port", str(options.grpc_port), text)
    from pocketmq.auth.settings import PROPERTIES as AUTH_SETTINGS
    from pocketmq.cli.servers.many_brokers import ManyBrokers
    from pocketmq.embedded import EPHEMERAL_FILE_SIZE
    from pocketmq.monitoring.settings import PROPERTIES as MONITORING_SETTINGS

    check_dashboard_options(options)
    properties = _properties(options)
    root = _root(options, properties.get("storePathRootDir"))
    if root is not None:
        check_layout(root, options.brokers)
    arguments = [] if options.config is None else [f"--config={options.config.resolve()}"]
    if root is None and "mappedFileSizeCommitLog" not in properties:
        arguments.append(f"--set=mappedFileSizeCommitLog={EPHEMERAL_FILE_SIZE}")
    arguments += [f"--set={name}={value}" for name, value in options.settings]
    if options.advertise is not None:
        arguments.append(f"--set=brokerIP1={options.advertise}")
    arguments += ["--repair"] * options.repair + ["--verbose"] * options.verbose
    arguments.append(f"--log-format={options.log_format}")
    arguments.append(f"--stop-timeout={options.stop_timeout}")
    return ManyBrokers(
        options.brokers,
        root=root,
        bind=properties.get("bindAddress", "127.0.0.1"),
        namesrv_port=options.namesrv_port,
        listen_port=int(properties.get("listenPort", 10911)),
        name=properties.get("brokerName", "broker"),
        arguments=arguments,
        stop_seconds=options.stop_timeout,
        dashboard=partial(running_dashboard, options),
        shared={
            name: value
            for name, value in properties.items()
            if name.startswith(TLS_PREFIX) or name in AUTH_SETTINGS | MONITORING_SETTINGS
        },
    )


def _root(options: argparse.Namespace, setting: str | None) -> Path | None:
    """The directory of the stores; None for a temporary one."""
    if options.ephemeral:
        return None
    root = options.store or setting or DEFAULT_STORE
    check_home("storePathRootDir", str(root))
    return Path(root).expanduser()


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the file, of `--set`, and of the other options; the later ones win.

    Raises:
        ConfigErrors: some values are not allowed.
        ConfigError: the file cannot be read, or `--set` names the name server.
    """
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.proxy.config import LOCAL_KEYS, load_local_config

    # These errors say what is wrong, and where.
    read_broker_config(options)
    load_local_config(*given_settings(options))
    read_tls_config(options)
    properties = {}
    for source in given_settings(options):
        for name, value, where in source.settings:
            if name != "namesrvAddr":
                properties[name] = value
            elif where == "--set":
                text = f"{name}: {_OWN_NAME_SERVER}; `pocketmq broker` takes others"
                raise ConfigError(name, value, "left out", where=where, text=text)
            else:
                log.warning("%s: %s=%s has no effect: %s", where, name, value, _OWN_NAME_SERVER)
    if options.config is not None:
        # Settings changed at run time are written back to their file.
        properties["brokerConfigPath"] = str(options.config.resolve())
    given = {
        "bindAddress": options.bind,
        "brokerIP1": options.advertise,
        "listenPort": options.listen_port,
    }
    properties |= {name: str(value) for name, value in given.items() if value is not None}
    # The others were warned about already.
    known = {field.encode_name for field in msgspec.structs.fields(BrokerConfig)} | LOCAL_KEYS
    return {
        name: value
        for name, value in properties.items()
        if name in known or name.startswith(TLS_PREFIX)
    }


async def _serve(server: EmbeddedServer, options: argparse.Namespace, stop: asyncio.Event) -> None:
    async with (
        started(server, repair=options.repair),
        running_dashboard(
            options,
            server.namesrv,
            tls=server.client_tls,
            inner_credentials=server.broker.config.inner_client_authentication_credentials,
        ) as dashboard,
    ):
        kept = "temporary store" if options.ephemeral else "store"
        proxy = ""
        if server.proxy is not None:
            proxy = f"gRPC on port {server.proxy.port}, "
        elif not options.no_grpc:
            log.info("clients of RocketMQ 5 (gRPC) need: pip install 'pocketmq[proxy]'")
        announce(
            f"name server listening on {server.namesrv}, broker on {server.broker.address}, "
            f"{proxy}{dashboard}{kept} {server.store}"
        )
        await stop.wait()
