"""Which hosts may copy the log, and count when a send waits for copies.

The HA protocol has no signatures: any host that reaches the port can claim to have a message. So
the *address* of a replica has to be known. Either it is listed in haAllowedAddresses, or a super
user recently signed, from that address, one of the requests by which slaves copy tables and find
the master. Slaves of both brokers send these every few seconds, signed with
innerClientAuthenticationCredentials. Open connections are not closed.

A port that is only reachable from this machine is not checked, unless there is a list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

from pocketmq.auth.guard import SignedCaller
from pocketmq.broker.config import BrokerConfig, Network, networks_of
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request
from pocketmq.remoting.settings.exposure import is_loopback

PROOF_SECONDS: Final = 60.0
"""How long a signed request is valid. Slaves send one at least every 10 s."""
_MOST_ADDRESSES: Final = 1_000
_PROOFS: Final = (
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.EXCHANGE_BROKER_HA_INFO,
)


class AllowedReplicas:
    """The addresses from which the log of one broker may be copied. `clock` gives monotonic
    seconds."""

    def __init__(self, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._networks = networks_of(config.ha_allowed_addresses)
        self._signed = config.authentication_enabled
        self._everybody = not self._networks and (
            is_loopback(config.bind_address)
            or not (config.authentication_enabled or config.counts_replicas)
        )
        self._clock = clock
        self._proven: dict[IPv4Address | IPv6Address, float] = {}

    def watch(self, dispatcher: Dispatcher) -> None:
        """Record signed requests of slaves. Call this after all codes are registered, and before
        the dispatcher is protected."""
        if self._signed and not self._everybody:
            for code in _PROOFS:
                dispatcher.wrap(code, self._noted)

    def refusal(self, host: str) -> str:
        """Return why a connection from `host` is refused; empty if it may copy."""
        if self._everybody:
            return ""
        address = _address(host)
        if address is not None:
            if any(_contains(network, address) for network in self._networks):
                return ""
            if not self._networks and not self._signed and address.is_loopback:
                return ""
            proven = self._proven.get(address)
            if proven is not None and self._clock() - proven <= PROOF_SECONDS:
                return ""
        if not self._signed:
            return "haAllowedAddresses does not have its address"
        return (
            "haAllowedAddresses does not have its address, and no super user has signed a request "
            f"of a slave from there in the last {PROOF_SECONDS:.0f} s: "
            "innerClientAuthenticationCredentials must be set there"
        )

    def _noted(self, handler: Handler) -> Handler:
        def noting(request: Request[Any]) -> Answer:
            caller = request.caller
            if isinstance(caller, SignedCaller) and caller.is_super:
                self._note(request.connection.peer[0])
            return handler(request)

        return noting

    def _note(self, host: str) -> None:
        address = _address(host)
        if address is None:
            return
        now = self._clock()
        self._proven.pop(address, None)  # move it to the end
        self._proven[address] = now
        if len(self._proven) > _MOST_ADDRESSES:
            del self._proven[next(iter(self._proven))]


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return an address for comparison: IPv4-mapped IPv6 addresses, which a dual-stack port
    reports, become IPv4 addresses. None if `host` is not an address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _contains(network: Network, address: IPv4Address | IPv6Address) -> bool:
    if isinstance(network, IPv6Network):
        return isinstance(address, IPv6Address) and address in network
    return isinstance(address, IPv4Address) and address in network
