"""The detector (RIP-63): asks suspected brokers whether they answer again.

Every round it forgets the brokers that no route names any more, then probes each unreachable
broker whose check is due, all at once. A probe that is answered, with whatever code, sets the
broker reachable; nothing here ever clears it.
Reference: LatencyFaultToleranceImpl.detectByOneRound, which probes one after another, so that one
dead broker delays the news of the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from client.selector.pipeline import QueueSelector

__all__ = ["DETECTOR_PERIOD", "Detector", "Probe"]

log = logging.getLogger(__name__)

#: Seconds between two rounds.
DETECTOR_PERIOD = 3.0

#: `await probe(address, timeout)`: whether the broker at "host:port" answered within `timeout` s.
Probe = Callable[[str, float], Awaitable[bool]]


class Detector:
    """Probes suspects for one selector.

    `brokers` gives the brokers of the present routes: broker name to address, or to None where
    the route names no master at this moment.
    """

    def __init__(
        self,
        selector: QueueSelector,
        brokers: Callable[[], Mapping[str, str | None]],
        probe: Probe,
    ) -> None:
        self._selector = selector
        self._brokers = brokers
        self._probe = probe

    async def run(self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Rounds for ever; ends by cancellation, with the probes under way."""
        while True:
            await pause(DETECTOR_PERIOD)
            await self.round()

    async def round(self) -> Collection[str]:
        """One round; returns the brokers found reachable again."""
        tolerance = self._selector.tolerance
        switches = self._selector.switches
        brokers = self._brokers()
        tolerance.retain(brokers)
        if not (switches.send_latency_enable and switches.start_detector_enable):
            return ()
        targets = [
            (name, address)
            for name in tolerance.due_suspects(switches.detect_interval / 1000)
            if (address := brokers.get(name)) is not None
        ]
        timeout = switches.detect_timeout / 1000
        answers = await asyncio.gather(
            *(self._ask(name, address, timeout) for name, address in targets)
        )
        found = [name for (name, _), answered in zip(targets, answers, strict=True) if answered]
        for name in found:
            tolerance.mark_reachable(name)
        return found

    async def _ask(self, name: str, address: str, timeout: float) -> bool:
        try:
            return await self._probe(address, timeout)
        except Exception:
            log.warning("probing broker %s at %s failed", name, address, exc_info=True)
            return False
