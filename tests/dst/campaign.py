"""The command line, and many runs."""

from __future__ import annotations

import argparse
import itertools
import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from . import plan as plans
from . import runs
from .bugs import BUGS
from .engine.scheduler import scheduler
from .plan import Plan
from .shrinking import kinds, shrink
from .simulation import Outcome

SECONDS: Final = 30.0
SEEDS_APART: Final = 1_000_000
MOST_SHOWN: Final = 15
SHRINKING_RUNS: Final = 60
SEEDS_OF_BUG: Final = 10
REGRESSIONS: Final = Path(__file__).parent / "regressions"
"""Plans that failed once, and in `bugs` those that find the planted bug of their name."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dst")
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of faults, virtual")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from `seed` on")
    parser.add_argument("--cpu", type=float, help="stop after so much processor time, seconds")
    parser.add_argument("--double", type=int, help="run each so-many-th seed twice and compare")
    parser.add_argument("--perturb", type=int, default=0, help="shift all addresses")
    parser.add_argument("--plan", type=Path, help="a plan to run, in place of the seed's")
    parser.add_argument("--show-plan", action="store_true")
    parser.add_argument("--stored", action="store_true", help="run all plans that are stored")
    parser.add_argument("--bug", choices=BUGS, default="", help="plant a bug")
    parser.add_argument("--bugs", help="find each of these bugs (a;b;c), or all")
    parser.add_argument("--processes", type=int, default=1, help="at the same time")
    parser.add_argument("--trace", type=Path, help="a file for all steps")
    parser.add_argument("--log", default="CRITICAL", help="level of what the product logs")
    parser.add_argument("--go-on", action="store_true", help="after a seed that fails")
    parser.add_argument(
        "--shrink", type=int, default=SHRINKING_RUNS, metavar="RUNS",
        help="how many runs may make the plan of a failure smaller",
    )  # fmt: skip
    options = parser.parse_args()
    logging.basicConfig(level=options.log, format="%(message)s")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Format())
        handler.setLevel(options.log)  # the simulation looks at errors that are not shown
    if options.processes > 1:
        return _side_by_side(options)
    runs.prepare()
    if options.stored:
        return _run_stored()
    if options.bugs:
        return _find_bugs(options)
    return _run_all(options)


def _run_all(options: argparse.Namespace) -> int:
    seeds = virtual = cpu = 0.0
    failed: list[int] = []
    for seed in itertools.count(options.seed):
        if seeds == options.seeds:
            break
        plan = read(options.plan) if options.plan else plans.draw(seed, options.seconds)
        if options.show_plan:
            print(msgspec.json.format(msgspec.json.encode(plan)).decode())
        outcome = runs.run(plan, options.trace, bug=options.bug, perturb=options.perturb)
        if options.double and seed % options.double == 0:
            again = runs.run(plan, bug=options.bug, perturb=seed % 5000 + 1)
            cpu += again.cpu
            if again.digest != outcome.digest:
                outcome.wrong.append("double: two runs of this seed differ")
        seeds += 1
        virtual += outcome.virtual
        cpu += outcome.cpu
        if outcome.wrong:
            failed.append(seed)
            _show(outcome, options)
            if not options.go_on:
                break
        elif options.seeds == 1:
            print(
                f"seed {seed}: {plan.cluster}, {', '.join(plan.flows)}; {outcome.sent} sent, "
                f"{outcome.delivered} delivered, digest {outcome.digest & (2**64 - 1):016x}"
            )
        if options.cpu and cpu >= options.cpu:
            break
    print(
        f"{seeds:.0f} seeds, {virtual:.0f} virtual s in {cpu:.1f} s of processor time "
        f"({virtual / max(cpu, 1e-9):.1f} a second); failed: {failed or 'none'}",
        flush=True,
    )
    return 1 if failed else 0


def read(path: Path) -> Plan:
    """A plan from a file."""
    return msgspec.json.decode(path.read_bytes(), type=Plan)


def found(outcome: Outcome, bug: str) -> list[str]:
    """What shows a planted bug."""
    return [text for text in outcome.wrong if text.split(" ", 1)[0] in BUGS[bug].checks.split()]


def _find_bugs(options: argparse.Namespace) -> int:
    """Plant one bug after the other, and look for it in seeds that have what it takes. Seeds that
    do not are counted, too."""
    missed = []
    for bug in BUGS if options.bugs == "all" else options.bugs.split(";"):
        cpu, tried = 0.0, 0
        for seed in range(options.seed, options.seed + options.seeds):
            plan = plans.draw(seed, options.seconds)
            if not BUGS[bug].fits(plan):
                continue
            outcome = runs.run(plan, bug=bug)
            cpu, tried = cpu + outcome.cpu, tried + 1
            if shown := found(outcome, bug):
                print(f"{bug}: seed {seed}, {tried} fit, {cpu:.0f} s: {shown[0]}")
                if options.shrink:
                    _shrink(plan, kinds(shown)[0], options.shrink, bug)
                break
        else:
            missed.append(bug)
            print(f"{bug}: not found, {tried} of {options.seeds} seeds fit, {cpu:.0f} s")
    return 1 if missed else 0


def _run_stored() -> int:
    """Run the stored plans: nothing may be wrong, and those of bugs have to find them."""
    failed = cpu = 0.0
    for path in sorted(REGRESSIONS.glob("*.json")):
        outcome = runs.run(read(path))
        cpu += outcome.cpu
        if outcome.wrong:
            failed += 1
            print(f"{path}:", *outcome.wrong[:MOST_SHOWN], sep="\n  ")
    for path in sorted(REGRESSIONS.glob("bugs/*.json")):
        bug = path.stem.replace("-", " ")
        plan = read(path)
        # A change of the code moves what happens in a seed, so some more are tried.
        for seed in range(plan.seed, plan.seed + SEEDS_OF_BUG):
            outcome = runs.run(msgspec.structs.replace(plan, seed=seed), bug=bug)
            cpu += outcome.cpu
            if found(outcome, bug):
                break
        else:
            failed += 1
            print(f"{path} does not find {bug!r}:", *outcome.wrong[:MOST_SHOWN], sep="\n  ")
    print(f"stored plans: {cpu:.1f} s of processor time; failed: {failed:.0f}")
    return 1 if failed else 0


def _side_by_side(options: argparse.Namespace) -> int:
    """Processes with seeds of their own."""
    command = [sys.executable, "-m", "tests.dst", *sys.argv[1:]]
    place = command.index(str(options.seed), 3)
    processes = []
    for number in range(options.processes):
        command[place] = str(options.seed + number * SEEDS_APART)
        processes.append(subprocess.Popen([*command, "--processes", "1"]))
    return max(process.wait() for process in processes)


def _show(outcome: Outcome, options: argparse.Namespace) -> None:
    plan = outcome.plan
    if options.seeds == 1:
        print(*(runs.line(step) for step in outcome.steps), sep="\n")
        print(*outcome.blocked, sep="\n")
    print(f"seed {plan.seed}, {plan.cluster}, {', '.join(plan.flows)}:")
    for fault in plan.faults:
        print(f"  {fault}")
    print(*(f"  {text}" for text in outcome.wrong[:MOST_SHOWN]), sep="\n")
    if len(outcome.wrong) > MOST_SHOWN:
        print(f"  and {len(outcome.wrong) - MOST_SHOWN} more")
    bug = f' --bug "{options.bug}"' if options.bug else ""
    which = f"--plan {options.plan}" if options.plan else f"{plan.seed} --seconds {plan.seconds:g}"
    print(f"again: python -m tests.dst {which}{bug}", flush=True)
    kind = kinds(outcome.wrong)[0]
    if options.shrink and kind != "double:":
        _shrink(plan, kind, options.shrink, options.bug)


def _shrink(plan: Plan, kind: str, most: int, bug: str) -> None:
    """Look for a smaller plan in which the same check fails, and keep it in a file."""
    smaller, count = shrink(plan, lambda plan: kind in kinds(runs.run(plan, bug=bug).wrong), most)
    path = Path(tempfile.gettempdir(), f"dst-{plan.seed}{bug and '-' + bug.replace(' ', '-')}.json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(smaller)) + b"\n")
    print(
        f"smaller, after {count} runs ({kind}; {len(smaller.faults)} of {len(plan.faults)} faults, "
        f"{len(smaller.clients)} of {len(plan.clients)} clients, {smaller.seconds:g} of "
        f"{plan.seconds:g} s):\n"
        f"again: python -m tests.dst --plan {path}" + (f' --bug "{bug}"' if bug else ""),
        flush=True,
    )


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        machine = scheduler.machine
        text = f"{scheduler.now / 1e9:.6f} {machine} {record.levelname} {super().format(record)}"
        return text
