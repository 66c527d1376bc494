"""Some schedules of the simulation; and mistakes that it has to find."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.controller.replica import Order, Replica, Role, RoleTold
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.broker.controller.sync_state_set import SyncStateSet
from pocketmq.store.epochs import Epochs
from tests.broker.controller.simulation import Broken, SimLog, World, run

MOST_SCHEDULES = 3_000
#: Schedules that find the rarer ones; others do, too, but it takes hundreds of them.
SHARED_LABEL, GOES_ON = 2_969, 124


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_no_schedule_breaks_a_promise(seed: int) -> None:
    run(seed)


def test_schedules_do_what_they_are_for() -> None:
    counts = run(0)
    for seed in range(1, 60):
        counts += run(seed)
    for happened in ("acknowledged", "reigns", "elections", "commands", "kills", "power cuts"):
        assert counts[happened] > 3, counts


class TrustsTheLastAnswer(SyncStateSet):
    """Only the set that the controller told last has to acknowledge."""

    @property
    def needed(self) -> frozenset[int]:
        return self.members


class Forgets(Replica):
    """As above."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.set = TrustsTheLastAnswer()


class SharesLabels(Replica):
    """A reign without a byte gives its label to the next one, as in the reference."""

    def _for_reign(self, epochs: Epochs, epoch: int) -> Epochs:
        return epochs.begun(epoch, self._log.end)


class CountsTheSilent(Replica):
    """A member that has not reported does not hold anything up, as in the reference."""

    def _ack_of(self, member: int) -> int:
        acked = super()._ack_of(member)
        return self._log.end if acked < 0 else acked


class NeverCuts(SimLog):
    """Keeps what the master does not have."""

    def cut(self, offset: int) -> None:
        pass


class GoesOn(Replica):
    """Goes on in its reign after a restart."""

    def _lead(self, told: RoleTold, now: int) -> list[Order]:
        if self.role is Role.FENCED and self.epochs.last_epoch == told.master_epoch:
            kept = self._epochs
            self._epochs = kept.cut(kept.entries[-1].start)
            orders = super()._lead(told, now)
            self._epochs = kept
            self._log.save_epochs(kept)
            return orders
        return super()._lead(told, now)


class ForgetsEpochs(SimLog):
    """Loses the list of epochs with the process."""

    def save_epochs(self, epochs: Epochs) -> None:
        self.epochs = Epochs(epochs.entries[:1])


LOSSY: Iterable[tuple[str, dict[str, object]]] = (
    ("only the last set counts", {"make": Forgets}),
    ("labels are shared", {"make": SharesLabels, "first": SHARED_LABEL}),
    ("silent members do not count", {"make": CountsTheSilent}),
    ("nothing is cut", {"make_log": NeverCuts}),
    ("epochs are lost", {"make_log": ForgetsEpochs}),
    ("unclean elections", {"unclean": True}),
    ("not every member acknowledges", {"settings": ReplicaSettings()}),
)
LOSSY_AFTER_POWER_CUTS: Iterable[tuple[str, dict[str, object]]] = (
    ("reigns go on after restarts", {"make": GoesOn, "first": GOES_ON}),
    (
        "acknowledged before it is flushed",
        {"settings": ReplicaSettings(all_ack=True)},
    ),
)


def break_it(*, power: bool, first: int = 0, **options: object) -> None:
    for seed in range(first, first + MOST_SCHEDULES):
        try:
            World(Random(seed), power=power, **options).run()  # type: ignore[arg-type]
        except Broken:
            return
    pytest.fail(f"not found in {MOST_SCHEDULES} schedules")


@pytest.mark.parametrize("options", [options for _, options in LOSSY], ids=[n for n, _ in LOSSY])
def test_a_planted_mistake_is_found(options: dict[str, object]) -> None:
    break_it(power=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [options for _, options in LOSSY_AFTER_POWER_CUTS],
    ids=[name for name, _ in LOSSY_AFTER_POWER_CUTS],
)
def test_a_planted_mistake_is_found_by_power_cuts(options: dict[str, object]) -> None:
    break_it(power=True, **options)  # type: ignore[arg-type]
