"""Warnings of servers and secrets that are exposed more widely than operators may think."""

from __future__ import annotations

import ipaddress
import logging
import os
import stat
from collections.abc import Iterable


def warn_if_exposed(log: logging.Logger, name: str, host: str) -> None:
    """Log one warning if a server without authentication listens beyond this machine.

    Args:
        name: what the server is: "broker", "name server".
        host: the address it binds.
    """
    if not is_loopback(host):
        log.warning(
            "the %s listens on %s without authentication: everybody who reaches the port can read, "
            "write and delete; bind to 127.0.0.1 (bindAddress, --bind), set authenticationEnabled "
            "and authorizationEnabled (docs/security.md), or let a firewall or "
            "tls.server.need.client.auth=require keep strangers out",
            name,
            host or "every interface",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address; of names, only localhost counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def warn_if_readable(log: logging.Logger, paths: Iterable[str]) -> None:
    """Log a warning for each file with secrets that every user of this machine may read."""
    for path in dict.fromkeys(paths):
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue  # the file's reader reports it
        if mode & stat.S_IROTH:
            log.warning("%s holds a secret and every user may read it: chmod o-r %s", path, path)
