"""Bugs to be found: one line of the product each, changed while it is imported.

Each is one that somebody could write. A simulation that does not find them proves nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

from .plan import Plan


class Bug(NamedTuple):
    """`old`, which is in the source of `module` once, becomes `new`.

    Attributes:
        checks: which of them may find it.
        fits: whether a plan has what it takes; others are not tried.
    """

    module: str
    old: str
    new: str
    checks: str
    fits: Callable[[Plan], bool]


BUGS: Final = {
    "log not synced": Bug(
        "pocketmq.store.recovery.flush",
        "            file.sync()\n",
        "            pass\n",
        "A1 A2 L",
        lambda plan: plan.cuts_power and plan.cluster == "single",
    ),
    "answer before the flush": Bug(
        "pocketmq.store.recovery.flush",
        "if end_offset <= (self.flushed if self._loop is None else self._told):",
        "if end_offset <= self._log.written:",
        "A1 A2",
        lambda plan: plan.cuts_power and plan.synchronous,
    ),
    "names not synced": Bug(
        "pocketmq.store.files",
        "        for directory in unsynced:\n            self.sync_directory(directory)\n\n"
        "    def rename(",
        "\n    def rename(",
        "A1 A2 L",
        lambda plan: plan.cuts_power and plan.cluster == "single",
    ),
    "confirmed by one": Bug(
        "pocketmq.broker.controller.replica",
        "max(self._confirmed, min(acks))",
        "max(self._confirmed, max(acks))",
        "A1 A2 A9",
        lambda plan: plan.cluster == "group",
    ),
    "replicas not waited for": Bug(
        "pocketmq.broker.replication.replica_waits",
        "while waits and self._replicated(waits[0][0], waits[0][1]):",
        "while waits:",
        "A1 A2",
        lambda plan: plan.lost_master,
    ),
    "commit of what is only read": Bug(
        "pocketmq.client.consumer.fetch.process_queue",
        "return min(first, self.buffer[0].queue_offset) if self.buffer else first",
        "return self.next_offset",
        "A2 A7",
        lambda plan: any(f.kind == "kill" and f.target.startswith("push") for f in plan.faults),
    ),
    "lock of another": Bug(
        "pocketmq.broker.tables.queue_locks",
        "known.client_id == client_id or now - known.renewed > self._live_ms",
        "known.client_id == client_id or now - known.renewed < self._live_ms",
        "A8 A3",
        lambda plan: sum(client.role == "orderly" for client in plan.clients) > 1,
    ),
    "delayed too early": Bug(
        "pocketmq.broker.delayed.schedule",
        "            if due > now:\n",
        "            if due > now + 1000:\n",
        "A4",
        lambda plan: "delayed" in plan.flows and all(f.kind != "clock" for f in plan.faults),
    ),
    "transaction not ended": Bug(
        "pocketmq.broker.processors.send.end_transaction",
        "        self._ops.end(half)\n        size = result",
        "        size = result",
        "A5",
        lambda plan: "transacted" in plan.flows,
    ),
    "revived too far": Bug(
        "pocketmq.broker.pop.revive",
        "settled = revive_log.settled_to - 1",
        "settled = revive_log.settled_to",
        "A2 A6 L",
        lambda plan: (
            "popped" in plan.flows
            and any(f.kind in ("kill", "power") and f.target in plan.brokers for f in plan.faults)
        ),
    ),
    "route lost with an old connection": Bug(
        "pocketmq.namesrv.route_table",
        "        self._disconnect(at)\n        self._by_channel.setdefault(",
        "        self._by_channel.setdefault(",
        "L",
        lambda plan: plan.cluster != "single",
    ),
    "sends not woken": Bug(
        "pocketmq.client.producer.outages",
        "                    waiter.set_result(None)\n",
        "                    pass\n",
        "L",
        lambda plan: any(f.kind == "kill" and f.target in plan.brokers for f in plan.faults),
    ),
}


class _Planting(importlib.abc.MetaPathFinder):
    """Finds the one module, and has it compiled with the bug."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._bug.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Changed(fullname, spec.origin, self._bug)
        return spec


class _Changed(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, bug: Bug) -> None:
        super().__init__(name, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        return compile(changed(source, self._bug), self.path, "exec", dont_inherit=True)


def changed(source: str, bug: Bug) -> str:
    """The source with the bug. Raises ValueError if its place is not there, or not the only one."""
    if source.count(bug.old) != 1:
        raise ValueError(f"{bug.module} has {source.count(bug.old)} times {bug.old!r}")
    return source.replace(bug.old, bug.new)


def plant(bug: Bug) -> None:
    """Before the product is imported."""
    if bug.module in sys.modules:
        raise RuntimeError(f"{bug.module} is imported already")
    sys.meta_path.insert(0, _Planting(bug))
