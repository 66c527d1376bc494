"""A sample of the kills, and proof that a broken promise would be found."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.crash.campaign import Campaign
from tests.crash.lies import LIES

pytestmark = pytest.mark.crash

ROUNDS = 30


async def test_what_kills_leave(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    campaign = Campaign(tmp_path, seed)
    await campaign.run(ROUNDS)
    assert campaign.faults == []
    # The rounds did something.
    assert campaign.rounds == ROUNDS
    assert sum(campaign.acknowledged.values()) > 1_000
    assert len(campaign.acknowledged) > 10
    assert campaign.endings["killed"] > campaign.endings["stopped"] > 0


@pytest.mark.parametrize("lie", LIES)
async def test_a_broker_with_a_bug_is_found(tmp_path: Path, lie: str) -> None:
    """The proof can fail: each of these brokers breaks a promise."""
    campaign = Campaign(tmp_path, 1, lie=lie, settle_every=3, patience=2.0)
    await campaign.run(500)
    assert any(re.search(LIES[lie].found, fault) for fault in campaign.faults), campaign.faults[:3]
