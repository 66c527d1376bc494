"""Makes a plan that fails smaller, as long as the same check fails: delta debugging.

A plan is smaller with fewer faults, flows, clients, machines and settings, fewer messages, and less
time. Its seed stays, so that what is left of it goes wrong in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Final

from .plan import Client, Plan

KEPT_SETTINGS: Final = ("brokerRole", "brokerId", "enableControllerMode", "vipChannelEnable")
"""Without these it would be another cluster."""
SHORTEST: Final = 0.5
SLOWEST: Final = 0.5
"""Messages a second."""


def kinds(wrong: list[str]) -> list[str]:
    """The checks that failed: A1, L, and so on."""
    return list(dict.fromkeys(text.partition(" ")[0] for text in wrong))


def shrink(plan: Plan, fails: Callable[[Plan], bool], most: int) -> tuple[Plan, int]:
    """Return a smaller plan that `fails`, and the number of runs it took, at most `most`."""
    runs = 0
    shorter = True
    while shorter:
        shorter = False
        for smaller in _smaller(plan):
            if runs == most:
                return plan, runs
            runs += 1
            if fails(smaller):
                plan, shorter = smaller, True
                break
    return plan, runs


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with something left out, those that leave out most first."""
    count = len(plan.faults)
    size = count
    while size:
        for at in range(0, count, size):
            yield _with(plan, faults=plan.faults[:at] + plan.faults[at + size :])
        size //= 2
    if len(plan.flows) > 1:
        for flow in plan.flows:
            yield _without(plan, [client for client in plan.clients if client.flow == flow])
    last = max((fault.at for fault in plan.faults), default=0.0)
    for seconds in (max(last + 0.001, SHORTEST), plan.seconds / 2):
        if SHORTEST <= seconds < plan.seconds:
            kept = [fault for fault in plan.faults if fault.at <= seconds]
            yield _with(plan, seconds=round(seconds, 3), faults=kept)
    for client in plan.clients:
        if len(plan.clients) > 1:
            yield _without(plan, [client])
    for number, client in enumerate(plan.clients):
        if client.rate > SLOWEST:
            smaller = _with(plan)
            smaller.clients[number].rate = client.rate / 2
            yield smaller
    if plan.lost_master:
        yield _with(plan, lost_master=False)
    if plan.name_servers > 1:
        yield _without_second_name_server(plan)
    if plan.queues > 1:
        yield _with(plan, queues=1)
    if any(client.fails for client in plan.clients):
        smaller = _with(plan)
        for client in smaller.clients:
            client.fails = 0.0
        yield smaller
    for name in plan.settings:
        if name not in KEPT_SETTINGS:
            rest = {key: value for key, value in plan.settings.items() if key != name}
            yield _with(plan, settings=rest)


def _with(plan: Plan, **fields: object) -> Plan:
    changed = deepcopy(plan)
    for name, value in fields.items():
        setattr(changed, name, deepcopy(value))
    return changed


def _without(plan: Plan, clients: list[Client]) -> Plan:
    gone = {client.name for client in clients}
    smaller = _with(plan, clients=[c for c in plan.clients if c.name not in gone])
    return _without_machines(smaller, gone)


def _without_second_name_server(plan: Plan) -> Plan:
    gone = set(plan.name_server_machines[1:])
    return _without_machines(_with(plan, name_servers=1), gone)


def _without_machines(plan: Plan, gone: set[str]) -> Plan:
    """Leave machines out of the faults as well."""
    faults = []
    for fault in plan.faults:
        had = bool(fault.others)
        fault.others = [name for name in fault.others if name not in gone]
        if fault.target not in gone and (fault.others or not had):
            faults.append(fault)
    plan.faults = faults
    return plan
