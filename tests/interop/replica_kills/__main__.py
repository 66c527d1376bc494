"""`python -m tests.interop.replica_kills --pair ours-official --rounds 20`."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.interop.harness import ours
from tests.interop.harness.process import killed_at_the_end
from tests.interop.harness.replicas import Group

from .kills import Kills


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.replica_kills")
    parser.add_argument("--pair", default="ours-ours", help="master-slave, of ours and official")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round (3)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    master, slave = options.pair.split("-")
    with (
        tempfile.TemporaryDirectory(prefix="pocketmq-kills-") as directory,
        killed_at_the_end(),
    ):
        group = Group(Path(directory), ours.start_name_server(Path(directory)))
        kills = Kills(group, master, slave, options.seed)
        for number in range(options.rounds):
            kills.round(options.seconds)
            print(
                f"{number + 1} rounds, {len(kills.acknowledged)} acknowledged, "
                f"{kills.unconfirmed} not confirmed, {len(kills.faults)} faults", flush=True,
            )  # fmt: skip
        kills.check_all()
    print(f"{options.pair}, seed {options.seed}: {len(kills.faults)} faults")
    print(*kills.faults[:10], sep="\n")
    return bool(kills.faults)


if __name__ == "__main__":
    raise SystemExit(main())
