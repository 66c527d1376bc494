"""Stores and brokers read together by a stream: history from files, the rest from the brokers.

An offset is the same message in both, so a batch has the same rows whichever of the two it reads,
and the checkpoint does not record that. The brokers determine the ends of queues: a queue that both
have is read up to the broker's end, even if its files are longer (the broker lost its newest
messages in a crash, and reuses their offsets). Up to there, unflushed files are read too, because
the broker also serves these messages.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

from pyspark.sql.datasource import InputPartition

from pocketmq.spark.live.hybrid import check_together, cut, together
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.spark.options.options import Options
from pocketmq.spark.streams.stream_brokers import StreamBrokers
from pocketmq.spark.streams.stream_queues import Lose, LoseBetween, QueueEnds, Span
from pocketmq.spark.streams.stream_stores import StreamStores
from pocketmq.store.scan.continuity import Replaced
from pocketmq.store.scan.stream_offsets import Mark, Position, StreamQueue
from pocketmq.store.store_lock import Recovery

log = logging.getLogger(__name__)


class StreamHybrid:
    """The queues of one stream, as `StreamQueues` asks for them.

    Raises:
        OptionError: two stores have the same broker.
    """

    def __init__(self, options: Options, live: LiveOptions) -> None:
        self._options = options
        self._stores = StreamStores(options)
        self._brokers = StreamBrokers(options, live)
        self._held: dict[StreamQueue, QueueEnds] = {}
        self._asked: dict[StreamQueue, QueueEnds] = {}
        self._away: set[str] = set()

    @property
    def brokers(self) -> Collection[str]:
        """The brokers registered at the last `look`. For other brokers, the files do not show where
        the queues end."""
        return self._brokers.brokers

    def where(self, broker: str) -> str:
        """Return the description of a broker for an error, with its store if it has one."""
        return self._stores.where(broker)

    def missing(self, broker: str) -> Exception:
        """Return the error for a broker that is not registered."""
        return self._brokers.missing(broker)

    def check_names(self, lose: Lose) -> None:
        """Raise OptionError for brokers, topics and queues that are named but that neither stores
        nor brokers have."""
        known = together(self._brokers.queues, self._stores.snapshots)
        check_together(known, self._options)

    def look(self, expected: Collection[str] = ()) -> dict[StreamQueue, QueueEnds]:
        """Read the stores, then ask the brokers, whose queues have grown meanwhile.

        Also waits for the brokers of stores. If one stays unreachable, raises the error of
        `missing`, or skips its queues (failOnDataLoss).

        Raises the errors of both `look`s.
        """
        self._held = self._stores.look()
        waited_for = {*expected, *(set(self._stores.brokers) - self._away)}
        self._asked = self._brokers.look(waited_for)
        away = set(self._stores.brokers) - self._brokers.brokers
        for broker in sorted(away - self._away):
            if self._options.fail_on_data_loss:
                raise self.missing(broker)
            log.warning("%s; the stream goes on with the others", self.missing(broker))
        self._away = set(away)
        self._held = {
            name: ends for name, ends in self._held.items() if name.broker not in self._away
        }
        return {name: self._ends(name) for name in sorted(self._held.keys() | self._asked.keys())}

    def _ends(self, name: StreamQueue) -> QueueEnds:
        held, asked = self._held.get(name), self._asked.get(name)
        if held is None or asked is None:
            ends = held or asked
            assert ends is not None
            return ends
        if held.first == held.stored:
            return asked
        return asked._replace(first=min(held.first, asked.first))

    def recovery(self, broker: str) -> Recovery:
        """Return no recovery: a broker that answers has recovered."""
        return Recovery.NONE

    def stored_from(self, queues: Iterable[StreamQueue], time: int) -> Mapping[StreamQueue, int]:
        """Return for each queue the offset of the first message stored at a time (ms) or later."""
        wanted = set(queues)
        in_files = self._stores.stored_from(wanted & self._held.keys(), time)
        at_brokers = self._brokers.stored_from(wanted & self._asked.keys(), time)
        found = {}
        for name in wanted:
            held, asked = self._held.get(name), self._asked.get(name)
            if asked is None or (held is not None and self._decides(held, asked, in_files[name])):
                found[name] = in_files[name]
            else:
                found[name] = at_brokers[name]
        return found

    @staticmethod
    def _decides(held: QueueEnds, asked: QueueEnds, at: int) -> bool:
        """Return whether `at` is still the first offset when the broker's messages are included."""
        return at < held.stored and (at > held.first or held.first <= asked.first)

    def log_begins(self, queues: Collection[StreamQueue]) -> dict[StreamQueue, int | None]:
        """Return for each queue where the log that has its first record begins; None if that is
        unknown."""
        in_files = []
        for queue in queues:
            held, asked = self._held.get(queue), self._asked.get(queue)
            if held is not None and (
                asked is None or held.first <= min(asked.first, held.stored - 1)
            ):
                in_files.append(queue)
        found = self._stores.log_begins(in_files)
        return found | self._brokers.log_begins([each for each in queues if each not in found])

    def marks(self, offsets: Mapping[StreamQueue, int]) -> Mapping[StreamQueue, Mark]:
        """Return the known marks of messages before some offsets."""
        in_files = {
            name: offset
            for name, offset in offsets.items()
            if name in self._held and self._held[name].first < offset <= self._held[name].stored
        }
        found = self._stores.marks(in_files)
        others = {name: offset for name, offset in offsets.items() if name not in found}
        return {**found, **self._brokers.marks(others)}

    def replaced(self, read: Mapping[StreamQueue, Position]) -> Mapping[StreamQueue, Replaced]:
        """Return the queues that do not match the marks of positions. The broker decides, since the
        files may be an older copy; if it does not have the message, the files decide."""
        at_brokers = {name: at for name, at in read.items() if name in self._asked}
        found = dict(self._brokers.replaced(at_brokers))
        in_files = {
            name: at
            for name, at in read.items()
            if name not in found
            and name in self._held
            and at.mark is not None
            and self._held[name].first <= at.mark.offset < self._held[name].stored
        }
        return self._stores.replaced(in_files) | found

    def partitions(
        self, wanted: Mapping[StreamQueue, Span], lose: LoseBetween
    ) -> Iterator[InputPartition]:
        """Split the ranges to read from queues that the last `look` found."""
        from_files: dict[StreamQueue, Span] = {}
        from_brokers: list[tuple[StreamQueue, Span]] = []
        for name, span in wanted.items():
            held = self._held.get(name)
            inner, rest = cut(span, (0, 0) if held is None else (held.first, held.stored))
            if inner[0] < inner[1]:
                from_files[name] = inner
            for part in rest:
                if name in self._asked:
                    from_brokers.append((name, part))
                else:
                    reason = "the files do not have them, and the broker has no such queue"
                    lose(name, *part, reason)
        yield from self._stores.partitions(from_files, lose)
        yield from self._brokers.split(from_brokers, lose)
