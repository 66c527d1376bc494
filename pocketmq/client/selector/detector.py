"""The detector (RIP-63): probes suspected brokers to find out whether they answer again.

Each round forgets the brokers that are in no route any more, then probes all unreachable or
isolated brokers whose check is due, at the same time. If a probe is answered in time, with any
code, the broker is reachable, its isolation ends, and it is on trial (`client.selector.latency`).
The detector never marks a broker as unreachable.

A broker that stops leaves the routes, and is in them again only after it has registered and the
route was requested again. So a suspect that is in no route is still probed at its last address for
a while, and once it answers, the routes are requested until a send tries it.
Reference: LatencyFaultToleranceImpl.detectByOneRound. That probes one broker after another, so a
dead one delays the others, and does not end the isolation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.limited_log import LimitedLog

log = logging.getLogger(__name__)

#: Seconds between two rounds; `detect_interval` if that is shorter.
DETECTOR_PERIOD = 3.0

#: How long a suspect that is in no route is still probed, seconds.
LOST_FOR = 300.0
#: How long after its answer the routes are requested, seconds: the regular poll is due by then.
BACK_FOR = 30.0

#: `await probe(address, timeout)`: returns whether "host:port" answered within `timeout` seconds.
Probe = Callable[[str, float], Awaitable[bool]]


class Detector:
    """Probes suspects for one selector.

    `brokers` returns the brokers of the current routes: broker name → address, None if the route
    has no master now. `refresh()` requests the routes again.
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
        # Suspects → last address, and when it was last in a route (clock seconds).
        self._addresses: dict[str, tuple[str, float]] = {}
        # Suspects that answered but were not tried yet → when they answered.
        self._back: dict[str, float] = {}
        self._refreshing: asyncio.Task[None] | None = None

    async def run(self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Run rounds until cancelled; this also cancels pending probes and requests."""
        try:
            while True:
                await pause(min(DETECTOR_PERIOD, self._selector.switches.detect_interval / 1000))
                await self.round()
        finally:
            if self._refreshing is not None:
                self._refreshing.cancel()
                await asyncio.gather(self._refreshing, return_exceptions=True)

    async def round(self) -> Collection[str]:
        """Run one round; return the brokers that were found reachable again."""
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
        """Return the brokers of the routes, and suspects that left them with their last address."""
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
