"""Stores due messages in order: together where they fit into one write, otherwise one by one.

Many messages become due at the same time, and nearly all of them are ordinary: their queues exist,
and the store accepts them. Stored together, such a message costs a third of what it costs alone.
Any other message is stored alone, before the messages after it: this keeps the order, and only the
single path has to handle errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.store.writer import Put

#: Limits for one turn of the event loop: messages (which take about 1 ms), and bytes.
TURN: Final = 128
TURN_BYTES: Final = 1 << 20


def store_in_order(
    puts: Sequence[Put | None],
    put_hooks: PutHooks,
    statistics: Statistics,
    done: Callable[[int, int], None],
    alone: Callable[[int], bool],
) -> None:
    """Store a run of messages in order.

    Where `puts` has None, or a message does not fit into a write with others, `alone(n)` is called.
    It stores or drops message n, and returns False to end the run there. `done(first, end)` is
    called when the messages from `first` up to but not including `end` are stored.
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
