"""Plans a read of files and brokers together: records that the files of a broker have are read from
them, the rest from the broker of the same name.

In each queue the files have one contiguous range of offsets, so the boundary is exact: every offset
is read from one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql.datasource import InputPartition

from pocketmq.spark.live.partition import LiveRange
from pocketmq.spark.live.planning import Lose, Seen, check_names, look, named_loss, range_of
from pocketmq.spark.live.queues import LiveQueue
from pocketmq.spark.live.splitting import split
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.spark.options.option_error import OptionError, two_of_one
from pocketmq.spark.options.options import Options
from pocketmq.spark.slice_partition import SlicePartition
from pocketmq.spark.store_plans import limits_per_store, request_of
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.offsets import CLOCK_STEP_MS
from pocketmq.store.scan.planning.plan import plan
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.scanned_store import ScannedStore
from pocketmq.store.scan.stream_offsets import StreamQueue

Span = tuple[int, int]
Wants = Callable[[str, str, int], bool]


def hybrid_partitions(
    options: Options,
    live: LiveOptions,
    stores: Sequence[ScannedStore],
    wants: Wants,
    selection: Selection,
    lose: Lose,
) -> list[InputPartition]:
    """Return partitions of files and of brokers.

    Args:
        wants, selection, lose: as for `live_ranges`.

    Raises what `live_ranges` raises; OptionError also for two stores of one broker.
    """
    of_broker: dict[str, ScannedStore] = {}
    for store in stores:
        other = of_broker.setdefault(store.broker_name, store)
        if other is not store:
            raise two_of_one(store.broker_name, str(store.files), str(other.files))
    times = selection.store_timestamp
    seen = look(options, live, wants, times)
    known = together(seen.queues, of_broker)
    check_together(known, options)
    from_files: dict[str, dict[StreamQueue, tuple[int, int]]] = {}
    from_brokers: list[LiveRange] = []
    at_brokers = {queue.name: queue for queue in seen.queues}
    for name, queue in sorted(known.items()):
        if not wants(name.broker, name.topic, name.queue_id):
            continue
        held = _held(name, of_broker)
        within = Range(
            _stored_from(name, times.start, -CLOCK_STEP_MS, of_broker, seen, seen.begins),
            _stored_from(name, times.stop, CLOCK_STEP_MS, of_broker, seen, seen.ends),
        )
        wanted = range_of(queue, options, selection.queue_offset & within, lose)
        inner, rest = cut((wanted.start, wanted.stop), held)
        if inner[0] < inner[1]:
            from_files.setdefault(name.broker, {})[name] = inner
        from_brokers += [
            _without_gap(wanted._replace(start=start, stop=stop), at_brokers[name], lose)
            for start, stop in rest
        ]
    limits = limits_per_store(options, max(len(from_files) + bool(from_brokers), 1))
    partitions: list[InputPartition] = [
        SlicePartition(of_broker[broker].files, slices)
        for broker, spans in from_files.items()
        for slices in plan(of_broker[broker], request_of(spans), limits, named_loss(broker, lose))
    ]
    return [*partitions, *split(from_brokers, limits)]


def cut(wanted: Span, held: Span) -> tuple[Span, list[Span]]:
    """Return the part of `wanted` to read from files, which have `held`, and the rest: the spans
    before and after it, if not empty."""
    (start, stop), (first, end) = wanted, held
    if max(start, first) >= min(stop, end):
        return (start, start), [wanted] if start < stop else []
    rest = [(start, first), (end, stop)]
    return (max(start, first), min(stop, end)), [part for part in rest if part[0] < part[1]]


def check_together(known: Mapping[StreamQueue, LiveQueue], options: Options) -> None:
    """Raise OptionError for brokers, topics and queues that are named but do not exist."""
    missing = sorted(options.named_topics() - {name.topic for name in known})
    if missing:
        option = "subscribe" if options.topics is not None else "assign"
        raise OptionError(option, missing[0], "neither the stores nor the brokers have this topic")
    check_names(list(known.values()), options)


def together(
    queues: Iterable[LiveQueue], stores: Mapping[str, ScannedStore]
) -> dict[StreamQueue, LiveQueue]:
    """Return the queues with the offsets that brokers and files have together."""
    known = {queue.name: queue for queue in queues}
    for broker, store in stores.items():
        for (topic, queue_id), found in store.queues.items():
            first, end = found.min_offset, found.max_offset
            name = StreamQueue(topic, broker, queue_id)
            queue = known.get(name)
            if queue is None or queue.min_offset == queue.max_offset == 0:
                known[name] = LiveQueue(broker, topic, queue_id, first, end)
            elif first < end:
                first = min(first, queue.min_offset)
                known[name] = replace(
                    queue, min_offset=first, max_offset=max(end, queue.max_offset)
                )
    return known


def _held(name: StreamQueue, stores: Mapping[str, ScannedStore]) -> Span:
    """Return the offsets that files have of a queue."""
    store = stores.get(name.broker)
    found = None if store is None else store.queues.get((name.topic, name.queue_id))
    return (0, 0) if found is None else (found.min_offset, found.max_offset)


def _stored_from(
    name: StreamQueue,
    time: int | None,
    step: int,
    stores: Mapping[str, ScannedStore],
    seen: Seen,
    at_brokers: dict[StreamQueue, int],
) -> int | None:
    """Return the offset of the first message stored at a time (ms) plus `step` or later; None
    without a time."""
    if time is None:
        return None
    first, end = _held(name, stores)
    if first < end:
        store = stores[name.broker]
        at = store.first_stored_from(store.queues[name.topic, name.queue_id], time + step)
        older = any(q.name == name and q.min_offset < first for q in seen.queues)
        if at < end and not (older and at == first):
            return at
    return at_brokers.get(name, end)


def _without_gap(part: LiveRange, queue: LiveQueue, lose: Lose) -> LiveRange:
    """Return the part of a range that the broker has; messages that are neither there nor in files
    are lost."""
    if part.start >= queue.min_offset:
        return part
    end = min(part.stop, queue.min_offset)
    reason = f"the files do not have them, and the queue begins at {queue.min_offset}"
    error = RecordsLost(part.topic, part.queue_id, part.start, end - 1, reason)
    named_loss(part.broker, lose)(end - part.start, error)
    return part._replace(start=end)
