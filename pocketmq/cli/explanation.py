"""Explains errors of the client to an operator: what is wrong, and what to do about it."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable

from pocketmq.cli.command_parser import nearest
from pocketmq.cli.connection_options import connection_of
from pocketmq.client.admin import Admin
from pocketmq.client.errors import (
    BrokerNotFound,
    ClientError,
    InvalidMessage,
    InvalidName,
    NoNameServer,
    NoPermission,
    NoRouteInfo,
    RemotingConnectError,
    RemotingError,
    RequestCodeNotSupported,
    SubscriptionGroupNotExist,
    is_silence,
)
from pocketmq.client.routes.name_server_list import parse_addresses
from pocketmq.client.routes.route import MASTER_ID
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.service import ExitCode

#: Timeout of queries to the name server, in seconds. Short: the command has failed already.
_TIMEOUT = 2.0


async def explained(error: RemotingError, options: argparse.Namespace) -> tuple[str, ExitCode]:
    """Return the text that explains `error` to the user, and the exit code.

    `options` are the command's: always `namesrv`, perhaps `topic` and `group`.
    """
    if isinstance(error, InvalidName | InvalidMessage):
        return error.remark, ExitCode.USAGE
    if isinstance(error, NoNameServer):
        hint = "is it running? `pocketmq serve` starts one here, -n names another"
        return f"{_without_codes(error.remark, options)}; {hint}", ExitCode.UNAVAILABLE
    if isinstance(error, RequestCodeNotSupported) and error.broker in _name_servers(options):
        return (
            f"{error.broker} is a broker, not a name server; "
            "-n takes a name server, whose port is 9876 unless it was changed",
            ExitCode.UNAVAILABLE,
        )
    if isinstance(error, RemotingConnectError):
        return (
            f"cannot connect to the broker at {error.broker}: {error.remark}; the name server "
            "still lists it, so it may have just stopped, or announce an address (brokerIP1) that "
            "this machine cannot reach",
            ExitCode.UNAVAILABLE,
        )
    if isinstance(error, NoRouteInfo) or error.code == ResponseCode.TOPIC_NOT_EXIST:
        return await _no_topic(error, options)
    if isinstance(error, SubscriptionGroupNotExist) and getattr(options, "group", None):
        return await _no_group(options)
    if isinstance(error, BrokerNotFound):
        return await _no_broker(error, options)
    if isinstance(error, NoPermission) and "username cannot be null" in error.remark:
        return "the cluster wants signed requests: --credentials FILE signs them", ExitCode.FAILURE
    if "SQL92" in error.remark:
        return (
            f"{error.remark}; a broker takes SQL92 conditions with enablePropertyFilter=true "
            "(pocketmq serve --set enablePropertyFilter=true, or pocketmq config set "
            "enablePropertyFilter=true)",
            ExitCode.FAILURE,
        )
    unreachable = isinstance(error, ClientError) or is_silence(error)
    code = ExitCode.UNAVAILABLE if unreachable else ExitCode.FAILURE
    # The second line of an official server is the address of a page.
    return (error.remark or str(error)).partition("\n")[0], code


def _without_codes(text: str, options: argparse.Namespace) -> str:
    """The text without names of response codes, and with each name server named once."""
    for address in _name_servers(options):
        text = text.replace(f" [{address}]", "")
    return re.sub(r"[A-Z_]{3,}\(-?\d+\): ", "", text)


async def _no_topic(error: RemotingError, options: argparse.Namespace) -> tuple[str, ExitCode]:
    topic: str | None = getattr(error, "topic", None) or getattr(options, "topic", None)
    brokers = await _brokers(options)
    if brokers is not None and not brokers:
        return _NO_BROKERS.format(options.namesrv), ExitCode.UNAVAILABLE
    if topic is None:
        return error.remark, ExitCode.UNAVAILABLE
    if topic in await _topics(options):
        if isinstance(error, NoRouteInfo):
            sends = options.command == "send"
            masterless = (
                sorted(await _asked(options, _groups_without_master) or ()) if sends else ()
            )
            if masterless:
                return (
                    f"topic {topic} cannot be written to: no master is registered for "
                    f"{', '.join(masterless)}; `pocketmq status` shows the brokers",
                    ExitCode.UNAVAILABLE,
                )
            use = "written to" if sends else "read"
            return (
                f"topic {topic} has no queue that can be {use}; `pocketmq topics show {topic}` "
                "shows its permission and queues",
                ExitCode.UNAVAILABLE,
            )
        return f"topic {topic} has no queue that can be used: {error.remark}", ExitCode.UNAVAILABLE
    if options.command == "send":
        return no_topic_to_send_to(topic), ExitCode.UNAVAILABLE
    near = nearest(topic, await _topics(options))
    return (
        f"topic {topic} does not exist{near or '; `pocketmq topics list` shows those there are'}",
        ExitCode.UNAVAILABLE,
    )


def no_topic_to_send_to(topic: str) -> str:
    """Return the text for a send to a topic that does not exist and is not created."""
    return (
        f"topic {topic} does not exist, and no broker creates topics by itself: "
        f"`pocketmq topics create {topic}` creates it; a broker with autoCreateTopicEnable=true "
        "creates topics with their first message"
    )


async def _no_group(options: argparse.Namespace) -> tuple[str, ExitCode]:
    groups = await _asked(options, lambda admin: admin.groups())
    hint = nearest(options.group, groups or ())
    return no_such_group(options.group, hint), ExitCode.UNAVAILABLE


def no_such_group(group: str, hint: str) -> str:
    """The text for a consumer group that no broker knows."""
    return (
        f"consumer group {group} does not exist"
        f"{hint or '; `pocketmq groups list` shows those there are'}"
    )


async def _no_broker(error: RemotingError, options: argparse.Namespace) -> tuple[str, ExitCode]:
    brokers = await _brokers(options)
    if brokers is not None and not brokers:
        return _NO_BROKERS.format(options.namesrv), ExitCode.UNAVAILABLE
    if brokers is None or not error.broker:
        return error.remark, ExitCode.UNAVAILABLE
    return (
        f"there is no broker {error.broker}; the brokers are: {', '.join(sorted(brokers))}",
        ExitCode.UNAVAILABLE,
    )


_NO_BROKERS = (
    "no broker is registered with the name server {0}; one that has just been started registers "
    "within a few seconds, and `pocketmq broker -n {0}` starts one"
)


def _name_servers(options: argparse.Namespace) -> list[str]:
    try:
        return parse_addresses(options.namesrv)
    except RemotingError:  # the URL of a list
        return []


async def _brokers(options: argparse.Namespace) -> Iterable[str] | None:
    """Return the names of the registered brokers; None if the name server cannot be asked."""
    return await _asked(options, _broker_names)


async def _broker_names(admin: Admin) -> Iterable[str]:
    return (await admin.cluster_info()).broker_addr_table


async def _groups_without_master(admin: Admin) -> Iterable[str]:
    table = (await admin.cluster_info()).broker_addr_table
    return [name for name, data in table.items() if MASTER_ID not in data.broker_addrs]


async def _topics(options: argparse.Namespace) -> Iterable[str]:
    return await _asked(options, lambda admin: admin.topics()) or ()


async def _asked(
    options: argparse.Namespace, ask: Callable[[Admin], Awaitable[Iterable[str]]]
) -> Iterable[str] | None:
    try:
        async with (
            asyncio.timeout(_TIMEOUT),
            Admin(namesrv=options.namesrv, **connection_of(options)) as admin,
        ):
            return await ask(admin)
    except (RemotingError, TimeoutError):
        return None
