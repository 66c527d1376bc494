"""Stores that live for some rounds each, one after the other, until something is wrong."""

from __future__ import annotations

import shutil
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from .ledger import Ledger


class StoreLife(Protocol):
    """The rounds of one store."""

    ledger: Ledger

    async def run(self, rounds: int) -> None:
        """Do so many rounds. Raises AssertionError, or a group of them, if something is wrong."""

    def end(self) -> None:
        """Leave no process behind."""


class StoreCampaign(ABC):
    """Counts rounds and collects what is wrong.

    Attributes:
        rounds: how many were done.
        faults: what is wrong, as lines; the campaign ends with the first store that has some.
        acknowledged: how much was acknowledged, by its kind.
        endings: what was done to servers and clients, and how often.
        store: the directory of the last store.
        seed_of_store: with it the last store comes again as the first.
    """

    rounds_of_a_store: int

    def __init__(self, directory: Path, seed: int, progress: Callable[[Any], None]) -> None:
        """`progress` is called with the campaign after each store."""
        self.rounds = 0
        self.faults: list[str] = []
        self.acknowledged: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self.store = directory
        self.seed_of_store = seed
        self._directory = directory
        self._progress = progress

    @abstractmethod
    def begin(self) -> StoreLife:
        """Let a store begin in `store`, drawn by `seed_of_store`."""

    async def run(self, rounds: int) -> None:
        """Do so many rounds, or until something is wrong; that store is left in the directory."""
        while self.rounds < rounds and not self.faults:
            self.store = self._directory / f"store-{self.seed_of_store}"
            life = self.begin()
            try:
                await life.run(min(rounds - self.rounds, self.rounds_of_a_store))
            except* AssertionError as errors:
                self.faults += [_text(error) for error in _leaves(errors)]
            finally:
                life.end()
            self.acknowledged += life.ledger.acknowledged
            self._progress(self)
            if not self.faults:
                shutil.rmtree(self.store)
                self.seed_of_store += 1


def _leaves(group: BaseExceptionGroup[AssertionError]) -> list[AssertionError]:
    leaves: list[AssertionError] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _text(error: AssertionError) -> str:
    return str(error) or "".join(traceback.format_exception(error))
