"""One run of the load generator in a round, and what is taken from it."""

from __future__ import annotations

from typing import Any

from .contenders import Contender
from .generator import LoadGenerator
from .measures import BROKER, Load

__all__ = ["run_load"]


def run_load(
    contender: Contender, generator: LoadGenerator, load: Load, turn: int
) -> dict[str, Any]:
    """Run a load on a topic of this round, add its figures, and return the generator's line.

    Raises what `LoadGenerator.run` does.
    """
    broker = contender.broker
    arguments = (broker.broker_name if one == BROKER else one for one in load.arguments)
    line = generator.run(broker.address, f"{load.topic}-{turn}", *arguments)
    contender.refused += line["failed"]
    for key, name in load.figures.items():
        contender.add(key, float(line[name]))
    return line
