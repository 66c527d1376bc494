"""The list of name server addresses, and its sources.

| `namesrv` | the list |
|---|---|
| "host:port;host:port", or a sequence | as given |
| None or "" | from the environment's NAMESRV_ADDR, in any of these forms |
| "http://server:8080/rocketmq/nsaddr" | fetched from an address server |
| "file:///etc/rocketmq/nsaddr" | read from the file |

A list at a URL is one line of the first form. It is fetched again every two minutes; if that fails,
the last one stays in use. Reference: DefaultTopAddressing, MQClientInstance.fetchNameServerAddr.
"""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPException

from pocketmq.client.errors import InvalidName, NoNameServer
from pocketmq.client.log_fields import fields
from pocketmq.client.parameters import shown, texts
from pocketmq.remoting.connection import split_address

log = logging.getLogger(__name__)

#: The environment variable that mqadmin and the images of RocketMQ use.
NAMESRV_ADDR = "NAMESRV_ADDR"

#: Seconds between two fetches of a list.
REFRESH_PERIOD = 120.0
#: Timeout of one fetch, seconds.
FETCH_TIMEOUT = 3.0
#: The largest list, bytes.
MAX_LIST = 64 * 1024

_SCHEMES = ("http://", "https://", "file://")


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """Split `"host:port;host:port"` (or commas), or check a list of addresses; drop duplicates.

    Raises InvalidName for one that is not `host:port`, NoNameServer if there is none.
    """
    given = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else addresses
    result: list[str] = []
    for part in (part.strip() for part in given):
        if not part:
            continue
        try:
            split_address(part)
        except ValueError as error:
            raise InvalidName(f"name server: {error}") from None
        if part not in result:
            result.append(part)
    if not result:
        raise NoNameServer(
            f"no name server address: pass namesrv='host:port' or set {NAMESRV_ADDR}"
        )
    return result


def check_namesrv(namesrv: str | Sequence[str] | None) -> str | Sequence[str] | None:
    """Check the argument `namesrv` of a client, without reading the environment.

    Raises:
        TypeError: it is not a text, a list of texts or None.
        InvalidName: an address is not `host:port`.
    """
    if namesrv is not None and not isinstance(namesrv, str):
        if not isinstance(namesrv, Iterable):
            raise TypeError(f"namesrv must be a str or a list of str, not {shown(namesrv)}")
        texts("namesrv", namesrv)
    if namesrv and not (isinstance(namesrv, str) and namesrv.strip().startswith(_SCHEMES)):
        parse_addresses(namesrv)
    return namesrv


class NameServerList:
    """The addresses, and the URL of the list if there is one.

    The constructor fetches nothing: with a URL, `addresses` is empty until `fetch`. Raises
    NoNameServer if no address is given anywhere, InvalidName for a malformed one, and TypeError for
    an argument that is neither a text nor a list of texts.
    """

    def __init__(self, namesrv: str | Sequence[str] | None, unit_name: str = "") -> None:
        check_namesrv(namesrv)
        given = namesrv if namesrv else os.environ.get(NAMESRV_ADDR, "")
        self.url: str | None = None
        self._failing = False
        self.addresses: list[str] = []
        if isinstance(given, str) and given.strip().startswith(_SCHEMES):
            self.url = given.strip()
            if unit_name and not self.url.startswith("file:"):
                self.url += f"-{unit_name}?nofix=1"
        else:
            self.addresses = parse_addresses(given)

    async def fetch(self) -> bool:
        """Fetch the list, if it is at a URL; return whether it has changed.

        The first failure in a row is logged. Raises NoNameServer if the list cannot be read or has
        no address, InvalidName for a malformed one.
        """
        if self.url is None:
            return False
        try:
            addresses = parse_addresses(await self._line(self.url))
        except NoNameServer as error:
            if not self._failing:
                log.warning("%s", error, extra=fields(error))
            self._failing = True
            raise
        self._failing = False
        if sorted(addresses) == sorted(self.addresses):
            return False
        log.info("name servers by %s: %s", self.url, "; ".join(addresses))
        self.addresses[:] = addresses
        return True

    @staticmethod
    async def _line(url: str) -> str:
        try:
            text = await asyncio.to_thread(_read, url)
        except (OSError, ValueError, HTTPException) as error:
            raise NoNameServer(f"no name server list from {url}: {error}") from error
        line = text.strip().partition("\n")[0].strip()
        if not line:
            raise NoNameServer(f"the name server list at {url} is empty")
        return line


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT) as answer:
        data: bytes = answer.read(MAX_LIST)
    return data.decode()
