"""What is read out of a run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from .scenarios import BAD
from .traffic import Run

__all__ = ["FULLY", "Figures", "figures"]

#: A recovered broker is used fully when it gets this part of an even share.
FULLY = 0.8
#: Seconds over which a share is taken, and between two looks.
WINDOW, STEP = 1.0, 0.1


@dataclass(frozen=True)
class Figures:
    """`p50`, `p99`, `p999`: ms, failed sends included; `bad_share`: attempts at the bad broker of
    100 sends, after a client first failed there and while the trouble lasts; `failed` sends, and of
    those `lost` although a broker would have stored them; `recovery`: seconds until the recovered
    broker is used fully. None: does not apply, or did not happen."""

    sends: int
    p50: float
    p99: float
    p999: float
    bad_share: float | None
    failed: int
    lost: int
    recovery: float | None


def figures(run: Run) -> Figures:
    only = run.scenario.client
    sends = [s for s in run.sends if only is None or s.client == only]
    took = sorted(send.took * 1000 for send in sends)
    failed = [send for send in sends if send.broker is None]

    def percentile(part: float) -> float:
        return took[min(int(len(took) * part), len(took) - 1)]

    return Figures(
        len(sends),
        percentile(0.5),
        percentile(0.99),
        percentile(0.999),
        _bad_share(run),
        len(failed),
        sum(send.savable for send in failed),
        _recovery(run),
    )


def _bad_share(run: Run) -> float | None:
    """Of the troubles in which the broker answers nobody, together."""
    wasted = sends = 0
    for trouble in run.scenario.troubles:
        if trouble.kind == "slow":
            continue
        for client in {send.client for send in run.sends}:
            if trouble.of and client not in trouble.of:
                continue
            attempts = [
                a
                for a in run.attempts
                if a.client == client
                and a.broker == trouble.broker
                and trouble.begin <= a.began < trouble.end
            ]
            detected = min((a.ended for a in attempts if not a.answered), default=trouble.end)
            wasted += sum(a.began >= detected for a in attempts)
            sends += sum(
                s.client == client and detected <= s.began < trouble.end for s in run.sends
            )
    return 100 * wasted / sends if sends else None


def _recovery(run: Run) -> float | None:
    scenario = run.scenario
    if scenario.recovered is None:
        return None
    stored = sorted(
        (send.began + send.took, send.broker)
        for send in run.sends
        if send.broker is not None and (scenario.client is None or send.client == scenario.client)
    )
    times = [at for at, _ in stored]
    even = 1 / scenario.brokers
    at = scenario.recovered
    while at + WINDOW <= scenario.length:
        window = stored[bisect_left(times, at) : bisect_right(times, at + WINDOW)]
        share = sum(broker == BAD for _, broker in window) / max(len(window), 1)
        if share >= FULLY * even:
            return at - scenario.recovered
        at += STEP
    return None
