"""The VIP channel: the port two below a broker's own, where requests need not queue behind pulls.

With the option on, requests to brokers go there as the Java client's do: sends, offsets, locks,
messages given back, members of a group, probes, and what an administrator asks. Pulls, heartbeats,
the ends of transactions and recalls never do, nor does the question for a broker's settings. There
is no fallback if that port is not open (vipChannelEnabled; off by default).
Reference: MixAll.brokerVIPChannel and its uses in 5.3.3.
"""

from __future__ import annotations

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import split_address

VIP_DISTANCE = 2


def vip_address(address: str) -> str:
    """The address of the channel, of a broker's own."""
    return _moved(address, -VIP_DISTANCE)


def _moved(address: str, distance: int) -> str:
    host, port = split_address(address)
    return f"[{host}]:{port + distance}" if ":" in host else f"{host}:{port + distance}"


class VipChannel:
    """Says where requests go; where it is not `enabled`, to the broker's own address."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def own_addresses(self, address: str) -> tuple[str, ...]:
        """Of the broker whom a connection to `address` reaches: what its own address may be."""
        if not self._enabled:
            return (address,)
        return address, _moved(address, VIP_DISTANCE)

    def address(self, broker: str, code: RequestCode) -> str:
        """Where to send a request that would go to the address `broker`."""
        if not self._enabled or code is RequestCode.GET_BROKER_CONFIG:
            return broker
        return vip_address(broker)
