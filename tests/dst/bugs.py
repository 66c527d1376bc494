"""Bugs to be found: one line of the product each, changed in the process that runs a plan.

Each is one that somebody could write. A simulation that does not find them proves nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

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
        "        if not self._ordered:\n",
        "        if self._answer(self._log.written, True) or not self._ordered:\n",
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
        # The broker is back before the name server closes the connection of its former life.
        lambda plan: any(
            (f.kind == "power" and f.target == "broker0")
            or (f.kind == "partition" and {f.target, *f.others} >= {"broker0", "names0"})
            for f in plan.faults
        ),
    ),
    "outage without an end": Bug(
        "pocketmq.client.producer.outages",
        "        outage = self.known.pop(address, None)\n",
        "        outage = self.known.get(address)\n",
        "L",
        lambda plan: any(f.kind == "kill" and f.target in plan.brokers for f in plan.faults),
    ),
    "late message of a deleted topic": Bug(
        "pocketmq.broker.destinations",
        "        if accepted_at < topics.created(topic) or (\n            origin",
        "        if (\n            origin",
        "D1",
        lambda plan: any(client.delayed for client in plan.clients),
    ),
    "lock by the wall clock": Bug(
        "pocketmq.broker.tables.tables",
        "QueueLocks(monotonic,",
        "QueueLocks(clock,",
        "A8",
        lambda plan: (
            sum(client.role == "orderly" for client in plan.clients) > 1
            and any(f.kind == "clock" and f.target in plan.brokers for f in plan.faults)
        ),
    ),
    "commit after a rollback": Bug(
        "pocketmq.broker.processors.send.end_transaction",
        "        if not self._ops.is_open(half):\n",
        "        if False:\n",
        "A5",
        lambda plan: any(client.flow == "transacted" and client.fails for client in plan.clients),
    ),
    "slave that is never ready": Bug(
        "pocketmq.broker.health_check",
        "unregistered=self._unregistered(),",
        "unregistered=self._unregistered() or store.role_refusal,",
        "L",
        lambda plan: plan.cluster != "single" and not plan.lost_master,
    ),
    "full disk that is ready": Bug(
        "pocketmq.broker.health",
        "        if self.free < LEAST_FREE:\n",
        "        if self.free < 0:\n",
        "H",
        lambda plan: any(f.kind == "full disk" for f in plan.faults),
    ),
    "acknowledged with the next one": Bug(
        "pocketmq.broker.pop.check_point",
        "self.bit_map |= 1 << index",
        "self.bit_map |= 3 << index",
        "A2 A6 L",
        lambda plan: "popped" in plan.flows,
    ),
    "failure that counts as done": Bug(
        "pocketmq.client.consumer.dispatch.send_back",
        "            return False\n        return True\n\n    async def _return",
        "            return True\n        return True\n\n    async def _return",
        "A2 L",
        lambda plan: (
            any(client.fails and client.role == "push" for client in plan.clients)
            and any(f.kind == "kill" and f.target in plan.brokers for f in plan.faults)
        ),
    ),
    "divergent log not cut": Bug(
        "pocketmq.broker.controller.master_link",
        "        return place if place is not None and place < self._log.end else None",
        "        return None",
        "A1 A9 A10 L",  # mostly the member is refused until its log is cut
        lambda plan: plan.cluster == "group",
    ),
    "handed over while it is worked on": Bug(
        "pocketmq.client.consumer.rebalance.queue_ownership",
        "        await self._idle(pq)\n        if monotonic()",
        "        if monotonic()",
        "A8",
        lambda plan: sum(client.role == "orderly" for client in plan.clients) > 1,
    ),
    "timed too early": Bug(
        "pocketmq.broker.delayed.timer",
        "time >= self._now_slot or due.collecting",
        "time > self._now_slot or due.collecting",
        "A4",
        lambda plan: "delayed" in plan.flows and all(f.kind != "clock" for f in plan.faults),
    ),
    "queue of nobody": Bug(
        "pocketmq.client.consumer.rebalance.strategies",
        "start + least + (index < extra)]",
        "start + least]",
        "A2 L",
        lambda plan: any(client.name.endswith("-1") and client.group for client in plan.clients),
    ),
    "settings that are forgotten": Bug(
        "pocketmq.broker.processors.admin.settings",
        "                await asyncio.to_thread(self._live.keep, changes)\n",
        "                pass\n",
        "S",
        lambda plan: (
            plan.cluster == "single"
            and any("set" in client.operations for client in plan.clients)
            and any(f.kind == "kill" and f.target in plan.brokers for f in plan.faults)
        ),
    ),
    "drained in secret": Bug(
        "pocketmq.broker.broker",
        '        if "brokerPermission" in keys:\n',
        '        if "brokerPermissions" in keys:\n',
        "S",
        lambda plan: any("drain" in client.operations for client in plan.clients),
    ),
    "commit that forgets the other queues": Bug(
        "pocketmq.broker.tables.consumer_offset",
        "        if queues is None:\n            queues = self.table[key] = {}\n",
        "        if queue_id not in (queues or ()):\n            queues = self.table[key] = {}\n",
        "P",
        lambda plan: (
            plan.queues > 1 and any(client.role in ("push", "pull") for client in plan.clients)
        ),
    ),
    "right that stays": Bug(
        "pocketmq.auth.store",
        "            self.acls.pop(name, None)\n        self._changed()\n\n    def adopt",
        "            pass\n        self._changed()\n\n    def adopt",
        "G",
        lambda plan: plan.is_signed,
    ),
    "recall that is forgotten": Bug(
        "pocketmq.broker.delayed.timer",
        "        due.recall(key, unit.physical_offset)\n",
        "        pass\n",
        "R",
        lambda plan: plan.cluster == "single" and any(client.recalls for client in plan.clients),
    ),
    "clone of the beginning": Bug(
        "pocketmq.broker.tables.consumer_offset",
        "            self.table[key] = dict(queues)\n",
        "            self.table[key] = dict.fromkeys(queues, 0)\n",
        "P",
        lambda plan: any("clone" in client.operations for client in plan.clients),
    ),
    "reply of another": Bug(
        "pocketmq.client.producer.request_reply",
        "        waiting = self._waiting.get(correlation_id)\n",
        "        waiting = next(iter(self._waiting.values()), None)\n",
        "Q",
        lambda plan: "asked" in plan.flows,
    ),
    "broadcast that is shared": Bug(
        "pocketmq.client.consumer.push_subscriptions",
        "        shared = self._retry_topic is not None\n",
        "        shared = True\n",
        "A2 L",
        lambda plan: sum(client.role == "broadcast" for client in plan.clients) > 1,
    ),
    "children by the order of their answers": Bug(
        "pocketmq.client.batch_protocol",
        "            for opaque, child in enumerate(children):\n"
        "                answer = answers.get(opaque)\n",
        "            for opaque, (child, answer) in enumerate(zip(children, answers.values())):\n",
        "A1 C",
        lambda plan: "parents" in plan.flows,
    ),
    "acknowledged in name only": Bug(
        "pocketmq.proxy.service.consuming",
        "                await self._acknowledge(client, group, topic, handle)\n",
        "",
        "A6",
        lambda plan: plan.has_proxies,
    ),
    "disk that stays full": Bug(
        "pocketmq.store.writer",
        "return time.monotonic() >= self._retry_at and self._recover()",
        "return bool(self._retry and time.monotonic() >= self._retry_at and self._recover())",
        "L",
        lambda plan: any(f.kind == "full disk" for f in plan.faults),
    ),
    "damage that is served": Bug(
        "pocketmq.store.queue.damaged_entries",
        "        if not crc:\n            return entry\n        at = ",
        "        if crc:\n            return entry\n        at = ",
        "A1 A2 L",
        lambda plan: any(f.kind == "bit flip" for f in plan.faults),
    ),
    "damage that nobody notices": Bug(
        "pocketmq.message.record_layout",
        "if check_crc and body and crc32(body) & CRC_MASK != head[2]:",
        "if check_crc and body and crc32(body) & CRC_MASK < 0:",
        "A1 A2",
        lambda plan: any(f.kind == "bit flip" for f in plan.faults),
    ),
    "connections that are counted for ever": Bug(
        "pocketmq.remoting.serving.server",
        "        self.connections.discard(connection)\n",
        "        pass\n",
        "H",
        lambda plan: any(f.kind in ("leave", "kill") for f in plan.faults),
    ),
    "ready to send alone": Bug(
        "pocketmq.broker.metrics.health_metrics",
        "int(health.ready))\n",
        "int(health.accepts_sends))\n",
        "H",
        lambda plan: plan.cluster != "single" and not plan.lost_master,
    ),
    "sends that are counted for ever": Bug(
        "pocketmq.broker.acknowledge.group_commit",
        "            self._add(-count, -size)\n",
        "            self._add(-1, -size)\n",
        "M",
        lambda plan: plan.synchronous and "parents" in plan.flows,
    ),
    # Not one of the product: the simulation has to notice it.
    "clock of the real world": Bug(
        "pocketmq.remoting.monotonic",
        "time.monotonic_ns()",
        "time.clock_gettime_ns(time.CLOCK_MONOTONIC)",
        "guard:",
        lambda plan: True,
    ),
}


def changed(source: str, bug: Bug) -> str:
    """The source with the bug, on the same lines. Raises ValueError if its place is not there, or
    not the only one."""
    if source.count(bug.old) != 1:
        raise ValueError(f"{bug.module} has {source.count(bug.old)} times {bug.old!r}")
    return source.replace(bug.old, "\n" * (bug.old.count("\n") - bug.new.count("\n")) + bug.new)


def plant(bug: Bug) -> None:
    """Change the functions of this process, in which the product is imported."""
    module = sys.modules[bug.module]
    path = str(module.__file__)
    source = Path(path).read_text()
    right, wrong = (
        dict(_functions(compile(text, path, "exec", dont_inherit=True)))
        for text in (source, changed(source, bug))
    )
    for name, code in wrong.items():
        if code != right[name]:
            _function(module, name).__code__ = code


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Those of a module or a class body, by qualified name."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & inspect.CO_OPTIMIZED:
                yield inner.co_qualname, inner
            else:
                yield from _functions(inner)


def _function(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, classmethod | staticmethod):
        found = found.__func__
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType), name
    return function
