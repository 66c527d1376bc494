"""The name servers of a client: their addresses, and requests with failover.

Name servers do not know each other: a read goes to any of them, a write to each. The first is
chosen at random, to spread the clients, and used until it does not answer; then the next in the
list is used. Reference: NettyRemotingClient.getAndCreateNameserverChannel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pocketmq.client.any_answer import any_answer
from pocketmq.client.backoff import backoff, jittered
from pocketmq.client.errors import (
    NoNameServer,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    error_for,
    is_silence,
)
from pocketmq.client.log_fields import fields
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.pool import ConnectionPool

log = logging.getLogger(__name__)

#: Timeout of a request to the name servers, including failovers, seconds.
NAMESRV_TIMEOUT = 3.0
#: The shortest timeout for one name server, seconds.
LEAST_SHARE = 0.01
#: Pauses before a name server that does not answer is asked again: the first and the longest,
#: seconds.
WATCH_PAUSES = (0.5, 5.0)
#: Timeout of these probes, seconds.
WATCH_TIMEOUT = 1.0


class NameServers:
    """Sends requests to a name server that answers.

    `addresses` may change at any time. It is empty only until the first list is fetched
    (`name_server_list`).
    """

    def __init__(self, addresses: Sequence[str], pool: ConnectionPool) -> None:
        self.addresses = addresses
        self._pool = pool
        self._current = random.randrange(1 << 16)
        #: Name servers whose last request had no answer, and since when, monotonic seconds. Each
        #: is logged once per outage.
        self._silent: dict[str, float] = {}
        self._some_silent = asyncio.Event()

    @property
    def answering(self) -> bool:
        """Whether the last request to any name server was answered; True before the first."""
        return any(address not in self._silent for address in self.addresses)

    async def request(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout: float = NAMESRV_TIMEOUT,
    ) -> Command:
        """Return the answer of the first name server that answers.

        An error answer is final and raised as its class. A server that does not answer within its
        share of `timeout` is skipped. Raises NoNameServer if all were skipped.
        """
        deadline = time.monotonic() + timeout
        silent: dict[str, RemotingError] = {}
        addresses = tuple(self.addresses)
        first = self._current
        count = len(addresses)
        for tried in range(count):
            index = (first + tried) % count
            address = addresses[index]
            share = max((deadline - time.monotonic()) / (count - tried), LEAST_SHARE)
            try:
                answer = await self._pool.request(address, code, header, body, timeout=share)
            except RemotingTimeout:
                silent[address] = RemotingTimeout(
                    f"it did not answer {code.name} within {share:.3g} s", address
                )
                continue
            except RemotingError as error:
                if not is_silence(error):
                    raise
                silent[address] = error
                continue
            self._current = index
            self._tell_silent(silent)
            self._tell_answering(address)
            return _success(answer, address, code)
        self._tell_silent(silent)
        raise _no_name_server(silent)

    async def connect(self, *, timeout: float) -> None:
        """Connect to any name server within `timeout` seconds; raises NoNameServer."""
        silent: dict[str, RemotingError] = {}
        addresses = tuple(self.addresses)
        try:
            async with asyncio.timeout(timeout):
                for address in addresses:
                    try:
                        await self._pool.get(address)
                    except RemotingConnectError as error:
                        silent[address] = error
                    else:
                        self._tell_silent(silent)
                        self._tell_answering(address)
                        return
        except TimeoutError:
            late = RemotingConnectError(f"no connection within {timeout:.3f} s")
            silent |= {address: late for address in addresses if address not in silent}
        self._tell_silent(silent)
        raise _no_name_server(silent)

    async def ping(
        self,
        timeout: float,
        spawn: Callable[[Coroutine[Any, Any, str | None], str], asyncio.Task[str | None]],
    ) -> None:
        """Return when any name server has answered, even with an error; raises NoNameServer if none
        has within `timeout` seconds."""
        answering, failed = await any_answer(self.addresses, self._ask_anything, timeout, spawn)
        self._tell_silent(failed)
        if answering is None:
            raise _no_name_server(failed)
        self._tell_answering(answering)

    async def _ask_anything(self, address: str, timeout: float) -> None:
        await self._pool.request(address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout=timeout)

    async def watch(self) -> None:
        """Probe name servers that do not answer until they do, so that the log has their return:
        requests use other servers, or may be rare. Runs until it is cancelled."""
        while True:
            await self._some_silent.wait()
            self._some_silent.clear()
            rounds = 0
            while self._silent:
                rounds += 1
                await asyncio.sleep(jittered(backoff(*WATCH_PAUSES, rounds)))
                await asyncio.gather(*map(self._look_at, tuple(self._silent)))

    async def _look_at(self, address: str) -> None:
        if address not in self.addresses:
            self._silent.pop(address, None)
            return
        with contextlib.suppress(RemotingError):
            await self._ask_anything(address, WATCH_TIMEOUT)
            self._tell_answering(address)

    def _tell_silent(self, errors: Mapping[str, RemotingError]) -> None:
        """Log the servers that have stopped answering."""
        fresh = {address: errors[address] for address in errors if address not in self._silent}
        if fresh:
            self._silent.update(dict.fromkeys(fresh, time.monotonic()))
            self._some_silent.set()
            [some, *_] = fresh.values()
            log.warning("name server does not answer: %s", _reasons(fresh), extra=fields(some))

    def _tell_answering(self, address: str) -> None:
        since = self._silent.pop(address, None)
        if since is not None:
            away = time.monotonic() - since
            log.info(
                "name server %s answers again after %.1f s",
                address,
                away,
                extra=fields(broker=address),
            )

    async def request_all(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout: float = NAMESRV_TIMEOUT,
    ) -> None:
        """Send a request to every name server; then raise the first error, if any."""
        first_error: RemotingError | None = None
        for address in tuple(self.addresses):
            try:
                answer = await self._pool.request(address, code, header, body, timeout=timeout)
                _success(answer, address, code)
            except RemotingError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error


def _reasons(errors: Mapping[str, RemotingError]) -> str:
    return "; ".join(f"{address}: {error.remark}" for address, error in errors.items())


def _no_name_server(silent: Mapping[str, RemotingError]) -> NoNameServer:
    again = not silent or any(error.retriable for error in silent.values())
    return NoNameServer(f"no name server answered: {_reasons(silent)}", retriable=again)


def _success(answer: Command, address: str, code: RequestCode) -> Command:
    if (
        answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        and code == RequestCode.GET_ROUTEINFO_BY_TOPIC
    ):
        why = f"{(answer.remark or '').strip()}: `namesrv` is not the address of a name server"
        raise error_for(answer.code, why, address)
    if answer.code != ResponseCode.SUCCESS:
        raise error_for(answer.code, answer.remark, address)
    return answer
