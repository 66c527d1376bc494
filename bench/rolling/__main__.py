"""Restart three brokers one after the other while producers send and consumers come and go."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console

from bench.rolling.load import Kind, Load
from bench.rolling.run import Plan, Report, roll
from bench.work_directory import work_directory
from tests.interop.harness.official import PROJECT, Unavailable


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rolling", description=__doc__)
    parser.add_argument("--brokers", choices=("ours", "official"), default="ours", help="(ours)")
    parser.add_argument("--seconds", type=float, default=180.0, help="of sending (180)")
    parser.add_argument("--rate", type=float, default=20_000.0, help="messages/s in all (20000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of a body (256)")
    parser.add_argument("--kill", action="store_true", help="restart by SIGKILL, not SIGTERM")
    parser.add_argument("--keep", type=Path, help="keep all files here, in a new directory")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(highlight=False)
    load = Load(seconds=options.seconds, rate=options.rate, size=options.size)
    with work_directory("pocketmq-rolling-", options.keep) as directory:
        plan = Plan.of(load, kill=options.kill)
        try:
            report = asyncio.run(roll(options.brokers, plan, directory, console.print))
        except Unavailable as missing:
            console.print(f"no run: {missing}")
            return 1
    show(report, console)
    path = PROJECT / "bench" / "results" / f"rolling-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    console.print(f"written to {path}")
    return 0 if report.holds else 1


def show(report: Report, console: Console) -> None:
    """Print the report, its tables as markdown."""
    console.print(
        f"\n{report.make}: {report.seconds:.0f} s, {report.wanted_rate:,.0f} messages/s wanted, "
        f"{report.sent_rate:,.0f} acknowledged; {report.guests} consumers joined and left, "
        f"{report.killed} of them killed\n"
    )
    print("| | without order | in order by key |\n|---|---|---|")
    findings = [report.findings[kind] for kind in Kind]
    for name in ("sent", "acknowledged", "lost", "unacknowledged", "stored", "unhandled"):
        print(f"| {name} | " + " | ".join(f"{getattr(found, name):,}" for found in findings) + " |")
    for title, name in ("stored twice", "stored_twice"), ("delivered twice", "delivered_twice"):
        for cause in sorted({cause for found in findings for cause in getattr(found, name)}):
            counts = (f"{getattr(found, name).get(cause, 0):,}" for found in findings)
            print(f"| {title}: {cause} | " + " | ".join(counts) + " |")
    violations = ("–" if f.violations is None else f"{f.violations:,}" for f in findings)
    print("| order violations | " + " | ".join(violations) + " |")
    for index, title in enumerate(("p50", "p99")):
        latencies = (report.latencies[kind][index] for kind in Kind)
        figures = ("–" if at is None else f"{1e3 * at:,.1f}" for at in latencies)
        print(f"| send {title}, ms | " + " | ".join(figures) + " |")
    print("\n| broker | away, s | of that until its end |\n|---|---|---|")
    for restart in report.restarts:
        ending = restart.ended - restart.begin
        print(f"| {restart.broker} | {restart.back - restart.begin:.2f} | {ending:.2f} |")
    console.print(f"\nfailed sends by cause: {report.errors or 'none'}")
    for found in findings:
        for line in found.first_violations:
            console.print(line)


if __name__ == "__main__":
    sys.exit(main())
