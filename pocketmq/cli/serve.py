"""`pocketmq serve`: a name server and a broker in one process."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import port
from pocketmq.cli.server_command import (
    add_config_options,
    add_repair_option,
    announce,
    given_settings,
    read_config,
    read_tls_config,
    run_server,
    started,
    store_exit_codes,
)
from pocketmq.remoting.properties_file import ConfigError
from pocketmq.remoting.tls_config import PREFIX as TLS_PREFIX

if TYPE_CHECKING:
    from pocketmq.embedded import EmbeddedServer

log = logging.getLogger("pocketmq")

DEFAULT_STORE = Path("~/store")
_OWN_NAME_SERVER = "`pocketmq serve` runs its own name server"


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "serve",
        description="Runs a name server and a broker in one process, with nothing to configure. "
        "When it says that it listens, the broker is registered and topics can be used. Settings "
        "of the broker may come from an official broker.conf; --set wins over the file, and the "
        "other options win over both.",
    )
    add_config_options(parser, "broker.conf")
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help=f"directory of the store (storePathRootDir, default {DEFAULT_STORE})",
    )
    place.add_argument(
        "--ephemeral", action="store_true", help="use a temporary store, and remove it at the end"
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST",
        help="the host that clients connect to (brokerIP1, default: the one that is bound)",
    )
    parser.add_argument(
        "--bind",
        metavar="HOST",
        help="address on which both listen (bindAddress, default 127.0.0.1)",
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
        help="port of the broker (listenPort, default 10911; 0: any free one)",
    )
    add_repair_option(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return run_server(lambda: _prepare(options), store_exit_codes())


def _prepare(options: argparse.Namespace) -> Callable[[asyncio.Event], Awaitable[None]]:
    from pocketmq.embedded import EmbeddedServer

    properties = _properties(options)
    store = properties.pop("storePathRootDir", None)
    server = EmbeddedServer(
        store=None if options.ephemeral else options.store or store or DEFAULT_STORE,
        bind=properties.get("bindAddress", "127.0.0.1"),
        namesrv_port=options.namesrv_port,
        listen_port=10911,
        properties=properties,
    )
    return lambda stop: _serve(server, options, stop)


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the file, of `--set`, and of the other options; the later ones win.

    Raises:
        ConfigErrors: some values are not allowed.
        ConfigError: the file cannot be read, or `--set` names the name server.
    """
    from pocketmq.broker.config import BrokerConfig, load_broker_config

    # These say what is wrong, and where it stands.
    read_config(load_broker_config, options)
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
        # Settings that are changed while it runs go back to the file they came from.
        properties["brokerConfigPath"] = str(options.config.resolve())
    given = {
        "bindAddress": options.bind,
        "brokerIP1": options.advertise,
        "listenPort": options.listen_port,
    }
    properties |= {name: str(value) for name, value in given.items() if value is not None}
    # The others have had their warning.
    known = {field.encode_name for field in msgspec.structs.fields(BrokerConfig)}
    return {
        name: value
        for name, value in properties.items()
        if name in known or name.startswith(TLS_PREFIX)
    }


async def _serve(server: EmbeddedServer, options: argparse.Namespace, stop: asyncio.Event) -> None:
    async with started(server, repair=options.repair):
        kept = "temporary store" if options.ephemeral else "store"
        announce(
            f"name server listening on {server.namesrv}, broker on {server.broker.address}, "
            f"{kept} {server.store}"
        )
        await stop.wait()
