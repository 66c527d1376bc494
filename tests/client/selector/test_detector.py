from __future__ import annotations

import asyncio

import pytest

from pocketmq.client.selector.detector import BACK_FOR, LOST_FOR, Detector
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.client.selector.switches import Switches
from tests.client.simulation import Clock


class Probes:
    """Addresses that answer, those that fail, and who was asked with which timeout."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.asked: list[tuple[str, float]] = []
        self.error: Exception | None = None

    async def __call__(self, address: str, timeout: float) -> bool:
        self.asked.append((address, timeout))
        if self.error is not None:
            raise self.error
        return address in self.alive


class Setting:
    def __init__(self, brokers: str = "abc", switches: Switches | None = None) -> None:
        self.clock = Clock()
        self.selector = QueueSelector(self.clock, switches=switches)
        self.routes: dict[str, str | None] = {name: f"{name}:1" for name in brokers}
        self.probes = Probes()
        self.detector = Detector(self.selector, lambda: self.routes, self.probes)


async def test_only_suspects_are_asked_and_who_answers_is_reachable_again() -> None:
    at = Setting(switches=Switches(detect_timeout=321))
    at.selector.answered("a", 0.01)
    at.selector.silent("b", 0.01)
    at.selector.silent("c", 0.01)
    at.probes.alive = {"b:1"}
    assert await at.detector.round() == ["b"]
    assert at.probes.asked == [("b:1", 0.321), ("c:1", 0.321)]
    assert at.selector.tolerance.is_available("b")
    assert not at.selector.tolerance.is_reachable("c")
    assert not at.selector.tolerance.is_available("c")


async def test_a_probe_never_makes_unreachable() -> None:
    at = Setting()
    at.selector.refused("a", 0.01)
    await at.detector.round()
    assert [address for address, _ in at.probes.asked] == ["a:1"]
    assert at.selector.tolerance.is_reachable("a")
    assert not at.selector.tolerance.is_available("a")


async def test_a_suspect_is_asked_again_after_the_interval() -> None:
    at = Setting(switches=Switches(detect_interval=2000))
    at.selector.silent("a", 0.01)
    await at.detector.round()
    at.clock.advance(1.9)
    await at.detector.round()
    assert len(at.probes.asked) == 1
    at.clock.advance(0.2)
    await at.detector.round()
    assert len(at.probes.asked) == 2


async def test_suspects_are_probed_at_the_same_time() -> None:
    at = Setting()
    for name in "abc":
        at.selector.silent(name, 0.01)
    together = asyncio.Barrier(3)

    async def probe(address: str, timeout: float) -> bool:
        async with asyncio.timeout(10):
            await together.wait()
        return True

    detector = Detector(at.selector, lambda: at.routes, probe)
    assert sorted(await detector.round()) == ["a", "b", "c"]


async def test_brokers_of_no_route_are_forgotten() -> None:
    at = Setting()
    at.selector.answered("a", 0.01)
    at.selector.silent("b", 0.01)
    del at.routes["a"]
    await at.detector.round()
    assert [address for address, _ in at.probes.asked] == ["b:1"]
    assert [item.broker_name for item in at.selector.tolerance] == ["b"]


async def test_a_suspect_that_leaves_the_routes_is_probed_on_for_a_while() -> None:
    at = Setting()
    at.selector.silent("a", 0.01)
    await at.detector.round()
    del at.routes["a"]
    at.clock.advance(LOST_FOR - 1)
    await at.detector.round()
    assert [address for address, _ in at.probes.asked] == ["a:1", "a:1"]
    at.clock.advance(2)
    await at.detector.round()
    assert len(at.probes.asked) == 2
    assert len(at.selector.tolerance) == 0


async def test_a_suspect_that_is_back_has_the_routes_asked_until_it_is_tried() -> None:
    at = Setting()
    refreshed: list[float] = []

    async def refresh() -> None:
        refreshed.append(at.clock())
        if len(refreshed) == 2:
            at.routes["a"] = "a:1"

    detector = Detector(at.selector, lambda: at.routes, at.probes, refresh)
    at.selector.silent("a", 0.01)
    await detector.round()
    del at.routes["a"]
    at.clock.advance(2)
    await detector.round()
    assert refreshed == []
    at.probes.alive = {"a:1"}
    for _ in range(2):
        at.clock.advance(2)
        await detector.round()
        await turn()
    # The first time it had not registered yet.
    assert len(refreshed) == 2
    assert at.selector.tolerance.is_available("a")
    at.selector.answered("a", 0.01)
    at.clock.advance(2)
    await detector.round()
    await turn()
    assert len(refreshed) == 2


async def test_the_routes_are_not_asked_for_ever_for_one_that_nobody_tries() -> None:
    at = Setting()
    refreshed: list[float] = []

    async def refresh() -> None:
        refreshed.append(at.clock())

    detector = Detector(at.selector, lambda: at.routes, at.probes, refresh)
    at.selector.silent("a", 0.01)
    at.probes.alive = {"a:1"}
    for _ in range(100):
        await detector.round()
        await turn()
        at.clock.advance(2)
    assert len(refreshed) == BACK_FOR / 2


async def test_probing_does_not_wait_for_the_routes() -> None:
    at = Setting()
    asked: list[asyncio.Task[object] | None] = []

    async def refresh() -> None:
        asked.append(asyncio.current_task())
        await asyncio.Event().wait()  # a name server that is silent

    rounds = 0
    fifth = asyncio.Event()

    async def pause(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        at.clock.advance(seconds)
        await turn()
        if rounds == 5:
            fifth.set()
            await asyncio.Event().wait()

    detector = Detector(at.selector, lambda: at.routes, at.probes, refresh)
    at.selector.silent("a", 0.01)
    at.selector.silent("b", 0.01)
    at.probes.alive = {"a:1"}
    running = asyncio.create_task(detector.run(pause))
    async with asyncio.timeout(10):
        await fifth.wait()
    assert [address for address, _ in at.probes.asked].count("b:1") == 4
    [task] = asked
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert task is not None
    assert task.cancelled()


async def test_routes_that_can_not_be_asked_for_do_not_end_the_detector(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = Setting()

    async def refresh() -> None:
        raise ZeroDivisionError("oops")

    detector = Detector(at.selector, lambda: at.routes, at.probes, refresh)
    at.selector.silent("a", 0.01)
    at.probes.alive = {"a:1"}
    assert await detector.round() == ["a"]
    await turn()
    assert "oops" in caplog.text
    await detector.round()


async def turn() -> None:
    """What was begun beside runs, as far as it does without waiting."""
    await asyncio.sleep(0)


async def test_a_broker_without_master_is_kept_and_not_asked() -> None:
    at = Setting()
    at.selector.silent("a", 0.01)
    at.routes["a"] = None
    await at.detector.round()
    assert at.probes.asked == []
    assert not at.selector.tolerance.is_reachable("a")


async def test_a_probe_that_breaks_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = Setting()
    at.selector.silent("a", 0.01)
    at.probes.error = ZeroDivisionError("oops")
    assert await at.detector.round() == []
    assert "oops" in caplog.text
    at.probes.error = None
    at.probes.alive = {"a:1"}
    at.clock.advance(10)
    assert await at.detector.round() == ["a"]


@pytest.mark.parametrize("switch", ["send_latency_enable", "start_detector_enable"])
async def test_switched_off_it_asks_nobody(switch: str) -> None:
    at = Setting()
    at.selector.silent("a", 0.01)
    at.selector.switches = Switches(**{switch: False})
    await at.detector.round()
    assert at.probes.asked == []


@pytest.mark.parametrize(("interval", "period"), [(500, 0.5), (2000, 2.0), (60_000, 3.0)])
async def test_it_runs_at_its_interval_until_cancelled(interval: int, period: float) -> None:
    at = Setting(switches=Switches(detect_interval=interval))
    at.selector.silent("a", 0.01)
    pauses: list[float] = []
    third = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        at.clock.advance(seconds)
        if len(pauses) == 3:
            third.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(at.detector.run(pause))
    await third.wait()
    assert pauses == [period] * 3
    assert len(at.probes.asked) == (2 if interval < 60_000 else 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
