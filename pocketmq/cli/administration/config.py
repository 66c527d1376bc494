"""`pocketmq config`: show and change settings of running brokers and name servers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from pocketmq.cli.administration.cluster_command import (
    CommandError,
    add_action,
    check_cluster,
    run_action,
)
from pocketmq.cli.command_parser import CommandParser, Subparsers, nearest
from pocketmq.cli.options import setting
from pocketmq.cli.output import print_rows
from pocketmq.client.admin import Admin
from pocketmq.client.errors import ClientError, RemotingError, is_silence
from pocketmq.remoting.serving.service import ExitCode

_NAME_SERVER = "name server"


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "config",
        description="Shows and changes settings of running brokers and name servers, by their "
        "official names.",
    )
    actions = parser.add_subparsers(metavar="show|set", required=True)
    show = actions.add_parser(
        "show",
        aliases=["get"],
        help="print settings",
        description="Prints the settings of every broker, of one, or of the name server.",
    )
    show.add_argument("names", metavar="NAME", nargs="*", default=[], help="only these settings")
    change = actions.add_parser(
        "set",
        help="change settings",
        description="Changes settings of every broker, of some, or of every name server. If a "
        "server refuses one setting, it changes none. Settings that need a restart are refused.",
    )
    change.add_argument("settings", metavar="NAME=VALUE", nargs="+", type=setting)
    for action in (show, change):
        servers = action.add_mutually_exclusive_group()
        servers.add_argument("--broker", help="only this broker")
        servers.add_argument("--cluster", help="only the brokers of this cluster")
        servers.add_argument(
            "--name-servers", action="store_true", help="the name servers, not the brokers"
        )
    add_action(show, _show, json=True)
    add_action(change, _set)
    return parser


run = run_action


async def _show(admin: Admin, options: argparse.Namespace) -> None:
    rows = []
    for server, settings in (await _settings(admin, options)).items():
        for name in options.names:
            _check_name(name, settings)
        rows += [
            {"server": server, "name": name, "value": value}
            for name, value in sorted(settings.items())
            if not options.names or name in options.names
        ]
    print_rows(rows, as_json=options.json, empty="there are no settings")


async def _set(admin: Admin, options: argparse.Namespace) -> None:
    changes = dict(options.settings)
    known = await _settings(admin, options)
    for settings in known.values():
        for name in changes:
            _check_name(name, settings)
    try:
        if options.name_servers:
            await admin.update_namesrv_config(changes)
        else:
            for broker in known:  # one after the other: the first refusal stops
                await admin.update_broker_config(changes, broker=broker)
    except RemotingError as error:
        if isinstance(error, ClientError) or is_silence(error):
            raise
        raise CommandError(error.remark, ExitCode.CONFIG) from None
    rows = [
        {"server": server, "name": name, "before": settings[name], "now": changes[name]}
        for server, settings in known.items()
        for name in sorted(changes)
    ]
    print_rows(rows, as_json=False, empty="")


async def _settings(admin: Admin, options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Return the settings of the chosen servers, by server name."""
    if options.name_servers:
        return {_NAME_SERVER: await admin.namesrv_config()}
    return {name: await admin.broker_config(name) for name in await _brokers(admin, options)}


async def _brokers(admin: Admin, options: argparse.Namespace) -> Iterable[str]:
    info = await admin.cluster_info()
    if options.broker is not None:
        return [options.broker]  # an unknown one is refused by its name
    if options.cluster is None:
        return sorted(info.broker_addr_table)
    await check_cluster(admin, options.cluster)
    return sorted(info.cluster_addr_table[options.cluster])


def _check_name(name: str, settings: Iterable[str]) -> None:
    """Raise CommandError for a setting that the server does not have."""
    if name not in settings:
        near = nearest(name, settings) or "; `pocketmq config show` lists the settings"
        raise CommandError(f"there is no setting {name}{near}", ExitCode.CONFIG)
