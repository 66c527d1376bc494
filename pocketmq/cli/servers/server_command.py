"""Shared by the commands that run a server: settings, the line printed at the start, the stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pocketmq._extras import MissingExtra, require
from pocketmq.auth.settings import ANY_SECRET
from pocketmq.auth.store import AuthFileError
from pocketmq.cli.options import duration, setting
from pocketmq.cli.servers.startup import process_age
from pocketmq.cli.standard_files import discard_output
from pocketmq.cli.version import version
from pocketmq.namesrv.kv_config import KVConfigError
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.remoting.serving.service import run as run_until_stopped
from pocketmq.remoting.settings.exposure import warn_if_readable
from pocketmq.remoting.settings.properties_file import ConfigError, ConfigErrors, Settings
from pocketmq.remoting.tls.tls_config import TlsConfig, load_tls_config

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.embedded import EmbeddedServer

log = logging.getLogger("pocketmq")

T = TypeVar("T")

ExitCodes: TypeAlias = Mapping[type[Exception], ExitCode]

#: `pocketmq broker` in a process that `pocketmq serve --brokers` watches.
STOP_AT_EOF = "--stop-at-eof"

#: Shorter than the 30 s that Kubernetes and container engines wait before they kill.
STOP_SECONDS = 25.0

EXIT_CODES: ExitCodes = {KVConfigError: ExitCode.CONFIG, AuthFileError: ExitCode.CONFIG}


def store_exit_codes() -> ExitCodes:
    """Return the exit codes of a command that opens a store."""
    # Not at the top: the store needs modules that Windows lacks; other commands run there.
    from pocketmq.store.config_file import ConfigFileError
    from pocketmq.store.errors import (
        DiskFull,
        FileSizeMismatch,
        ForeignStore,
        NotADirectory,
        NotAFile,
        StoreCorrupt,
        StoreLocked,
    )

    return {
        **EXIT_CODES,
        StoreLocked: ExitCode.STORE_LOCKED,
        StoreCorrupt: ExitCode.STORE_CORRUPT,
        ConfigFileError: ExitCode.STORE_CORRUPT,
        FileSizeMismatch: ExitCode.CONFIG,
        DiskFull: ExitCode.UNAVAILABLE,
        NotADirectory: ExitCode.UNAVAILABLE,
        NotAFile: ExitCode.UNAVAILABLE,
        ForeignStore: ExitCode.UNAVAILABLE,
        OSError: ExitCode.UNAVAILABLE,  # last: a directory that cannot be made or written
    }


def add_config_options(parser: argparse.ArgumentParser, file: str) -> None:
    """`-c FILE` in the official format, and `--set NAME=VALUE`."""
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help=f"settings, in the format of the official {file}",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting by its official name; overrides the file (repeatable)",
    )


def add_bind_option(parser: argparse.ArgumentParser) -> None:
    """`--bind HOST`."""
    parser.add_argument(
        "--bind", metavar="HOST", help="address to listen on (bindAddress, default 127.0.0.1)"
    )


def add_stop_option(parser: argparse.ArgumentParser) -> None:
    """`--stop-timeout`."""
    parser.add_argument(
        "--stop-timeout",
        type=duration,
        default=STOP_SECONDS,
        metavar="DURATION",
        help="kill the process if it is still running this long after SIGTERM or SIGINT "
        f"(default {STOP_SECONDS:g}s)",
    )


def need_proxy() -> None:
    """Raise ConfigError if a gRPC port is requested but its extra is not installed."""
    try:
        require("proxy", "--grpc-port")
    except MissingExtra as error:
        raise ConfigError("--grpc-port", "", "left out", text=str(error)) from None


def add_repair_option(parser: argparse.ArgumentParser) -> None:
    """`--repair`."""
    parser.add_argument(
        "--repair",
        action="store_true",
        help="repair a damaged store as `pocketmq store repair` does, log which messages are "
        "lost, and start",
    )


@asynccontextmanager
async def started(server: Broker | EmbeddedServer, *, repair: bool) -> AsyncIterator[None]:
    """Run a server; with `repair`, repair its store if that prevents the start."""
    from pocketmq.broker.broker import Broker
    from pocketmq.store.config_file import ConfigFileError
    from pocketmq.store.errors import FileSizeMismatch, StoreCorrupt

    try:
        await server.start()
    except (StoreCorrupt, ConfigFileError, FileSizeMismatch) as error:
        if not repair:
            raise
        broker = server if isinstance(server, Broker) else server.broker
        log.warning("repairing the store: %s", error)
        from pocketmq.store.repair.store_repair import repair_store

        mended = await asyncio.to_thread(repair_store, broker.config)
        for line in mended.lines():
            log.warning("%s", line)
        await server.start()
    try:
        yield
    finally:
        await server.stop()


def given_settings(options: argparse.Namespace) -> list[Settings]:
    """The settings of `-c` and `--set`; the later ones win.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = [] if options.config is None else [Settings.of_file(options.config)]
    return [*file, Settings.of_options(options.settings, "--set")]


def read_config(
    load: Callable[..., tuple[T, list[str]]], options: argparse.Namespace, *more: Settings
) -> T:
    """Return the settings of `-c`, `--set` and `more`, later ones winning, else the defaults.

    Each setting without effect is a warning in the log.

    Raises:
        ConfigErrors: some values are not allowed.
        ConfigError: the file cannot be read.
    """
    config, warnings = load(*given_settings(options), *more)
    for warning in warnings:
        log.warning("%s", warning)
    return config


def read_broker_config(options: argparse.Namespace, *more: Settings) -> BrokerConfig:
    """Return a broker's settings in `-c`, `--set` and `more`, without those of its proxy.

    Raises as `read_config` does.
    """
    from pocketmq.broker.config import load_broker_config
    from pocketmq.proxy.config import without_proxy

    def load(*sources: Settings) -> tuple[BrokerConfig, list[str]]:
        return load_broker_config(*map(without_proxy, sources))

    return read_config(load, options, *more)


def read_tls_config(options: argparse.Namespace) -> TlsConfig:
    """Return the TLS settings in `-c`, `--set` and the separate TLS file.

    Warns as `warn_of_secrets` does, and raises as `read_config` does.
    """
    config = read_config(load_tls_config, options)
    warn_of_secrets(config, options.config, given_settings(options)[0])
    return config


def warn_of_secrets(tls: TlsConfig, path: Path | None, settings: Settings) -> None:
    """Log a warning for each file that may contain a password and is readable by every user: the
    TLS file, and the file of `-c` at `path`, which has `settings`."""
    files = [tls.config_file] if tls.key_password or tls.client_key_password else []
    if path is not None and (files or _has_secret(settings)):
        files.append(str(path))
    warn_if_readable(log, files)


def _has_secret(source: Settings) -> bool:
    return any(setting.key in ANY_SECRET and setting.value for setting in source.settings)


def announce(what: str) -> None:
    """Print the line of a server that listens: `what`, the pocketmq version, and the time since the
    process started."""
    print_line(f"{what}, {version()}, started in {process_age():.2f} s")


def print_line(line: str) -> None:
    """Print a line to stdout; the server continues if that fails."""
    encoding = sys.stdout.encoding
    try:
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        log.warning("%s (not written to stdout: %s)", line, error.strerror)
        discard_output()


def stop_at_end_of_input(stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends, as it does when the parent process ends."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, read)


def run_server(
    prepare: Callable[[], Callable[[asyncio.Event], Awaitable[None]]],
    exit_codes: ExitCodes = EXIT_CODES,
    *,
    stop_seconds: float = STOP_SECONDS,
) -> int:
    """Run the server that `prepare` makes from the configuration until a signal; return the exit
    code.

    The process ends `stop_seconds` after the signal at the latest.
    """
    # Nothing that `prepare` loads is garbage; run_until_stopped enables the collector.
    gc.disable()
    log.info("%s", version())
    try:
        main = prepare()
        return run_until_stopped(main, exit_codes=exit_codes, stop_seconds=stop_seconds)
    except ConfigErrors as found:
        for warning in found.warnings:
            log.warning("%s", warning)
        for error in found.errors:
            print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    except OSError as error:  # of a directory or file that was named
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.UNAVAILABLE
    finally:
        gc.enable()
