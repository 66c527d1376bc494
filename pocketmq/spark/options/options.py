"""The options of the data source, named as in Spark's Kafka source where that has the same.

Names are case-insensitive. An invalid option raises an error with its name and value: silently
ignoring a misspelt option would read the wrong data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from pocketmq.archive.archives import is_archive
from pocketmq.archive.errors import WrongLocation
from pocketmq.archive.location import Location
from pocketmq.message.limits import clusters_of, is_internal_topic
from pocketmq.spark.by_broker import ALL_BROKERS, BrokerBounds, ByBroker
from pocketmq.spark.options.live_options import LIVE_NAMES, LiveOptions
from pocketmq.spark.options.option_error import OptionError, by_proper_name, shown
from pocketmq.store.local_path import is_remote
from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST, wrong_ms
from pocketmq.store.scan.queues.selection import Range
from pocketmq.store.scan.records.topic_table import configured_queues

__all__ = ["NAMES", "OptionError", "Options", "Use"]

NAMES: Final = (
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeSystemTopics",
    "includeMetadata",
    "decompress",
    "pushFilters",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "readUnflushed",
    *LIVE_NAMES,
)
T = TypeVar("T")

_ONLY_IN_BATCHES: Final = ("endingOffsets", "endingTimestamp", "pushFilters")
_ONLY_IN_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "readUnflushed",
)
_PATHS: Final = ("path", "paths")
_NOT_WITH_FILES: Final = ("tags", "sql")
_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_NO_STORE: Final = (
    "the directory of a store is needed, or the URL of an archive: load(DIR); or the option "
    "namesrv, to read from running brokers"
)
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")


class Use(Enum):
    """The use of the options. Spark requests the schema before it tells which."""

    SCHEMA = "schema"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options of a read.

    Attributes:
        roots, archives: of the stores to read as one; none if only brokers are asked.
        live: how to read from brokers; None if only stores are read.
        topics: those subscribed by name; None to read all that the next two allow.
        topic_pattern: topics whose whole name matches.
        queues: assigned queue ids by topic and broker.
        starting, ending: the bounds of the offsets.
        stored: the range of store times (ms).
        min_partitions, max_records_per_partition, fail_on_data_loss, include_system_topics,
            include_metadata, decompress: the options of these names.
        push_filters: whether to push filters; None: only where that is safe.
        max_offsets_per_trigger, min_offsets_per_trigger, read_unflushed: the options of these
            names.
        max_trigger_delay: in seconds.
        clusters: of the brokers of the stores, as far as known.
        parallelism: number of partitions if there is enough to read for each.
    """

    roots: tuple[Path, ...]
    archives: tuple[Location, ...]
    live: LiveOptions | None
    topics: frozenset[str] | None
    topic_pattern: re.Pattern[str] | None
    queues: ByBroker[frozenset[int]] | None
    starting: BrokerBounds
    ending: BrokerBounds
    stored: Range
    min_partitions: int
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_system_topics: bool
    include_metadata: bool
    decompress: bool
    push_filters: bool | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float
    read_unflushed: bool
    clusters: frozenset[str]
    parallelism: int

    @property
    def reads_stores(self) -> bool:
        """Whether stores or archives are read."""
        return bool(self.roots or self.archives)

    @classmethod
    def parse(
        cls, options: Mapping[str, str], use: Use = Use.SCHEMA, parallelism: int | None = None
    ) -> Options:
        """Read options as Spark gives them. `parallelism`: of the session, if known; else the
        number of cores of this machine. Raises OptionError."""
        given = by_proper_name(options, NAMES, shown)
        _check_use(given, use)
        live = LiveOptions.parse(given)
        if live is not None:
            _check_live(given)
        chosen = [name for name in _CHOICES if name in given]
        if len(chosen) > 1:
            raise OptionError(chosen[1], given[chosen[1]], f"cannot go with option {chosen[0]}")
        text = _Reader(given)
        starting = text.offsets("startingOffsets", *_STARTS[use])
        ending = text.offsets("endingOffsets", "latest", ("latest",))
        stored = Range(text.time("startingTimestamp"), text.time("endingTimestamp"))
        # As in the Kafka source, times override offsets.
        if stored.start is not None:
            starting = BrokerBounds(EARLIEST)
        if stored.stop is not None:
            ending = BrokerBounds(LATEST)
        most, least = text.number("maxOffsetsPerTrigger"), text.number("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise OptionError(
                "minOffsetsPerTrigger",
                given["minOffsetsPerTrigger"],
                f"need at most maxOffsetsPerTrigger, which is {most}",
            )
        only_brokers = live is not None and not any(map(given.__contains__, _PATHS))
        roots, archives = ((), ()) if only_brokers else text.stores()
        return cls(
            roots=roots,
            archives=archives,
            live=live,
            topics=text.topics("subscribe"),
            topic_pattern=text.pattern("subscribePattern"),
            queues=text.assignment("assign"),
            starting=starting,
            ending=ending,
            stored=stored,
            min_partitions=text.number("minPartitions") or 1,
            max_records_per_partition=text.number("maxRecordsPerPartition"),
            fail_on_data_loss=text.flag("failOnDataLoss", True),
            include_system_topics=text.flag("includeSystemTopics", False),
            include_metadata=text.flag("includeMetadata", False),
            decompress=text.flag("decompress", True),
            push_filters=text.pushing("pushFilters"),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay=text.duration("maxTriggerDelay", "15m") / 1000,
            read_unflushed=text.flag("readUnflushed", False),
            clusters=clusters_of(topic for root in roots for topic in configured_queues(root)),
            parallelism=parallelism or os.cpu_count() or 1,
        )

    def wants(self, broker: str, topic: str, queue_id: int) -> bool:
        """Return whether a queue is requested. Naming an internal topic requests it."""
        if self.queues is not None:
            return queue_id in (self.queues.get(topic, broker) or ())
        return self.wants_topic(topic)

    def wants_topic(self, topic: str) -> bool:
        """Return whether queues of a topic may be requested."""
        if self.queues is not None:
            return topic in self.queues.table
        if self.topics is not None:
            return topic in self.topics
        if self.topic_pattern is not None and not self.topic_pattern.fullmatch(topic):
            return False
        return self.include_system_topics or not is_internal_topic(topic, self.clusters)

    def named_topics(self) -> frozenset[str]:
        """Return the topics that must exist, because they are named."""
        if self.queues is not None:
            return frozenset(self.queues.table)
        return self.topics or frozenset()


def _check_use(given: Mapping[str, str], use: Use) -> None:
    """Raise OptionError for an option that does not apply to this use."""
    if use is Use.STREAM:
        for name in _ONLY_IN_BATCHES:
            if name in given:
                raise OptionError(name, given[name], "a stream does not have this option")
    elif use is Use.BATCH:
        for name in _ONLY_IN_STREAMS:
            if name in given:
                raise OptionError(name, given[name], "only a stream (readStream) has this option")


def _check_live(given: Mapping[str, str]) -> None:
    """Raise OptionError for options that cannot be combined with `namesrv`."""
    if "readUnflushed" in given:
        raise OptionError("readUnflushed", given["readUnflushed"], "cannot go with option namesrv")
    path = next((name for name in _PATHS if name in given), None)
    if path is None:
        return
    for name in _NOT_WITH_FILES:
        if name in given:
            reason = f"cannot go with option {path}: only brokers filter by it"
            raise OptionError(name, given[name], reason)


_ANCHORS: Final = {"earliest": EARLIEST, "latest": LATEST}
#: The default of startingOffsets and its allowed words, as in Spark's Kafka source.
_STARTS: Final[dict[Use, tuple[str, tuple[str, ...]]]] = {
    Use.SCHEMA: ("earliest", ("earliest", "latest")),
    Use.BATCH: ("earliest", ("earliest",)),
    Use.STREAM: ("latest", ("earliest", "latest")),
}


class _Reader:
    """Reads the values of options; absent ones are None or the default."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given

    def stores(self) -> tuple[tuple[Path, ...], tuple[Location, ...]]:
        """Return the directories of stores, and the archives, that `load(A)`, `load("A,B")`,
        `load(["A","B"])` or a glob names. Each is returned once, even if it has several names:
        reading a store twice would return every message twice."""
        roots: dict[Path, Path] = {}
        archives: dict[Location, Location] = {}
        for place in self._places():
            if isinstance(place, Path) and is_archive(place):
                place = Location(str(place.resolve()))
            if isinstance(place, Path):
                roots.setdefault(place.resolve(), place)
            else:
                archives.setdefault(place, place)
        return tuple(roots.values()), tuple(archives.values())

    def _places(self) -> Iterator[Path | Location]:
        name = "paths" if "path" not in self._given and "paths" in self._given else "path"
        given = self._given.get(name, "")
        places = self._json(name, list) if name == "paths" else given.split(",")
        if not given or not places:
            raise OptionError(name, given, _NO_STORE)
        for text in places:
            place = str(text).strip()
            if not place:  # an empty path would be the current directory
                raise self._error(name, "one of the directories has no name")
            if is_remote(place):
                yield self._location(name, place)
                continue
            if place.startswith("file:"):
                place = unquote(urlsplit(place).path)
            place = str(Path(place).expanduser())
            # A name may contain glob characters.
            if not has_magic(place) or Path(place).exists():
                yield Path(place).absolute()
                continue
            found = [Path(path).absolute() for path in sorted(glob(place))]
            if not found:
                raise self._error(name, f"nothing matches {place}")
            yield from found

    def _location(self, name: str, url: str) -> Location:
        try:
            return Location(url)
        except WrongLocation as error:
            raise OptionError(name, error.shown, error.reason) from None

    def topics(self, name: str) -> frozenset[str] | None:
        if name not in self._given:
            return None
        topics = frozenset(filter(None, map(str.strip, self._given[name].split(","))))
        if not topics:
            raise self._error(name, "at least one topic is needed")
        return topics

    def pattern(self, name: str) -> re.Pattern[str] | None:
        if name not in self._given:
            return None
        try:
            return re.compile(self._given[name])
        except re.error as error:
            raise self._error(name, f"not a regular expression: {error}") from None

    def assignment(self, name: str) -> ByBroker[frozenset[int]] | None:
        if name not in self._given:
            return None
        wanted = (
            'queue ids by topic, such as {"TopicA":[0,1],"TopicB":[2]}, or by topic and broker, '
            'such as {"TopicA":{"broker-a":[0,1]}}'
        )

        def ids(value: Any) -> frozenset[int]:
            if not isinstance(value, list) or not all(type(number) is int for number in value):
                raise self._error(name, f"need {wanted}")
            return frozenset(value)

        found = {}
        for topic, value in self._json(name, dict, wanted).items():
            by_broker = value if isinstance(value, dict) else {ALL_BROKERS: value}
            found[topic] = self._of_brokers(name, by_broker, ids, is_named=by_broker is value)
        return ByBroker(found)

    def offsets(self, name: str, default: str, words: tuple[str, ...]) -> BrokerBounds:
        """Read one of `words`, or offsets in JSON, where -2 means `earliest` and -1 `latest`.
        Queues that the JSON does not name are read from the earliest offset or to the latest."""
        text = self._given.get(name, default).strip()
        if text.lower() in words:
            return BrokerBounds(_ANCHORS[text.lower()])
        anchors = {_ANCHORS[word] for word in words}
        otherwise = min(anchors)
        wanted = (
            f"{' or '.join(words)}, or offsets by topic and queue, such as "
            f'{{"TopicA":{{"0":23,"1":{otherwise}}}}}, or by topic, broker and queue, such as '
            f'{{"TopicA":{{"broker-a":{{"0":23}}}}}}'
        )

        def by_queue(value: Any) -> dict[int, int]:
            if not isinstance(value, dict):
                raise self._error(name, f"need {wanted}")
            for queue_id, offset in value.items():
                fits = type(offset) is int and (offset >= 0 or offset in anchors)
                if not queue_id.isdecimal() or not fits:
                    raise self._error(name, f"need {wanted}")
            return {int(queue_id): offset for queue_id, offset in value.items()}

        found = {}
        for topic, value in self._json(name, dict, wanted).items():
            # Broker names may be numbers too: the type of the value distinguishes them from queue
            # ids.
            is_named = isinstance(value, dict) and dict in map(type, value.values())
            by_broker = value if is_named else {ALL_BROKERS: value}
            found[topic] = self._of_brokers(name, by_broker, by_queue, is_named=is_named)
        return BrokerBounds(otherwise, ByBroker(found))

    def _of_brokers(
        self, name: str, values: dict[str, Any], read: Callable[[Any], T], *, is_named: bool
    ) -> dict[str, T]:
        """Apply `read` to the values of each broker."""
        if is_named and ALL_BROKERS in values:
            raise self._error(name, "one of the brokers has no name")
        return {broker: read(value) for broker, value in values.items()}

    def time(self, name: str) -> int | None:
        """Read a time, given as Unix ms or in ISO 8601 (without a zone: local time), as Unix ms."""
        if name not in self._given:
            return None
        text = self._given[name].strip()
        if re.fullmatch(r"-?[0-9]+", text):
            why = wrong_ms(int(text))
            if why:
                raise self._error(name, why)
            return int(text)
        try:
            return round(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError):  # the latter for a local time in the year 1
            raise self._error(name, "need milliseconds since 1970 or an ISO 8601 time") from None

    def number(self, name: str) -> int | None:
        if name not in self._given:
            return None
        text = self._given[name].strip()
        if not text.isdecimal() or int(text) == 0:
            raise self._error(name, "need a number above 0")
        return int(text)

    def duration(self, name: str, default: str) -> int:
        """Read a number with a unit as Spark writes it (`90s`, `15m`; ms without one), as ms."""
        match = re.fullmatch(r"([0-9]+) *([a-z]*)", self._given.get(name, default).strip().lower())
        if match is None or match[2] not in _UNITS_MS:
            raise self._error(name, "need a time such as 500ms, 90s, 15m or 1h")
        return int(match[1]) * _UNITS_MS[match[2]]

    def flag(self, name: str, default: bool) -> bool:
        text = self._given.get(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise self._error(name, "need true or false")
        return text == "true"

    def pushing(self, name: str) -> bool | None:
        """Whether to push filters; None for `auto` (which is also the default)."""
        value = self._given.get(name, "auto").strip().lower()
        choices = {"auto": None, "onequery": True, "false": False}
        if value == "true":  # the option's name in older versions did not warn of it
            raise self._error(
                name,
                "need oneQuery in its place, if the DataFrame is used once, in one query: any "
                "other use of it would lack rows",
            )
        if value not in choices:
            raise self._error(name, "need auto, oneQuery or false")
        return choices[value]

    def _json(self, name: str, kind: type, wanted: str = "a JSON list of paths") -> Any:
        try:
            value = json.loads(self._given[name])
        except ValueError:
            value = None
        if not isinstance(value, kind):
            raise self._error(name, f"need {wanted}")
        return value

    def _error(self, name: str, wanted: str) -> OptionError:
        return OptionError(name, self._given[name], wanted)
