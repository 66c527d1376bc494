"""Stores messages that are due, in their order: together where one write takes them, else alone.

Messages that become due at the same time are many, and nearly all of them are alike: they go to
queues that have been written to, and the store takes them. Together, such a run costs each of them
a third of what it costs alone. What is not alike is stored alone, where the others wait for it: so
the order stays, and the careful path is the only one that deals with what goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.store.writer import Put

#: What one turn of the event loop does before it serves others: so many messages (in about 1 ms),
#: or the first of them up to so many bytes.
TURN: Final = 128
TURN_BYTES: Final = 1 << 20


def store_in_order(
    puts: Sequence[Put | None],
    put_hooks: PutHooks,
    statistics: Statistics,
    done: Callable[[int, int], None],
    alone: Callable[[int], bool],
) -> None:
    """Store a run of messages, each of them after the ones before it.

    A message that is None is for `alone`, and so is each one that does not fit into a write with
    others. `alone(n)` stores the n-th one, or drops it; it returns False to end the run there.
    `done(first, end)` is called when those from the first one on, before the end, are stored.
    """
    at = 0
    while at < len(puts):
        run = _up_to_none(puts, at)
        stored = put_hooks.put_accepted(run) if run else []
        if stored:
            statistics.count_puts(
                (put[0], size, put[3]) for put, (_, size, _) in zip(run, stored, strict=False)
            )
            done(at, at + len(stored))
            at += len(stored)
        if at < len(puts):
            if not alone(at):
                return
            at += 1


def _up_to_none(puts: Sequence[Put | None], first: int) -> list[Put]:
    run = []
    for put in puts[first:]:
        if put is None:
            break
        run.append(put)
    return run
