"""A sample of clients of every kind through faults, and proof that a broken promise is found."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.crash.history import broken_promises, missing
from tests.crash.ledger import Committed, Kind, Ledger
from tests.crash.lies import MIXED_LIES
from tests.crash.mixed import MixedCampaign

ROUNDS = 3


@pytest.mark.crash
async def test_everything_arrives_and_nothing_else(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    campaign = MixedCampaign(tmp_path, seed)
    await campaign.run(ROUNDS)
    assert campaign.faults == []
    assert campaign.rounds == campaign.endings.total() == ROUNDS
    assert len(campaign.acknowledged) > 6
    assert len(campaign.handled) == 5


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("lie", MIXED_LIES)
async def test_a_broker_with_a_bug_is_found(tmp_path: Path, lie: str) -> None:
    campaign = MixedCampaign(tmp_path, 1, lie=lie, stall=30.0)
    await campaign.run(3)
    found = MIXED_LIES[lie].found
    assert any(re.search(found, fault) for fault in campaign.faults), campaign.faults[:3]


# What the history tells, without servers.


def faults_of(ledger: Ledger) -> list[str]:
    return broken_promises(ledger, orderly=["in order"], tells=["G", "in order"])


@pytest.mark.parametrize(
    ("kind", "due", "recalled", "found"),
    [
        (Kind.SINGLE, 0, False, ""),
        (Kind.COMMITTED, 0, False, ""),
        (Kind.ROLLED_BACK, 0, False, "was never committed"),
        (Kind.TIMED, 1 << 60, False, "before its time"),
        (Kind.TIMED, 1, True, "was recalled"),
    ],
)
def test_what_may_be_delivered(kind: Kind, due: int, recalled: bool, found: str) -> None:
    ledger = Ledger()
    sent = ledger.add(kind, "T", 0, 0, due)
    sent.recalled = recalled
    ledger.handle("G", sent.body, "T", 0, 0, done=True)
    faults = faults_of(ledger)
    assert len(faults) == bool(found)
    assert all(found in fault for fault in faults)


def test_an_offset_ahead_of_what_was_handled_is_found() -> None:
    ledger = Ledger()
    first, second = (ledger.add(Kind.SINGLE, "T", 0, 0) for _ in range(2))
    ledger.handle("G", second.body, "T", 0, 1, done=True)
    ledger.history.append(Committed("G", "T", 0, 0))
    assert faults_of(ledger) == []
    ledger.history.append(Committed("G", "T", 0, 1))
    ledger.handle("G", first.body, "T", 0, 0, done=False)
    ledger.history.append(Committed("G", "T", 0, 2))
    [fault] = faults_of(ledger)
    assert "message 0 is not handled" in fault


def test_a_failed_message_holds_its_queue_in_order() -> None:
    ledger = Ledger()
    first, second = (ledger.add(Kind.SINGLE, "T", 0, 0) for _ in range(2))
    for group in ("G", "in order"):
        ledger.handle(group, first.body, "T", 0, 0, done=False)
        ledger.handle(group, second.body, "T", 0, 1, done=True)
    [fault] = faults_of(ledger)
    assert "in order" in fault
    assert "came before 0" in fault


def test_an_offset_of_two_messages_is_found() -> None:
    ledger = Ledger()
    for _ in range(2):
        sent = ledger.add(Kind.SINGLE, "T", 0, 0)
        ledger.handle("G", sent.body, "T", 0, 0, done=True)
    assert len(faults_of(ledger)) == 1


def test_what_a_group_did_not_get_is_missing() -> None:
    ledger = Ledger()
    acknowledged, unknown, recalled, future, foreign = (
        ledger.add(Kind.SINGLE, "T", 0, 0) for _ in range(5)
    )
    for sent in (acknowledged, recalled, future, foreign):
        ledger.acknowledge(sent, None)
    recalled.recalling, future.due, foreign.topic = True, 101, "other"
    assert not unknown.acknowledged
    ledger.handle("G", acknowledged.body, "T", 0, 0, done=False)
    assert len(missing(ledger, {"G": ["T"]}, 100)) == 1
    ledger.handle("G", acknowledged.body, "T", 0, 0, done=True)
    assert missing(ledger, {"G": ["T"]}, 100) == []
