"""How long a start takes with 10 GB, and what memory a broker has."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.contenders import SETTLE, Contender, Figures
from bench.measures import Better, Measure
from bench.processes import anonymous_megabytes, resident_megabytes
from bench.starts import Case, make_store

from .workload import MANY, Session, Workload, count

GIGABYTES = 10
#: Messages behind the checkpoint when the broker is killed.
TAIL = 20_000

SENT = 1_000_000  # messages of 1 KiB: 1 GB
QUEUES = 10_000
PER_TOPIC = 8


def _starts(session: Session) -> Sequence[Figures]:
    """Start on copies of one store, which both understand: files of 1 GiB, whole but sparse."""
    made = sparse_store(session, Case(GIGABYTES, PER_TOPIC))
    session.note(f"start: {GIGABYTES} GB of log in sparse files, {TAIL} messages before SIGKILL")

    def measure(contender: Contender, turn: int) -> None:
        contender.broker.process.terminate()
        contender.broker = contender.start()
        contender.add("start_clean", contender.broker.process.waited)
        # A cold JVM refuses messages when more of them wait.
        send = ("send", "-conns", "4", "-inflight", "8", "-n", count(TAIL, session.scale, 4))
        session.load(contender, "tail", turn, *send)
        contender.broker.process.kill()
        contender.broker = contender.start()
        contender.add("start_killed", contender.broker.process.waited)

    with brokers_on(session, made, "started") as pair:
        session.in_turn(pair, measure)
        return pair


def sparse_store(session: Session, case: Case) -> Path:
    """Make a store of files of 1 GiB, whole but sparse; at a small scale it has fewer of them."""
    made = session.directory / f"made-{case.gigabytes}"
    make_store(made, case._replace(gigabytes=max(int(case.gigabytes * min(session.scale, 1)), 2)))
    return made


@contextmanager
def brokers_on(session: Session, made: Path, name: str) -> Iterator[tuple[Contender, ...]]:
    """Run brokers on copies of a store; `name` is that of their directory."""
    with ExitStack() as cleanup:
        pair = []
        for start in session.starters():
            # The first start writes the tables that belong to the store.
            contender = start(session.directory / name, {})
            cleanup.callback(contender.stop)
            pair.append(contender)
            contender.broker.process.terminate()
            assert contender.broker.store is not None
            _copy_sparse(made, contender.broker.store)
            contender.broker = contender.start()
        yield tuple(pair)


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy what a broker reads of a store; its configuration stays."""
    for name in "commitlog", "consumequeue", "index":
        shutil.rmtree(target / name, ignore_errors=True)
        if (source / name).exists():
            subprocess.run(
                ["cp", "-r", "--sparse=always", source / name, target / name], check=True
            )
    for name in "checkpoint", "abort":
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy(source / name, target / name)


def _memory(session: Session) -> Sequence[Figures]:
    """Each round has brokers of its own: what they were asked for before stays in memory."""
    figures = session.results()
    scale = session.scale
    topics = ("-topics", count(QUEUES // PER_TOPIC, min(scale, 1.0), 2), "-queues", str(PER_TOPIC))
    queues = int(topics[1]) * PER_TOPIC
    for turn in range(session.rounds):
        for start, found in zip(session.starters(), figures, strict=True):
            for loads in (
                {"sent": ("send", *MANY, "-n", count(SENT, scale, 4))},
                {"queued": ("send", *MANY, *topics, "-n", count(4 * QUEUES, scale, 4 * queues))},
            ):
                home = session.directory / f"{turn}-{next(iter(loads))}"
                contender = start(home, {})
                try:
                    time.sleep(SETTLE)
                    pid = contender.broker.process.pid
                    found.add("idle_resident", resident_megabytes(pid))
                    found.add("idle_anonymous", anonymous_megabytes(pid))
                    for key, load in loads.items():
                        session.load(contender, key, turn, *load)
                        time.sleep(SETTLE)
                        found.add(f"{key}_anonymous", anonymous_megabytes(pid))
                finally:
                    contender.stop()
                shutil.rmtree(home, ignore_errors=True)
    return figures


STARTS = Workload(
    "starts",
    (
        Measure("start_clean", "start with 10 GB, after a clean stop", "s", Better.LOWER, 0.1),
        Measure("start_killed", "start with 10 GB, after SIGKILL", "s", Better.LOWER, 0.5),
    ),
    _starts,
)
MEMORY = Workload(
    "memory",
    (
        Measure("idle_resident", "resident, idle", "MB", Better.LOWER, 60.0, relative=False),
        Measure("idle_anonymous", "anonymous, idle", "MB", Better.LOWER),
        Measure(
            "sent_anonymous",
            "anonymous, after 1 GB sent",
            "MB",
            Better.LOWER,
            120.0,
            relative=False,
        ),
        Measure(
            "queued_anonymous",
            "anonymous, with 10 thousand queues",
            "MB",
            Better.LOWER,
            250.0,
            relative=False,
        ),
    ),
    _memory,
)
