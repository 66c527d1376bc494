"""One plan, from the first boot to the verdict."""

from __future__ import annotations

import gc
import logging
import shutil
import signal
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pocketmq.broker.broker import Broker
from pocketmq.store.writer import TOO_FEW

from . import checkers, members
from .clients import Auditor, Clients
from .cluster import Cluster
from .engine import patches
from .engine.loop import SimLoop
from .engine.scheduler import SECOND, Scheduler
from .faults import Faults
from .figures import figures_of
from .history import History
from .plan import Plan

BOOT: Final = 60 * SECOND
SENDS: Final = 30 * SECOND
"""How long after the last fault every producer has to succeed."""
JOINED: Final = 60 * SECOND
"""How long after that every member of a group has what the others have."""
READY: Final = 60 * SECOND
"""How long after that every member says that it is ready."""
ANSWERS: Final = 20 * SECOND
"""How long after the producers stopped every call has ended."""
DRAIN: Final = 120 * SECOND
"""How long after the last send everything has to have come."""
QUIET: Final = 11 * SECOND
"""How long something may be unwritten: flushCommitLogThoroughInterval."""
LOOKS: Final = 4
"""How often members are asked again: brokers write for themselves as well, and a slave whose
connection has died may need some seconds to be back."""
READ: Final = 60 * SECOND
LOOK: Final = SECOND // 2
BAD_DISKS: Final = ("disk error", "full disk", "bit flip")
RECOVERY: Final = "pocketmq.store.recovery."
EXPLAINED: Final = ("a restart ended this master's epoch", TOO_FEW)
"""What the product logs as an error, and restarts and elections bring about."""


@dataclass
class Outcome:
    """Attributes:
    wrong: what was promised and not kept; empty is good.
    digest: of all steps and of what clients saw: the same in each run of a plan.
    """

    plan: Plan
    wrong: list[str] = field(default_factory=list)
    digest: int = 0
    virtual: float = 0.0
    cpu: float = 0.0
    sent: int = 0
    delivered: int = 0
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)


class Hung(BaseException):
    """The budget of processor time is used up."""


class Simulation:
    """Runs a plan once, in this process, which is used up by it."""

    def __init__(self, plan: Plan, scheduler: Scheduler, root: Path) -> None:
        scheduler.begin(plan.seed)
        self._plan = plan
        self._scheduler = scheduler
        self._root = root
        self.history = History()
        self._late: list[str] = []
        self._next_look = 0
        self._bad_disks = {f.target for f in plan.faults if f.kind in BAD_DISKS}
        shutil.rmtree(root, ignore_errors=True)
        self.cluster = Cluster(plan, scheduler, root, self.report)
        self._auditor = Auditor(plan, self.cluster, self.history)
        self._clients = Clients(plan, self.cluster, self.history)
        self._faults = Faults(plan, self.cluster, self._clients, self.history)

    def report(self, machine: str, what: str, text: str, error: BaseException | None) -> None:
        if machine in self._bad_disks:
            return  # it says so, and may refuse to start
        if what.startswith(RECOVERY) and self.history.power_cuts:
            return  # it says what was lost
        told = "".join(traceback.format_exception(error)) if error is not None else ""
        self.history.errors.append(f"{machine}, {what}: {text}\n{told}".strip())

    def run(self, budget: float) -> Outcome:
        """Run to the end; a run that takes more processor time than `budget` seconds has hung."""
        outcome = Outcome(self._plan)
        product = logging.getLogger("pocketmq")
        product.addHandler(_Errors(self))
        if not product.isEnabledFor(logging.ERROR):
            product.setLevel(logging.ERROR)
        gc.collect()
        gc.disable()  # what it would find, and when, is not the seed's
        began = patches.real_cpu_time()
        signal.signal(signal.SIGPROF, _hang)
        signal.setitimer(signal.ITIMER_PROF, budget)
        try:
            self._pass()
        except Hung:
            self._late.append(f"L the run took more than {budget:g} s of processor time")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        outcome.wrong = [f"guard: {what}" for what in patches.escapes]
        outcome.wrong += self._late
        outcome.wrong += members.disagree(self.cluster, self.history.flips)
        outcome.wrong += checkers.wrong(self._plan, self.history)
        outcome.cpu = patches.real_cpu_time() - began
        seen = (self.history.sends, self.history.deliveries, self.history.commits)
        outcome.digest = hash((self._scheduler.digest, repr(seen)))
        outcome.virtual = self._scheduler.now / SECOND
        outcome.sent = len(self.history.sends)
        outcome.delivered = len(self.history.deliveries)
        outcome.steps = list(self._scheduler.steps)
        outcome.blocked = list(self._blocked())
        shutil.rmtree(self._root, ignore_errors=True)
        return outcome

    def _wait(self, limit: int, done: Callable[[], bool], late: str) -> bool:
        """Let time pass until `done`, at most `limit`; then it is `late`."""
        if self._scheduler.run(self._scheduler.now + limit, done):
            return True
        self._next_look = 0
        if done():
            return True
        self._late.append(f"L {late} within {limit // SECOND} s")
        return False

    def _pass(self) -> None:
        plan, scheduler, clients, auditor = (
            self._plan, self._scheduler, self._clients, self._auditor,
        )  # fmt: skip
        for name in list(self.cluster.machines):
            if name not in {client.name for client in plan.clients}:
                scheduler.after(scheduler.chance.random() * SECOND, self.cluster.boot, name)
        if not self._wait(BOOT, lambda: auditor.ready, "the cluster was not ready"):
            return
        for client in plan.clients:
            scheduler.after(scheduler.chance.random() * SECOND, self.cluster.boot, client.name)
        self._faults.begin()
        scheduler.run(scheduler.now + int(plan.seconds * SECOND))
        if plan.lost_master:
            self._faults.lose_master()
        self._faults.end()
        replies = any(client.role == "answer" for client in plan.clients)
        producers = {
            client.name
            for client in plan.clients
            if client.role == "produce" and (client.flow != "asked" or replies)
        }
        self._wait(
            SENDS, lambda: producers <= clients.succeeded.keys(), "not all producers could send"
        )
        self._wait(JOINED, lambda: self.cluster.in_sync, "not all members were in the SyncStateSet")
        if not self._wait(READY, lambda: not auditor.unready, "not all members were ready"):
            self._late[-1] += f": {auditor.unready}"
            if self._plan.cluster == "slave" and self.history.full_disks:
                # The slave may lack what the master has removed from its log; then somebody has to
                # empty its store.
                self._late.pop()
        clients.producing = False
        self._wait(ANSWERS, self._all_answered, "not all sends had an answer")
        if not self._wait(DRAIN, self._all_came, "not everything came") and self._may_lose:
            self._late.pop()  # what is missing is for the checkers to judge
        # Some may be of a send that ended unknown, or may be lost: the checkers judge that, too.
        scheduler.run(scheduler.now + DRAIN, self._none_comes_again)
        self._ask_members()
        for _ in range(LOOKS):
            kept = checkers.nothing_is_kept(plan, self.history)
            untrue = checkers.figures_are_true(plan, self.history)
            if not any(kept) and not any(untrue):
                break
            scheduler.run(scheduler.now + QUIET)
            self._ask_members()
        auditor.finishing = True
        if self._wait(READ, lambda: auditor.done, "not all groups were at the end of all topics"):
            return
        self._late[-1] += f": {auditor.lags}, {auditor.error!r}"
        auditor.hurried = True
        self._wait(READ, lambda: auditor.done, "the topics could not be read")

    def _ask_members(self) -> None:
        """Ask every member that runs for its metrics, and note what they have to be."""
        cluster = self.cluster
        figures = self.history.figures = []

        async def ask(name: str, broker: Broker) -> None:
            figures.append(await figures_of(name, broker))

        members = cluster.running_brokers()
        for name, broker in members:
            process = cluster.machines[name].process
            assert process is not None
            process.loop.tell(_begin, process.loop, partial(ask, name, broker))
        self._wait(ANSWERS, lambda: len(figures) == len(members), "not all members told metrics")
        self.history.facts = cluster.facts()

    @property
    def _may_lose(self) -> bool:
        """Whether power was cut while messages were acknowledged before they were on the disk,
        groups may have read at the lost master what the slave did not have, a full disk made a
        broker remove its oldest messages, or a member began with the newest file of the log."""
        history, plan = self.history, self._plan
        cut = bool(history.power_cuts) and not plan.synchronous
        shorter = plan.settings.get("syncFromLastFile") == "true" and any(
            fault.kind == "new disk" for fault in plan.faults
        )
        return cut or shorter or bool(history.losses or history.full_disks)

    def _open_sends(self) -> list[str]:
        """Those that a living producer waits for."""
        found = []
        for send in self.history.sends.values():
            process = self.cluster.machines[send.client].process
            life = int(send.name.split(".")[1])
            if send.ended is None and process is not None and process.life == life:
                found.append(send.name)
        return found

    def _looks(self) -> bool:
        """Whether it is time to look through the history: after each event, it would take longer
        than everything else."""
        if self._scheduler.now < self._next_look:
            return False
        self._next_look = self._scheduler.now + LOOK
        return True

    def _all_answered(self) -> bool:
        return self._looks() and not self._open_sends()

    def _all_came(self) -> bool:
        """Whether each group has got everything that was acknowledged, as far as one can tell."""
        if not self._looks():
            return False
        wanted: dict[str, dict[str, int]] = {}
        for send in self.history.sends.values():
            lost = send.transactional and send.fate != "commit"
            if checkers.promised(self._plan, send) and not lost and send.topic != "scratch":
                wanted.setdefault(send.topic, {})[send.name] = send.began
        groups = {c.reader: c.flow for c in self._plan.clients if c.reader}
        handled = self.history.handled
        for group, topic in groups.items():
            left_out = self.history.skipped(group)
            found = wanted.get(topic, {})
            if any(found[name] > left_out for name in found.keys() - handled[group]):
                return False
        return True

    def _none_comes_again(self) -> bool:
        """Whether what came to a group was handled in the end: what failed comes later again."""
        handled = self.history.handled
        return self._looks() and all(
            delivery.name in handled[delivery.group]
            for delivery in self.history.deliveries
            if delivery.place.topic != "scratch" and not self.history.skipped(delivery.group)
        )

    def _blocked(self) -> list[str]:
        return [
            f"{machine.name} {strand.name} waits for {strand.waits_for}"
            for machine in self.cluster.machines.values()
            if machine.process is not None
            for strand in machine.process.strands
            if strand.waits_for
        ]


class _Errors(logging.Handler):
    """Keeps what the product logs as an error."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._report = simulation.report
        self._scheduler = simulation.cluster.scheduler

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if not any(explained in text for explained in EXPLAINED):
            self._report(str(self._scheduler.machine), record.name, text, error)


def _begin(loop: SimLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.create_task(work())


def _hang(*_: object) -> None:
    raise Hung
