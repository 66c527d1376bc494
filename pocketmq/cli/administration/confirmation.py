"""Asks for confirmation before an action that cannot be undone."""

from __future__ import annotations

import sys

from pocketmq.cli.administration.cluster_command import CommandError
from pocketmq.remoting.serving.service import ExitCode


def confirm(question: str, yes: bool) -> None:
    """Return when the user has confirmed, or has given `--yes`.

    Raises:
        CommandError: the user declined, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            "nobody can be asked here: repeat the command with --yes", ExitCode.USAGE
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")
