"""A sample of the kills under consumers that pop."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.pops import PopCampaign

pytestmark = pytest.mark.crash

ROUNDS = 6


async def test_what_kills_leave_of_pops(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    campaign = PopCampaign(tmp_path, seed)
    await campaign.run(ROUNDS)
    assert not campaign.ledger.open, "messages are lost"
    assert campaign.ledger.deliveries > len(campaign.ledger.sent) > 50
    assert campaign.ledger.kills


async def test_after_clean_stops_nothing_comes_twice(tmp_path: Path) -> None:
    campaign = PopCampaign(tmp_path, 1, kills=0.0)
    await campaign.run(3)
    assert campaign.ledger.faults == []
    assert campaign.ledger.again == 0
    assert campaign.ledger.acked
