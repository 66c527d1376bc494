"""The parser of every command: argparse, but an error shows the usage of that command."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

#: The argument of a command's `add_parser`.
Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"

#: A value that begins with a minus, such as the -10m of `--from -10m`.
_AGO = re.compile(r"-\d+[a-z]+", re.IGNORECASE)
_LONG_OPTION = re.compile(r"--[a-z][a-z-]*")


class CommandParser(argparse.ArgumentParser):
    """A parser of the command line, or of one command.

    Options cannot be abbreviated, so that a script does not break when an option is added.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse, but unknown arguments are an error of this command, not of `pocketmq`."""
        found, unknown = super().parse_known_args(_joined(args or ()), namespace)
        if unknown and (rest := self._rest()) is not None and _are_words(unknown):
            # argparse takes positional arguments only from the first place where they occur.
            words = [word for word in unknown if word != "--"]
            setattr(found, rest, [*getattr(found, rest), *words])
        elif unknown:
            self.error(self._unknown(unknown))
        return found, []

    def _rest(self) -> str | None:
        """Return the name of the positional argument that takes any number of values."""
        return next((action.dest for action in self._actions if action.nargs == "*"), None)

    def _unknown(self, words: Sequence[str]) -> str:
        word = words[0].partition("=")[0]
        if word.startswith("-"):
            return f"unknown option {word}{nearest(word, self._option_string_actions)}"
        return f"unexpected argument {word!r}"


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser itself, or those of its sub-commands, in the order in which they were added."""
    inner = subcommands(parser)
    if not inner:
        yield parser
    for each in inner.values():
        yield from leaves(each)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the sub-commands by name, without aliases; empty if there are none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            first: dict[argparse.ArgumentParser, str] = {}
            for name, each in action.choices.items():
                first.setdefault(each, name)
            return {name: each for each, name in first.items()}
    return {}


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ", did you mean X?" if one of the names is close, else nothing."""
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f", did you mean {by_lower[close[0]]}?" if close else ""


def _are_words(arguments: Sequence[str]) -> bool:
    """Return whether none of them looks like an option; anything after `--` does not."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return not any(word.startswith("-") and len(word) > 1 for word in words)


def _joined(arguments: Sequence[str]) -> list[str]:
    """Rewrite `--from -10m` as `--from=-10m`: argparse takes -10m for another option."""
    joined: list[str] = []
    for word in arguments:
        if joined and _AGO.fullmatch(word) and _LONG_OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
