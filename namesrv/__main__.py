"""``python -m namesrv``: a name server as a process."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from namesrv.config import NamesrvConfig, load_namesrv_config
from namesrv.kv_config import KVConfigError
from namesrv.server import NameServer
from remoting.properties_file import ConfigError
from remoting.service import ExitCode, run

log = logging.getLogger("namesrv")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGINT or SIGTERM; the exit code."""
    parser = argparse.ArgumentParser(prog="namesrv", description="A RocketMQ name server.")
    parser.add_argument(
        "-c", "--config", type=Path, metavar="namesrv.conf", help="settings, as the official file"
    )
    parser.add_argument("--listen-port", type=int, metavar="PORT", help="default 9876")
    parser.add_argument("--bind", metavar="HOST", help="address to listen on, default 127.0.0.1")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return run(lambda stop: _serve(options, stop), exit_codes={KVConfigError: ExitCode.CONFIG})


async def _serve(options: argparse.Namespace, stop: asyncio.Event) -> None:
    started = asyncio.get_running_loop().time()
    config = _config(options.config)
    if options.listen_port is not None:
        config.listen_port = options.listen_port
    if options.bind is not None:
        config.bind_address = options.bind
    async with NameServer(config) as server:
        taken = asyncio.get_running_loop().time() - started
        print(
            f"name server listening on {server.address}, KV config {config.kv_config_path}, "
            f"started in {taken:.2f} s",
            flush=True,
        )
        await stop.wait()


def _config(path: Path | None) -> NamesrvConfig:
    if path is None:
        return NamesrvConfig()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("-c", str(path), f"a readable file ({error})") from None
    config, warnings = load_namesrv_config(text)
    for warning in warnings:
        log.warning("%s: %s", path, warning)
    # As with the official name server, changed settings go back to the file they came from.
    config.config_store_path = str(path)
    return config


if __name__ == "__main__":
    sys.exit(main())
