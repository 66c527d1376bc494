"""The detector (RIP-63): asks suspected brokers whether they answer again.

Every round it forgets the brokers that no route names any more, then probes each unreachable or
isolated broker whose check is due, all at once. A probe that is answered in time, with whatever
code, sets the broker reachable and ends its isolation: it is on trial then, as
client.selector.latency says. Nothing here ever makes a broker unreachable.

A broker that goes down leaves the routes, and is back in them only after it has registered again
and the route was asked for again. So a suspect that no route names is probed on at its last
address for a while, and when it answers, the routes are asked for until a send tries it.
Reference: LatencyFaultToleranceImpl.detectByOneRound, which probes one after another, so that one
dead broker delays the news of the next, and leaves the isolation as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.limited_log import LimitedLog

log = logging.getLogger(__name__)

#: The most seconds between two rounds; `detect_interval` where that is shorter.
DETECTOR_PERIOD = 3.0

#: How long a suspect that no route names is not forgotten, seconds.
LOST_FOR = 300.0
#: How long after its answer the routes are asked for, seconds; by then every client polls them.
BACK_FOR = 30.0

#: `await probe(address, timeout)`: whether the broker at "host:port" answered within `timeout` s.
Probe = Callable[[str, float], Awaitable[bool]]


class Detector:
    """Probes suspects for one selector.

    `brokers` gives the brokers of the present routes: broker name to address, or to None where
    the route names no master at this moment. `refresh()` asks for the routes again.
    """

    def __init__(
        self,
        selector: QueueSelector,
        brokers: Callable[[], Mapping[str, str | None]],
        probe: Probe,
        refresh: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._selector = selector
        self._brokers = brokers
        self._probe = probe
        self._refresh = refresh
        self._log = LimitedLog(log)
        # Suspects: their last address, and when a route named it (clock seconds).
        self._addresses: dict[str, tuple[str, float]] = {}
        # Suspects that answered and were not tried yet, and when they did.
        self._back: dict[str, float] = {}
        self._refreshing: asyncio.Task[None] | None = None

    async def run(self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Rounds for ever; ends by cancellation, with the probes and questions under way."""
        try:
            while True:
                await pause(min(DETECTOR_PERIOD, self._selector.switches.detect_interval / 1000))
                await self.round()
        finally:
            if self._refreshing is not None:
                self._refreshing.cancel()
                await asyncio.gather(self._refreshing, return_exceptions=True)

    async def round(self) -> Collection[str]:
        """One round; returns the brokers found reachable again."""
        tolerance = self._selector.tolerance
        switches = self._selector.switches
        brokers = self._with_lost(self._brokers())
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
        now = self._selector.clock()
        untried = {item.broker_name for item in tolerance if item.on_trial and item.reachable}
        self._back |= dict.fromkeys(found, now)
        self._back = {
            name: at for name, at in self._back.items() if name in untried and now - at < BACK_FOR
        }
        if self._back and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._ask_for_routes())
        return found

    def _with_lost(self, routed: Mapping[str, str | None]) -> dict[str, str | None]:
        """The brokers of the routes, and suspects that these name no more by their last address."""
        now = self._selector.clock()
        suspects = {item.broker_name for item in self._selector.tolerance if item.on_trial}
        for name in suspects:
            if (address := routed.get(name)) is not None:
                self._addresses[name] = (address, now)
        self._addresses = {
            name: (address, at)
            for name, (address, at) in self._addresses.items()
            if name in suspects and now - at < LOST_FOR
        }
        return {name: address for name, (address, _) in self._addresses.items()} | dict(routed)

    async def _ask_for_routes(self) -> None:
        if self._refresh is not None:
            try:
                await self._refresh()
            except Exception:
                self._log.exception("asking for the routes failed")

    async def _ask(self, name: str, address: str, timeout: float) -> bool:
        try:
            return await self._probe(address, timeout)
        except Exception:
            self._log.exception("probing broker %s at %s failed", name, address)
            return False
