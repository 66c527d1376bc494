"""Listening on a TCP port: every interface, and errors in plain words."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

BACKLOG: Final = 4096
"""Connections that the kernel keeps until they are accepted; it has a limit of its own. Above it,
clients wait for seconds, even if another client opens the thousand connections."""

AT_ONCE: Final = 16
"""The most connections that are accepted in one turn of the event loop. Four thousand take more
than 100 ms. uvloop accepts one in a turn."""


class CannotListen(OSError):
    """The server cannot listen on its address; the text says which and why."""


class PortInUse(CannotListen):
    """Another process, or another server of this one, listens on the port already."""


@contextlib.contextmanager
def in_plain_words(name: str, host: str, port: int, setting: str = "") -> Iterator[None]:
    """Raise PortInUse or CannotListen for what fails in here.

    `name` says what listens: "broker", "name server". `setting` is the port's name for users, if it
    has one.
    """
    address = f"{host}:{port}"
    try:
        yield
    except UnicodeError as error:
        raise CannotListen(
            f"the {name} cannot listen on {address}: it is not a host name: {error}"
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"the {name} cannot listen on {address}: the port is in use by another process; "
                f"stop that one or choose another port{setting and f' ({setting})'}"
            ) from None
        raise CannotListen(
            f"the {name} cannot listen on {address}: {error.strerror or error}"
        ) from None


async def listen(
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    name: str,
    setting: str = "",
) -> asyncio.Server:
    """Accept connections; port 0 takes a free one. `name` and `setting` as in `in_plain_words`,
    which says what this raises."""
    with in_plain_words(name, host, port, setting):
        if host != "::" or not socket.has_dualstack_ipv6():
            return await _serve_few(protocol, host, port)
        # Every interface, as in Java; event loops would leave out those of IPv4.
        listening = socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
        return await _serve_few(protocol, sock=listening)


async def _serve_few(
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str | None = None,
    port: int | None = None,
    **options: Any,
) -> asyncio.Server:
    # asyncio accepts as many connections in a turn as it says the kernel may keep.
    server = await serve(protocol, host, port, backlog=AT_ONCE, **options)
    for each in server.sockets:
        if each.fileno() >= 0:  # else it is simulated
            with socket.socket(fileno=os.dup(each.fileno())) as listening:
                listening.listen(BACKLOG)
    return server


async def serve(
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str | None = None,
    port: int | None = None,
    **options: Any,
) -> asyncio.Server:
    """Like the event loop's `create_server`, which goes on listening if it is cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, host, port, start_serving=False, **options)
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise
    return server
