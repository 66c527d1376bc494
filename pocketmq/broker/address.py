"""The port that a broker listens on, and the numeric address given to clients."""

from __future__ import annotations

import asyncio
import logging
import socket

from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.serving.listening import CannotListen

log = logging.getLogger(__name__)


def reserve_port(host: str) -> socket.socket:
    """Return a socket bound to a free port of `host`.

    The socket does not listen. While it is open, the system gives the port to no other process, but
    a server socket with SO_REUSEADDR, such as asyncio's, can be bound to it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, 0))
    return reserved


async def resolve_advertised(config: BrokerConfig) -> str:
    """Return the numeric address given to clients; message ids contain it.

    Raises CannotListen for a name without an address. Warns if clients cannot connect to it.
    """
    told = await _resolve(config.advertised_host)
    if _loopback(config.bind_address) and not _loopback(told):
        log.warning(
            "brokerIP1 sends clients to %s, but the broker listens on loopback only: set "
            "bindAddress, for example to 0.0.0.0",
            config.advertised_host,
        )
    return told


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


async def _resolve(host: str) -> str:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CannotListen(f"brokerIP1 {host} cannot be resolved: {error.strerror}") from None
    # IPv4 first: every client can parse message ids that contain it.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
