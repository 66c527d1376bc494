"""What bench/selector promises of the producer's rules, in simulated time."""

from __future__ import annotations

from functools import cache

import pytest

from bench.selector.figures import Figures, figures
from bench.selector.scenarios import Scenario, scenarios
from bench.selector.simulation import simulate
from bench.selector.traffic import Contender
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.client.selector.switches import Switches
from tests.client.simulation import Clock

#: Seconds of each scenario, and sends a second of each of the two clients.
LENGTH, RATE = 24.0, 100.0
INTERVALS = 2
SCENARIOS = {scenario.name: scenario for scenario in scenarios(LENGTH)}

every = pytest.mark.parametrize("name", SCENARIOS)


@cache
def found(name: str, contender: Contender) -> Figures:
    return figures(simulate(SCENARIOS[name], contender, rate=RATE))


def test_the_default_is_what_is_measured_as_ours() -> None:
    assert QueueSelector(Clock()).selection == "penalised"


@every
def test_no_send_fails_that_another_order_of_brokers_could_save(name: str) -> None:
    assert found(name, Contender.OURS).lost == 0


@every
def test_p99_is_below_the_references(name: str) -> None:
    assert found(name, Contender.OURS).p99 < found(name, Contender.REFERENCE).p99


@every
def test_hardly_a_send_tries_a_broker_known_to_be_dead(name: str) -> None:
    share = found(name, Contender.OURS).bad_share
    assert share is None or share < 1.0


@every
def test_a_recovered_broker_is_used_fully_within_two_detection_intervals(name: str) -> None:
    scenario: Scenario = SCENARIOS[name]
    if scenario.recovered is None:
        return
    recovery = found(name, Contender.OURS).recovery
    assert recovery is not None
    assert recovery <= INTERVALS * Switches().detect_interval / 1000


def test_the_simulation_is_the_same_every_time() -> None:
    scenario = scenarios(6.0)[4]
    runs = [simulate(scenario, Contender.OURS, rate=RATE) for _ in range(2)]
    assert runs[0].sends == runs[1].sends
    assert runs[0].attempts == runs[1].attempts
    other = simulate(scenario, Contender.OURS, rate=RATE, seed=1)
    assert other.sends != runs[0].sends


def test_the_simulated_reference_shows_its_known_flaws() -> None:
    """Otherwise to be better than it would mean nothing."""
    hung = found("one hung", Contender.REFERENCE)
    assert hung.lost > 0
    assert hung.bad_share is not None
    assert hung.bad_share > 1.0
    slow = found("one slow", Contender.REFERENCE)
    assert slow.p99 > 300
