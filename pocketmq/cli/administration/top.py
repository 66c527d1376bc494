"""`pocketmq top`: brokers, topics and groups with their rates, again and again."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pocketmq.cli.administration.cluster_command import add_action, run_action
from pocketmq.cli.administration.status import broker_rows, shown_broker
from pocketmq.cli.administration.traffic import group_rows, topic_rows
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import count, duration
from pocketmq.cli.output import on_terminal, print_json, print_table, rich_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.traffic import look
from pocketmq.dashboard.wording import short_time

#: Seconds between two samples; with fewer, the sampling itself would dominate the result.
_SHORTEST = 0.1

#: Rows by kind.
View: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "top",
        description="Shows the brokers with messages in and out per second (their own count, over "
        "10 s), the topics that get most messages, and the groups with the largest lag, with "
        "their time to catch up at these rates (empty if the lag does not shrink). On a terminal "
        "the view is refreshed until Ctrl-C. Each refresh reads offsets with one request to the "
        "brokers for every topic and group.",
    )
    parser.add_argument(
        "--interval", type=duration, default=2.0, metavar="TIME",
        help="time between refreshes, such as 5s (default 2s, at least 100ms)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one view after one interval")
    parser.add_argument(
        "--count", type=count, default=10, metavar="N",
        help="number of topics and groups shown (default 10)",
    )  # fmt: skip
    add_action(parser, _top, json=True)
    return parser


run = run_action


async def _top(admin: Admin, options: argparse.Namespace) -> None:
    before = await look(admin)
    with _screen(options) as show:
        while True:
            await asyncio.sleep(max(options.interval, _SHORTEST))
            now = await look(admin)
            show(
                {
                    "brokers": await broker_rows(admin),
                    "topics": topic_rows(before, now)[: options.count],
                    "groups": group_rows(before, now)[: options.count],
                }
            )
            if options.once:
                return
            before = now


@contextlib.contextmanager
def _screen(options: argparse.Namespace) -> Iterator[Callable[[View], None]]:
    """Return how to show a view: as JSON, as text below the previous one, or in its place."""
    if options.json:
        yield print_json
        return
    try:
        from rich.console import Group
        from rich.live import Live
    except ImportError:  # not in a base install
        yield _print
        return
    if options.once or not on_terminal():
        yield _print
        return
    with Live(screen=True, auto_refresh=False) as live:
        yield lambda view: live.update(
            Group(*(part for rows in _shown(view) for part in (rich_table(rows), ""))),
            refresh=True,
        )


def _print(view: View) -> None:
    for rows in _shown(view):
        print_table(rows)
        print(flush=True)


def _shown(view: View) -> list[list[dict[str, Any]]]:
    """Return the tables for people, without the empty ones."""
    topics = [
        {"topic": row["topic"], "in/s": row["inPerSecond"], "end": row["end"]}
        for row in view["topics"]
    ]
    groups = [
        {
            "group": row["group"],
            "lag": row["lag"],
            "in/s": row["inPerSecond"],
            "out/s": row["outPerSecond"],
            "catch up": short_time(row["secondsToCatchUp"]),
        }
        for row in view["groups"]
    ]
    tables = (list(map(shown_broker, view["brokers"])), topics, groups)
    return [rows for rows in tables if rows]
