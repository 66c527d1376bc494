"""`pocketmq completion`: the completion script for bash, zsh, or fish.

The scripts are generated from the parsers and need nothing else, so pressing Tab does not start
Python.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import NamedTuple

from pocketmq.cli.command_parser import CommandParser, Subparsers, subcommands


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "completion",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Prints the shell script that completes commands, options, and values.",
        epilog="""\
bash, in ~/.bashrc:  source <(pocketmq completion bash)
zsh, in ~/.zshrc:    source <(pocketmq completion zsh)
fish:                pocketmq completion fish > ~/.config/fish/completions/pocketmq.fish""",
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS), metavar="bash|zsh|fish")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from pocketmq.cli import GROUPS, command_line

    helps = {name: text for group in GROUPS.values() for name, text in group.commands.items()}
    sys.stdout.write(_SCRIPTS[options.shell](_places(command_line(), helps)))
    return 0


class Word(NamedTuple):
    """A word to type, and its meaning."""

    text: str
    help: str


class Option(NamedTuple):
    """An option: its spellings, the values to choose from, and whether it takes a file or none."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...]
    takes_value: bool
    takes_file: bool


class Place(NamedTuple):
    """A command with its sub-command, and what may follow it: words, options, or files."""

    path: tuple[str, ...]
    words: tuple[Word, ...]
    options: tuple[Option, ...]


#: Names of values that are files or directories.
_FILES = frozenset({"FILE", "DIR"})


def _places(parser: argparse.ArgumentParser, helps: dict[str, str]) -> list[Place]:
    """Every command and sub-command; `helps` are the texts of the commands."""
    places = []

    def visit(path: tuple[str, ...], parser: argparse.ArgumentParser) -> None:
        inner = subcommands(parser)
        words = [Word(name, _help(parser, name) if path else helps.get(name, "")) for name in inner]
        options = []
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            if action.option_strings:
                options.append(_option(action))
            elif action.choices is not None:
                words += [Word(str(choice), "") for choice in action.choices]
        places.append(Place(path, tuple(words), tuple(options)))
        for name, each in inner.items():
            visit((*path, name), each)

    visit((), parser)
    return places


def _help(parser: argparse.ArgumentParser, name: str) -> str:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                if choice.dest == name:
                    return choice.help or ""
    return ""


def _option(action: argparse.Action) -> Option:
    takes_value = action.nargs != 0
    values = tuple(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if not values and action.dest in ("start", "to"):
        values = ("begin", "end")
    return Option(
        tuple(action.option_strings),
        (action.help or "").partition(";")[0].partition(" (")[0],
        values,
        takes_value,
        metavar in _FILES,
    )


def _bash(places: list[Place]) -> str:
    words = "\n".join(
        f"        {shlex.quote(' '.join(place.path))}) choices={shlex.quote(_all_words(place))} ;;"
        for place in places
    )
    values: dict[str, str] = {}
    for place in places:
        for option in place.options:
            if option.takes_value:
                key = "|".join(shlex.quote(" ".join((*place.path, name))) for name in option.names)
                if option.takes_file:
                    values[key] = 'COMPREPLY=($(compgen -f -- "$current"))'
                else:
                    chosen = shlex.quote(" ".join(option.values))
                    values[key] = f'COMPREPLY=($(compgen -W {chosen} -- "$current"))'
    replies = "\n".join(f"        {key}) {reply}; return ;;" for key, reply in values.items())
    parents = "|".join(shlex.quote(" ".join(p.path)) for p in places if _is_parent(p, places))
    return f"""\
# bash completion for pocketmq; written by `pocketmq completion bash`
_pocketmq() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" place="" word choices
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$place" in
        {parents}) [[ $word != -* ]] && place="${{place:+$place }}$word" ;;
        esac
    done
    local before="${{COMP_WORDS[COMP_CWORD-1]}}"
    case "${{place:+$place }}$before" in
{replies}
    esac
    case "$place" in
{words}
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
}}
complete -o default -F _pocketmq pocketmq
"""


def _is_parent(place: Place, places: list[Place]) -> bool:
    """Return whether the place has sub-commands."""
    return any(other.path[:-1] == place.path for other in places if other.path)


def _all_words(place: Place) -> str:
    options = (name for option in place.options for name in option.names)
    return " ".join([*(word.text for word in place.words), *options])


def _zsh(places: list[Place]) -> str:
    return f"""\
# zsh completion for pocketmq; written by `pocketmq completion zsh`
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
{_bash(places).partition(chr(10))[2]}"""


def _fish(places: list[Place]) -> str:
    lines = [
        "# fish completion for pocketmq; written by `pocketmq completion fish`",
        "complete -c pocketmq -f",
    ]
    for place in places:
        inner = [other.path[-1] for other in places if other.path and other.path[:-1] == place.path]
        conditions = [f"__fish_seen_subcommand_from {word}" for word in place.path]
        if inner:
            conditions.append(f"not __fish_seen_subcommand_from {' '.join(inner)}")
        condition = f"-n {shlex.quote('; and '.join(conditions))} " if conditions else ""
        lines += [
            f"complete -c pocketmq {condition}-a {shlex.quote(word.text)}"
            + (f" -d {shlex.quote(word.help)}" if word.help else "")
            for word in place.words
        ]
        for option in place.options:
            parts = [f"complete -c pocketmq {condition.rstrip()}"]
            parts += [
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            ]
            if option.takes_file:
                parts.append("-r -F")
            elif option.takes_value:
                parts.append("-x")
                if option.values:
                    parts.append(f"-a {shlex.quote(' '.join(option.values))}")
            if option.help:
                parts.append(f"-d {shlex.quote(option.help)}")
            lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
