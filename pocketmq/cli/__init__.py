"""The command line: `pocketmq COMMAND ...`, also `python -m pocketmq COMMAND ...`.

One module per command, each with `add_parser(subparsers)` and `run(options) -> int`, which returns
the exit code (pocketmq.remoting.serving.service.ExitCode). Only the module of the given command is
imported, and a command imports its heavy dependencies (Spark, rich, the store) when it runs. So a
broker starts in a fraction of a second, and commands that need no store work on Windows.

Data for programs (messages, rows) goes to stdout; progress, counts and errors go to stderr. A
server prints one line to stdout, when it listens.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final, NamedTuple

from pocketmq._extras import MissingExtra, require
from pocketmq.cli.command_parser import CommandParser, leaves, nearest
from pocketmq.cli.standard_files import READER_GONE, discard_output, open_standard_files
from pocketmq.cli.version import version
from pocketmq.limited_log import printable
from pocketmq.remoting.serving.service import ExitCode


class Group(NamedTuple):
    """Commands of one kind: the package of their modules, and the line of each in
    `pocketmq --help`."""

    package: str
    commands: Mapping[str, str]


#: The commands by what they are for.
GROUPS: Final[Mapping[str, Group]] = {
    "Servers": Group(
        "pocketmq.cli.servers",
        {
            "serve": "run a name server and a broker in one process",
            "broker": "run a broker",
            "namesrv": "run a name server",
            "proxy": "serve RocketMQ 5's own clients (gRPC) in front of brokers",
        },
    ),
    "Messages": Group(
        "pocketmq.cli.messages",
        {
            "send": "send messages: from the command line, files, or standard input",
            "pull": "print the messages of a topic",
            "message": "look up single messages by key, id, or place",
            "dlq": "list dead letters, and send them again",
        },
    ),
    "Administration": Group(
        "pocketmq.cli.administration",
        {
            "status": "show the brokers with their versions, rates, and disks",
            "cluster": "show each cluster in one row",
            "brokers": "drain a broker, or let producers choose it again",
            "clients": "list the producers and consumers that are connected",
            "top": "watch the rates of brokers and topics, and the lag of groups",
            "topics": "list, show, create, and delete topics",
            "groups": "list, show, create, and delete consumer groups",
            "lag": "show how far a consumer group is behind",
            "reset": "move a consumer group to another place",
            "config": "show and change settings of running servers",
            "auth": "take over users and access lists of official brokers",
            "dashboard": "serve a web page about a cluster",
        },
    ),
    "Stored files": Group(
        "pocketmq.cli.stored",
        {
            "store": "look for damage in a store, and mend it",
            "export": "write the messages of a store to a Parquet file",
            "sync": "archive a store in S3 or another place, bit by bit",
            "query": "run Spark SQL over the messages of a store",
            "spark-pack": "write pocketmq to a file for spark-submit",
        },
    ),
    "More": Group(
        "pocketmq.cli",
        {
            "demo": "see it all work: send, kill a broker, pull, Spark SQL",
            "completion": "print the completion script for your shell",
        },
    ),
}

COMMANDS: Final = tuple(command for group in GROUPS.values() for command in group.commands)

#: The extras of pyproject.toml that a command needs to run; its `--help` works without them.
EXTRAS: Final = {
    "broker": "server",
    "serve": "server",
    "proxy": "proxy",
    "store": "server",
    "export": "arrow",
    "sync": "arrow",
    "query": "spark",
    "demo": "demo",
    "dashboard": "dashboard",
}


#: The changes that admins make on a server: logged even without --verbose.
AUDIT_LOG: Final = "pocketmq.audit"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` defaults to the process's own."""
    open_standard_files()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell reports it
    except BrokenPipeError:
        discard_output()
        return READER_GONE


def _run(arguments: Sequence[str]) -> int:
    named = next((word for word in arguments if not word.startswith("-")), None)
    try:
        parser = command_line(() if named is None else (named,))
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        # argparse exits with 0 after --help and --version, and with 2 after printing a usage error.
        return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
    _configure_log(verbose=options.verbose, as_json=options.log_format == "json")
    command = options.command
    if command in EXTRAS:
        try:
            require(EXTRAS[command], f"pocketmq {command}")
        except MissingExtra as error:
            print(f"error: {error}", file=sys.stderr)
            return ExitCode.UNAVAILABLE
    return int(options.run(options))


def _configure_log(*, verbose: bool, as_json: bool) -> None:
    """Write log lines to stderr: warnings, and the changes that admins make."""
    formatter: logging.Formatter = _LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    if as_json:
        from pocketmq.cli.json_log import JsonFormatter

        formatter = JsonFormatter()
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    logging.getLogger(AUDIT_LOG).setLevel(logging.INFO)


class _LineFormatter(logging.Formatter):
    """One line for each record but for its traceback: names of files and peers cannot forge one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


class _Version(argparse.Action):
    """Looks for the compiled modules only when the version is printed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version())
        parser.exit()


def command_line(commands: Sequence[str] = COMMANDS) -> CommandParser:
    """The parser of the whole command line, or of some of its `commands`."""
    parser = CommandParser(
        prog="pocketmq",
        usage="pocketmq [--help] [--version] COMMAND ...",
        description="RocketMQ in Python: servers, messages, and administration.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show the version, whether it is compiled, and exit",
    )
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="pocketmq"
    )
    for command in commands:
        if command not in COMMANDS:
            near = nearest(command, COMMANDS)
            parser.error(f"unknown command {command!r}{near or '; see pocketmq --help'}")
        module = _module(command)
        added = module.add_parser(subparsers)
        added.set_defaults(run=module.run)
        for leaf in leaves(added):
            leaf.add_argument("-v", "--verbose", action="store_true", help="log more to stderr")
            leaf.add_argument(
                "--log-format",
                choices=("text", "json"),
                default="text",
                help="format of log lines (default text); json: one object a line",
            )
    return parser


def _module(command: str) -> ModuleType:
    (package,) = (group.package for group in GROUPS.values() if command in group.commands)
    return importlib.import_module(f"{package}.{command.replace('-', '_')}")


def _overview() -> str:
    lines = []
    for title, group in GROUPS.items():
        lines.append(f"{title}:")
        lines += [f"  {command:<12}{text}" for command, text in group.commands.items()]
        lines.append("")
    codes = ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
    lines.append("`pocketmq COMMAND --help` explains a command and its options.")
    lines.append(f"Exit codes: {codes};")
    lines.append("128 + N: stopped by signal N.")
    return "\n".join(lines)
