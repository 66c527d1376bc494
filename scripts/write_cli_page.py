"""Write docs/cli.md: every command and option, from the parsers.

    python scripts/write_cli_page.py

tests/cli/test_cli_page.py says when it has to be written again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from pocketmq.cli import GROUPS, command_line
from pocketmq.cli.command_parser import leaves, subcommands
from pocketmq.remoting.serving.service import ExitCode

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

HEAD = """\
# The command line

<!-- Written by scripts/write_cli_page.py; change the texts in pocketmq/cli. -->

For operators: every command and option of `pocketmq`, which is also `python -m pocketmq`.
`pocketmq COMMAND --help` prints the same.

- Messages, rows and results go to stdout; progress, counts and errors go to stderr.
- Times are in ISO 8601. A time without a zone, such as `2026-11-21T08:30`, is local;
  `2026-11-21T08:30Z` is UTC.

```sh
pocketmq serve --ephemeral &
pocketmq send orders '{"id": 42}' --tag paid --key o-42
pocketmq pull orders --from -10m --tags 'paid || refunded' --count 5
pocketmq lag billing orders                    # how far the group is behind
pocketmq reset billing orders --to -1h         # let it read the last hour again
pocketmq dlq list billing && pocketmq dlq resend billing
pocketmq config set recallMessageEnable=true   # on every broker, at once
pocketmq brokers drain broker-a                # producers use the others, also after a restart
pocketmq export orders.parquet --store ./store --topic orders
source <(pocketmq completion bash)
```
"""

#: Options of many commands, which the page explains once.
_EVERY = ("--verbose", "--log-format")
_CONNECTION = (
    "--namesrv",
    "--credentials",
    "--tls",
    "--tls-ca",
    "--tls-cert",
    "--tls-key",
    "--tls-insecure",
    "--timeout",
)

EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.FAILURE: "something failed, or a message was not sent or not found",
    ExitCode.USAGE: "wrong options or arguments",
    ExitCode.CONFIG: "a setting is unknown or refused, or the settings file cannot be read",
    ExitCode.PORT_IN_USE: "the port is taken",
    ExitCode.STORE_LOCKED: "another process has the store open",
    ExitCode.STORE_CORRUPT: "the store is damaged",
    ExitCode.UNAVAILABLE: "no server answers; the topic, group, broker, cluster or store does "
    "not exist; or a package is not installed. Of servers: the disk is full, or a directory or "
    "address cannot be used",
}


def page() -> str:
    """The text of docs/cli.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    commands = subcommands(command_line())
    for title, group in GROUPS.items():
        yield f"- {title}: " + ", ".join(f"[{name}](#pocketmq-{name})" for name in group.commands)
    yield "\n## Common options\n\nEvery command takes:"
    yield from _table(_named(_model(), _EVERY))
    yield "\n### Connection options\n\nCommands that talk to a cluster take:"
    yield from _table(_named(_model(), _CONNECTION))
    for title, group in GROUPS.items():
        yield f"\n## {title}"
        for name in group.commands:
            yield f"\n### pocketmq {name}\n"
            parser = commands[name]
            yield parser.description or ""
            inner = list(leaves(parser))
            for leaf in inner:
                if leaf is not parser:
                    yield f"\n#### {leaf.prog}\n\n{leaf.description}"
                yield from _usage(leaf)
    yield "\n## Exit codes\n\n| code | |\n|---|---|"
    yield from (f"| {code.value} | {text} |" for code, text in EXIT_CODES.items())
    yield (
        "| 128 + N | stopped by signal N; 141: the reader of the output closed it, as `head` does "
        "(`pull`, `query` and `store dump` then end with 0) |"
    )


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The form of a command, and a table of what it takes."""
    actions = [a for a in parser._actions if a.dest != "help" and not _is_one_of(a, _EVERY)]
    words = [_argument(action) for action in actions if not action.option_strings]
    needed = [f"{_names(a)[0]} {_value(a)}" for a in actions if a.option_strings and a.required]
    rest = ["[options]"] * any(a.option_strings and not a.required for a in actions)
    yield "\n```sh\n" + " ".join([parser.prog, *words, *needed, *rest]) + "\n```"
    shared = {(*a.option_strings, a.help) for a in _named(_model(), _CONNECTION)}
    told = [a for a in actions if a.help and (*a.option_strings, a.help) not in shared]
    if told:
        yield from _table(told)
    # A server has another --namesrv, and no --credentials.
    if _named(parser, ("--credentials",)):
        yield "\nAlso takes the [connection options](#connection-options)."
    if parser.epilog:
        more = parser.epilog.rstrip()
        yield f"\n```\n{more}\n```" if "\n" in more else f"\n{more}"


@cache
def _model() -> argparse.ArgumentParser:
    """A command that has all common options."""
    return subcommands(command_line(("status",)))["status"]


def _named(parser: argparse.ArgumentParser, names: Sequence[str]) -> list[argparse.Action]:
    return [action for action in parser._actions if _is_one_of(action, names)]


def _is_one_of(action: argparse.Action, names: Sequence[str]) -> bool:
    return not {*names}.isdisjoint(action.option_strings)


def _table(actions: Iterable[argparse.Action]) -> Iterator[str]:
    yield "\n| | |\n|---|---|"
    for action in actions:
        text = str(action.help).replace("|", "\\|")
        yield f"| {_spelling(action)} | {text} |"


def _spelling(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_value(action)}`"
    value = f" {_value(action)}" if action.nargs != 0 else ""
    names = ", ".join(f"`{name}`" for name in _names(action)[:-1])
    last = f"`{_names(action)[-1]}{value}`".replace("|", "\\|")
    return f"{names}, {last}" if names else last


def _names(action: argparse.Action) -> list[str]:
    return list(action.option_strings)


def _argument(action: argparse.Action) -> str:
    form = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}.get(str(action.nargs), "{}")
    return form.format(_value(action))


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
