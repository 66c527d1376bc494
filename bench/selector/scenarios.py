"""What happens to the brokers while clients send."""

from __future__ import annotations

from dataclasses import dataclass

from .brokers import Trouble

__all__ = ["BAD", "Scenario", "scenarios"]

#: The broker that has the trouble where one has.
BAD = "b0"


@dataclass(frozen=True)
class Scenario:
    """`troubles` by broker; `recovered`: when the bad broker is well for good, seconds, or None;
    `client`: whose sends are counted where only one client has trouble."""

    name: str
    length: float
    troubles: tuple[Trouble, ...] = ()
    recovered: float | None = None
    client: int | None = None
    brokers: int = 3

    @property
    def broker_names(self) -> tuple[str, ...]:
        return tuple(f"b{i}" for i in range(self.brokers))


def scenarios(length: float) -> tuple[Scenario, ...]:
    """All of them, each `length` seconds long: the trouble begins at a sixth of it and is over
    for good at two thirds."""
    begin, end = length / 6, length * 2 / 3
    names = ("b0", "b1", "b2")

    def one(name: str, kind: str, **more: object) -> Scenario:
        trouble = Trouble(BAD, begin, end, kind, **more)  # type: ignore[arg-type]
        client = 0 if kind == "cut" else None
        return Scenario(name, length, (trouble,), end, client)

    flaps = tuple(Trouble(BAD, at, at + 3.0, "hung") for at in _steps(begin, end - 3.0, 6.0))
    restarts = tuple(
        Trouble(name, begin + i * length / 6, begin + i * length / 6 + 4.0, "dead")
        for i, name in enumerate(names)
    )
    return (
        Scenario("steady", length),
        one("one slow", "slow", extra=0.3),
        one("one very slow", "slow", extra=0.7),
        Scenario("one flapping", length, flaps, flaps[-1].end),
        one("one dead", "dead"),
        one("one hung", "hung"),
        Scenario(
            "all slow", length, tuple(Trouble(n, 0, length, "slow", factor=4.0) for n in names)
        ),
        Scenario("rolling restart", length, restarts, restarts[0].end),
        one("partition of one client", "cut", of=frozenset({0})),
        Scenario(
            "three of five hang",
            length,
            tuple(Trouble(name, begin, end, "hung") for name in names),
            end,
            brokers=5,
        ),
    )


def _steps(begin: float, end: float, step: float) -> list[float]:
    return [begin + i * step for i in range(int((end - begin) // step) + 1)]
