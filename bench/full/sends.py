"""Sends by the size of a body and by batches, with the flush in the background and at once; from
many connections, and over many topics."""

from __future__ import annotations

from bench.measures import Better, Load, Measure

from .workload import MANY, Workload, by_loads, count

HIGHER, LOWER = Better.HIGHER, Better.LOWER

TOPICS = 256
QUEUES = 8


def _sends(scale: float) -> tuple[Load, ...]:
    def load(key: str, messages: int, *more: str, depth: int = 64) -> Load:
        arguments = (
            "send",
            "-conns",
            "4",
            "-inflight",
            str(depth),
            "-n",
            count(messages, scale, 4),
        )
        return Load((*arguments, *more), {key: "per_second"}, key)

    return (
        load("single", 200_000),
        load("single_binary", 200_000, "-binary"),
        load("small", 200_000, "-size", "100"),
        load("medium", 64_000, "-size", str(16 << 10)),
        # With 64 in flight, 256 MiB would wait in sockets.
        load("large", 1_000, "-size", str(1 << 20), depth=4),
    )


def _batches(scale: float) -> tuple[Load, ...]:
    arguments = ("send", *MANY, "-batch", "32", "-n", count(768_000, scale, 128))
    return (Load(arguments, {"batch": "per_second"}, "batch"),)


def _sync(scale: float) -> tuple[Load, ...]:
    return (
        Load(("send", *MANY, "-n", count(60_000, scale, 4)), {"sync_many": "per_second"}, "many"),
        Load(
            ("send", "-conns", "1", "-inflight", "1", "-n", count(3_000, scale)),
            {"sync_p50": "p50_us"},
            "one",
        ),
        Load(
            ("send", *MANY, "-batch", "32", "-n", count(192_000, scale, 128)),
            {"sync_batch": "per_second"},
            "batch",
        ),
    )


def _clients(scale: float) -> tuple[Load, ...]:
    return (
        Load(
            ("send", "-conns", "64", "-inflight", "1", "-n", count(100_000, scale, 64)),
            {"clients": "per_second"},
            "clients",
        ),
    )


def _topics(scale: float) -> tuple[Load, ...]:
    topics = max(int(TOPICS * min(scale, 1.0)), 2)
    spread = ("-topics", str(topics), "-queues", str(QUEUES))
    return (
        Load(
            ("send", *MANY, *spread, "-n", count(200_000, scale, 4)),
            {"topics": "per_second"},
            "topics",
        ),
    )


SENDS = Workload(
    "sends",
    (
        Measure("single", "single sends, 1 KiB, JSON headers", "msg/s", HIGHER, 2.0),
        Measure("single_binary", "single sends, 1 KiB, binary headers", "msg/s", HIGHER, 1.8),
        Measure("small", "single sends, 100 B", "msg/s", HIGHER, 2.0),
        Measure("medium", "single sends, 16 KiB", "msg/s", HIGHER, 1.5),
        Measure("large", "single sends, 1 MiB", "msg/s", HIGHER, 1.0),
    ),
    by_loads(_sends),
)
BATCHES = Workload(
    "batches",
    (Measure("batch", "batches of 32, 1 KiB", "msg/s", HIGHER, 1.3),),
    by_loads(_batches),
)
SYNC_FLUSH = Workload(
    "sync-flush",
    (
        Measure("sync_many", "SYNC_FLUSH, 4 × 64 in flight", "msg/s", HIGHER, 2.0),
        Measure("sync_p50", "SYNC_FLUSH, one at a time, p50", "µs", LOWER, 0.7),
        Measure("sync_batch", "SYNC_FLUSH, batches of 32", "msg/s", HIGHER, 1.5),
    ),
    by_loads(_sync, {"flushDiskType": "SYNC_FLUSH"}),
)
CLIENTS = Workload(
    "clients-64",
    (Measure("clients", "64 clients, one send at a time each", "msg/s", HIGHER, 1.5),),
    by_loads(_clients),
)
TOPICS_256 = Workload(
    "topics",
    (Measure("topics", f"{TOPICS} topics × {QUEUES} queues", "msg/s", HIGHER, 1.5),),
    by_loads(_topics),
)
