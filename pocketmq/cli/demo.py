"""`pocketmq demo`: the main use case from end to end, with real records."""

from __future__ import annotations

import argparse
import logging

from pocketmq.cli.command_parser import CommandParser, Subparsers


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command has no options of its own."""
    return subparsers.add_parser(
        "demo",
        description="Starts a name server and two brokers, sends 50 thousand real records while "
        "one broker is killed, pulls them all, and queries the stored files with Spark. Takes "
        "about a minute and leaves no files.",
    )


def run(options: argparse.Namespace) -> int:
    """Plays the demo; 0 when every acknowledged message was pulled and Spark agrees."""
    if not options.verbose:
        # Clients warn about the broker that is killed; the demo reports that itself.
        logging.getLogger().setLevel(logging.ERROR)
    from rich.console import Console

    from pocketmq.demo import story

    return story.run(Console())
