"""The command line: `pocketmq COMMAND ...`, also `python -m pocketmq COMMAND ...`.

One module per command, each with `add_parser(subparsers)` and `run(arguments) -> int`, which
returns the exit code (remoting.service.ExitCode). Only the module of the command that was asked
for is imported, and a command imports its heavy parts (Spark, rich, the store) when it runs, so
that a broker starts in a fraction of a second, and on Windows what needs no store works.

What a program reads (messages, rows) goes to stdout; progress, counts and errors go to stderr. A
server prints the one line that says it listens to stdout.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence

from pocketmq._extras import MissingExtra, require
from pocketmq._version import __version__
from pocketmq.cli.standard_files import open_standard_files
from pocketmq.remoting.service import ExitCode

COMMANDS = ("namesrv", "broker", "serve", "send", "pull", "query", "demo")

#: The extras of pyproject.toml without which a command cannot do its work, only tell its options.
EXTRAS = {"broker": "server", "serve": "server", "query": "spark", "demo": "demo"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; `argv` defaults to the process's own."""
    open_standard_files()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell reports it


def _run(arguments: Sequence[str]) -> int:
    try:
        options = _parser(arguments).parse_args(arguments)
    except SystemExit as stop:
        # argparse ends --help and --version with 0 and a usage error with 2, having said why.
        return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    command = options.command
    if command in EXTRAS:
        try:
            require(EXTRAS[command], f"pocketmq {command}")
        except MissingExtra as error:
            print(f"error: {error}", file=sys.stderr)
            return ExitCode.UNAVAILABLE
    return int(options.run(options))


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pocketmq",
        description="RocketMQ in Python: name server, broker and client in one package, and Spark "
        "SQL over the stored messages.",
        epilog="`pocketmq COMMAND --help` tells the options of a command. Exit codes: "
        + ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
        + ", 128+N stopped by signal N.",
    )
    parser.add_argument("--version", action="version", version=f"pocketmq {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((word for word in arguments if not word.startswith("-")), None)
    for command in (named,) if named in COMMANDS else COMMANDS:
        module = importlib.import_module(f"pocketmq.cli.{command}")
        subparser = module.add_parser(subparsers)
        subparser.add_argument(
            "-v", "--verbose", action="store_true", help="log what happens, to stderr"
        )
        subparser.set_defaults(run=module.run, command=command)
    return parser
