"""The VIP channel: the port two below a broker's own, where pulls do not delay other requests.

If the option is on, the same requests use it as in the Java client: sends, offsets, locks, messages
sent back, the members of a group, probes, and administration. Pulls, heartbeats, ends of
transactions, recalls, and requests for a broker's settings never use it. There is no fallback if
that port is not open (vipChannelEnabled; off by default).
Reference: MixAll.brokerVIPChannel and its uses in 5.3.3.
"""

from __future__ import annotations

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import split_address

VIP_DISTANCE = 2


def vip_address(address: str) -> str:
    """Return the VIP channel of a broker with this address."""
    return _moved(address, -VIP_DISTANCE)


def _moved(address: str, distance: int) -> str:
    host, port = split_address(address)
    return f"[{host}]:{port + distance}" if ":" in host else f"{host}:{port + distance}"


class VipChannel:
    """Chooses the address for requests: always the broker's own unless `enabled`."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def own_addresses(self, address: str) -> tuple[str, ...]:
        """Return the possible own addresses of the broker to which `address` leads."""
        if not self._enabled:
            return (address,)
        return address, _moved(address, VIP_DISTANCE)

    def address(self, broker: str, code: RequestCode) -> str:
        """Return the address for a request to the broker at the address `broker`."""
        if not self._enabled or code is RequestCode.GET_BROKER_CONFIG:
            return broker
        return vip_address(broker)
