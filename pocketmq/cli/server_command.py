"""What the commands that run a server share: configuration files, the line, how they end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from pocketmq.cli.standard_files import discard_output
from pocketmq.cli.startup import process_age
from pocketmq.namesrv.kv_config import KVConfigError
from pocketmq.remoting.properties_file import ConfigError, ConfigErrors, Settings
from pocketmq.remoting.service import ExitCode
from pocketmq.remoting.service import run as run_until_stopped

log = logging.getLogger("pocketmq")

T = TypeVar("T")

ExitCodes: TypeAlias = Mapping[type[Exception], ExitCode]

EXIT_CODES: ExitCodes = {KVConfigError: ExitCode.CONFIG}


def store_exit_codes() -> ExitCodes:
    """Those of a command that opens a store."""
    # Not at the top: the store needs modules that Windows has not, other commands do not.
    from pocketmq.store.config_file import ConfigFileError
    from pocketmq.store.errors import DiskFull, FileSizeMismatch, StoreCorrupt, StoreLocked

    return {
        **EXIT_CODES,
        StoreLocked: ExitCode.STORE_LOCKED,
        StoreCorrupt: ExitCode.STORE_CORRUPT,
        ConfigFileError: ExitCode.STORE_CORRUPT,
        FileSizeMismatch: ExitCode.CONFIG,
        DiskFull: ExitCode.UNAVAILABLE,
        OSError: ExitCode.UNAVAILABLE,  # the last: a directory that can not be made or written
    }


def add_config_option(parser: argparse.ArgumentParser, file: str) -> None:
    """`-c FILE`, in the official format."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar=file, help=f"settings, as the official {file} has them"
    )


def read_config(
    load: Callable[..., tuple[T, list[str]]], path: Path | None, *options: Settings
) -> T:
    """Return the settings of the file and the options, later ones winning, else the defaults.

    Each key without effect is a warning in the log.

    Raises:
        ConfigErrors: some values are not allowed.
        ConfigError: the file cannot be read.
    """
    sources = options if path is None else (Settings.of_file(path), *options)
    config, warnings = load(*sources)
    for warning in warnings:
        log.warning("%s", warning)
    return config


def announce(what: str) -> None:
    """The one line of a server that listens: `what`, and the time since its process began.

    A server serves, whatever becomes of its line.
    """
    line = f"{what}, started in {process_age():.2f} s"
    encoding = sys.stdout.encoding
    try:
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        log.warning("%s (not written to stdout: %s)", line, error.strerror)
        discard_output()


def run_server(
    prepare: Callable[[], Callable[[asyncio.Event], Awaitable[None]]],
    exit_codes: ExitCodes = EXIT_CODES,
) -> int:
    """Runs what `prepare` makes of the configuration until a signal; returns the exit code."""
    try:
        main = prepare()
    except ConfigErrors as found:
        for warning in found.warnings:
            log.warning("%s", warning)
        for error in found.errors:
            print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    return run_until_stopped(main, exit_codes=exit_codes)
