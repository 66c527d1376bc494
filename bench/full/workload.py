"""What a workload is, and what it works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import contenders
from bench.clean_slate import clean_slate
from bench.contenders import Contender, Figures
from bench.generator import LoadGenerator
from bench.measures import Load, Measure
from bench.rounds import run_load

__all__ = ["MANY", "Session", "Workload", "by_loads", "count"]

#: Sends until a just-in-time compiler has seen their path.
WARM_UP = 300_000

#: Connections and requests in flight of most sends.
MANY = ("-conns", "4", "-inflight", "64")


def count(messages: int, scale: float, least: int = 1) -> str:
    """So many messages, times `scale`, but not fewer than `least`, as an argument."""
    return str(max(int(messages * scale), least))


@dataclass
class Session:
    """What one workload works with.

    Attributes:
        directory: an empty directory of its own, for stores and logs.
        rounds: how often each contender is measured.
        scale: factor of message counts and durations.
        with_official: whether the official broker is measured as well.
        notes: what a reader of the figures has to know; the workload appends to it.
    """

    directory: Path
    generator: LoadGenerator
    console: Console
    rounds: int
    scale: float
    with_official: bool
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def results(self) -> tuple[Figures, ...]:
        """Where figures go that are not those of one running broker: ours, and the official's."""
        names = (contenders.OURS, contenders.OFFICIAL)
        return tuple(Figures(name) for name in names[: 1 + self.with_official])

    @contextmanager
    def brokers(
        self, settings: Mapping[str, object] = {}, *, warm: bool = True
    ) -> Iterator[tuple[Contender, ...]]:
        """Run our broker and the official one with `settings`. The official one has seen sends,
        pulls and pops before, unless `warm` is off."""
        with ExitStack() as cleanup:
            pair = []
            for start in self.starters():
                contender = start(self.directory, settings)
                cleanup.callback(contender.stop)
                pair.append(contender)
            if warm:
                self.warm_up(pair)
            yield tuple(pair)

    def warm_up(self, pair: Sequence[Contender]) -> None:
        """Let the official broker, if it is there, see sends, pulls and pops."""
        for contender in pair[1:]:
            messages = max(int(WARM_UP * self.scale), 2_000)
            contenders.warm_up(contender, self.generator, messages)

    def starters(self) -> tuple[Callable[[Path, Mapping[str, object]], Contender], ...]:
        """What starts the brokers: ours, and the official one if it is measured."""
        starters = (contenders.start_ours, contenders.start_official)
        return starters[: 1 + self.with_official]

    def in_turn(self, pair: Sequence[Contender], measure: Callable[[Contender, int], None]) -> None:
        """Measure each contender in each round, A B A B: what the machine does meanwhile then
        touches both alike."""
        for turn in range(self.rounds):
            for contender in pair:
                clean_slate(self.scale, self.directory)
                measure(contender, turn)

    def load(self, contender: Contender, topic: str, turn: int, *arguments: str) -> dict[str, Any]:
        """Run the load generator; return its line."""
        return run_load(contender, self.generator, Load(arguments, {}, topic), turn)


@dataclass(frozen=True)
class Workload:
    """One thing that users do with a broker.

    `run` measures it and returns the figures: ours, then the official broker's if that was
    measured. It raises RuntimeError, or what the harness raises, when it could not be done.
    """

    name: str
    measures: tuple[Measure, ...]
    run: Callable[[Session], Sequence[Figures]]


def by_loads(
    loads: Callable[[float], tuple[Load, ...]], settings: Mapping[str, object] = {}
) -> Callable[[Session], Sequence[Figures]]:
    """What measures loads of the generator in turn; `loads` makes them for a scale."""

    def run(session: Session) -> Sequence[Figures]:
        def measure(contender: Contender, turn: int) -> None:
            for number, load in enumerate(loads(session.scale)):
                if number:
                    clean_slate(session.scale, session.directory)
                run_load(contender, session.generator, load, turn)

        with session.brokers(settings) as pair:
            session.in_turn(pair, measure)
            return pair

    return run
