"""`pocketmq serve`: a name server and a broker in one process."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.cli.options import Subparsers, port
from pocketmq.cli.server_command import announce, run_server, store_exit_codes

if TYPE_CHECKING:
    from pocketmq.embedded import EmbeddedServer

DEFAULT_STORE = Path("~/store")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "serve",
        help="name server and broker in one process",
        description="All that a client needs, with nothing to configure. When it says that it "
        "listens, the broker is registered and topics can be used.",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--store",
        type=Path,
        default=DEFAULT_STORE,
        metavar="DIR",
        help=f"directory of the store (default {DEFAULT_STORE})",
    )
    place.add_argument(
        "--ephemeral", action="store_true", help="a temporary store, removed at the end"
    )
    parser.add_argument(
        "--advertise",
        default="",
        metavar="HOST",
        help="the host that clients are told to connect to (brokerIP1; default: the bound one)",
    )
    parser.add_argument("--bind", default="127.0.0.1", metavar="HOST", help="default 127.0.0.1")
    parser.add_argument(
        "--namesrv-port", type=port, default=9876, metavar="PORT", help="default 9876; 0: any"
    )
    parser.add_argument(
        "--listen-port", type=port, default=10911, metavar="PORT", help="default 10911; 0: any"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM."""
    return run_server(lambda: _prepare(options), store_exit_codes())


def _prepare(options: argparse.Namespace) -> Callable[[asyncio.Event], Awaitable[None]]:
    from pocketmq.embedded import EmbeddedServer

    server = EmbeddedServer(
        store=None if options.ephemeral else options.store,
        bind=options.bind,
        namesrv_port=options.namesrv_port,
        listen_port=options.listen_port,
        advertise=options.advertise,
    )
    return lambda stop: _serve(server, options.ephemeral, stop)


async def _serve(server: EmbeddedServer, ephemeral: bool, stop: asyncio.Event) -> None:
    async with server:
        kept = "temporary store" if ephemeral else "store"
        announce(
            f"name server listening on {server.namesrv}, broker on {server.broker.address}, "
            f"{kept} {server.store}"
        )
        await stop.wait()
