"""``python -m broker``: a broker as a process.

Prints one line when it listens, stops on SIGINT or SIGTERM, and exits with a code of
`remoting.service.ExitCode`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.broker import Broker
from broker.config import BrokerConfig, load_broker_config
from remoting.properties_file import ConfigError
from remoting.service import ExitCode, run
from store.config_file import ConfigFileError
from store.errors import DiskFull, FileSizeMismatch, StoreCorrupt, StoreLocked

log = logging.getLogger("broker")

EXIT_CODES: Final = {
    StoreLocked: ExitCode.STORE_LOCKED,
    StoreCorrupt: ExitCode.STORE_CORRUPT,
    ConfigFileError: ExitCode.STORE_CORRUPT,
    FileSizeMismatch: ExitCode.CONFIG,
    DiskFull: ExitCode.UNAVAILABLE,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run the broker to its end, return the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        config, warnings = _configuration(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    for warning in warnings:
        log.warning("%s", warning)
    return run(lambda stop: serve(config, stop), exit_codes=EXIT_CODES)


async def serve(config: BrokerConfig, stop: asyncio.Event) -> None:
    """A broker from its start until `stop` is set."""
    begin = time.perf_counter()
    async with Broker(config) as broker:
        known_at = ", ".join(config.name_servers) or "no name server"
        print(
            f"broker {config.broker_name} listening on {broker.address}, store {config.root}, "
            f"{known_at}, started in {time.perf_counter() - begin:.2f} s",
            flush=True,
        )
        await stop.wait()


def _configuration(options: argparse.Namespace) -> tuple[BrokerConfig, list[str]]:
    """The configuration file, with what the command line says over it."""
    text = ""
    if options.config is not None:
        try:
            text = options.config.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError("-c", str(options.config), error.strerror or str(error)) from None
    config, warnings = load_broker_config(text)
    if options.namesrv is not None:
        config.namesrv_addr = options.namesrv
    if options.store is not None:
        config.store_path_root_dir = str(options.store)
        config.store_path_commit_log = ""
    if options.listen_port is not None:
        config.listen_port = options.listen_port
    if options.bind is not None:
        config.bind_address = options.bind
    return config, warnings


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise ValueError(text)
    return port


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="broker", description="A RocketMQ broker.")
    parser.add_argument("-c", "--config", type=Path, help="a broker.conf, as the official one's")
    parser.add_argument("-n", "--namesrv", help="name servers: host:port;host:port")
    parser.add_argument("--store", type=Path, help="the store's directory (storePathRootDir)")
    parser.add_argument("--listen-port", type=_port, help="default 10911; 0: any free port")
    parser.add_argument("--bind", help="the address to bind; default 127.0.0.1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
