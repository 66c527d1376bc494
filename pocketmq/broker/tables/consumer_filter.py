"""The SQL92 expressions of groups' subscriptions, saved in config/consumerFilter.json.

They are in heartbeats. A pull without its own expression uses the expression in its group's last
heartbeat. When the last member of a group leaves, or a group unsubscribes from a topic, the
expression is dead; it is removed after filterDataCleanTimeSpan. Reference: broker
ConsumerFilterManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.bloom import BloomFilter, BloomFilterData
from pocketmq.limited_log import LimitedLog, shown
from pocketmq.message import properties as names
from pocketmq.message.sql_filter import SqlFilter, SqlSyntaxError, compile_sql, known_sql
from pocketmq.message.sql_filter.expression import MAX_COST
from pocketmq.message.tags import TagExpression
from pocketmq.remoting.bodies.heartbeat import SubscriptionData
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.budget import text_bytes
from pocketmq.store.config_file import ConfigFile, ConfigFileError, keep_unknown

log = logging.getLogger(__name__)

TAG: Final = "TAG"
SQL92: Final = "SQL92"
#: The most bytes of all expressions with their names and overhead; above it, none is added. The
#: content of the file takes as many, and its next one.
MAX_BYTES: Final = 32 << 20
OVERHEAD: Final = 1000
_SHORTEST: Final = 4  # characters of the shortest comparison and its operator
#: The most characters of new expressions that are compiled for one heartbeat, of all its groups
#: together; the others are compiled for the next one.
NEW_CHARACTERS: Final = 32 << 10
#: The longest expression that is compiled at once, in characters. A shorter one counts as so many.
AT_ONCE: Final = 64
#: The new expressions of a heartbeat that are compiled at once: each takes up to half a
#: millisecond.
MOST_AT_ONCE: Final = 8
#: Expressions that were alive when the broker stopped count as dead since this long before its
#: start (ms).
DEAD_BEFORE_START: Final = 30_000


def is_tag_type(expression_type: str | None) -> bool:
    """Tell whether an expression is by tags; None or empty means TAG."""
    return expression_type in (None, "", TAG)


def codes_of(expression: str) -> frozenset[int] | None:
    """Return the hashes of the tags in an expression; None for all messages.

    Raises TagExpressionError.
    """
    return _codes(expression) if len(expression) <= _USUAL_TAGS else _codes_of_many(expression)


def _codes_of(expression: str) -> frozenset[int] | None:
    return TagExpression(expression).codes or None


# Consumers repeat the same few expressions in every request, so short ones are cached. Those with
# many tags take up to a third of a megabyte.
_USUAL_TAGS: Final = 512  # characters
_codes = lru_cache(maxsize=1024)(_codes_of)
_codes_of_many = lru_cache(maxsize=16)(_codes_of)


def filter_not_supported(what: str | None) -> RemotingError:
    """Return the error for an unsupported filter, with the setting that enables it, if any."""
    remark = f"The broker does not support consumer to filter message by {shown(str(what))}"
    if what == SQL92:
        remark += ": it has enablePropertyFilter=false"
    return RemotingError(ResponseCode.SYSTEM_ERROR, remark)


class ConsumerFilterData(msgspec.Struct, rename="camel"):
    """One group's expression for one topic. Times are in Unix ms.

    `client_version` is the version of the subscription (its time); a `dead_time` of 0 means alive.
    """

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: int
    client_version: int
    dead_time: int = 0
    bloom_filter_data: BloomFilterData | None = None

    @property
    def dead(self) -> bool:
        """Whether no consumer uses it any longer."""
        return self.dead_time >= self.born_time

    def fields(self) -> dict[str, Any]:
        """Return the fields in the official broker's format."""
        return {**msgspec.to_builtins(self), "dead": self.dead}


class NewExpressions:
    """The new expressions of a heartbeat that may be compiled for it."""

    __slots__ = ("_left", "_texts")

    def __init__(self) -> None:
        self._left = NEW_CHARACTERS
        # What is compiled already stays so as long as it is here.
        self._texts: dict[str, SqlFilter | SqlSyntaxError | None] = {}

    def add(self, text: str) -> None:
        """Note an expression, if there are not too many before it."""
        if self._left > 0 and text not in self._texts:
            self._left -= max(len(text), AT_ONCE)
            self._texts[text] = known_sql(text)

    def __contains__(self, text: str) -> bool:
        """Return whether the expression may be compiled."""
        return text in self._texts

    def to_compile(self) -> list[str]:
        """Return those that are to be compiled in steps before they are registered."""
        unknown = [text for text, known in self._texts.items() if known is None]
        return unknown if len(unknown) > MOST_AT_ONCE or any(map(takes_long, unknown)) else []


class ConsumerFilters:
    """The filter table of one broker; `clock` gives milliseconds; for `max_bytes` see
    `MAX_BYTES`."""

    def __init__(
        self,
        config: BrokerConfig,
        path: Path,
        clock: Callable[[], int],
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._config = config
        self._file = ConfigFile(path, "consumer filters")
        self._clock = clock
        self._log = LimitedLog(log)
        self._bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        # group → topic → filter, since heartbeats and pulls look up by group.
        self._groups: dict[str, dict[str, ConsumerFilterData]] = {}
        # Unknown fields of entries, from other releases, by topic and group.
        self._unknown: dict[tuple[str, str], dict[str, Any]] = {}
        self._dirty = False
        self._bytes = 0

    # --- the file -----------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file, and mark all expressions as dead. Raises ConfigFileError."""
        known = set(ConsumerFilterData.__struct_encode_fields__)
        died = self._clock() - DEAD_BEFORE_START
        by_topic = self._file.load().get("filterDataByTopic") or {}
        self._dirty = self._file.stale
        try:
            for topic, entry in by_topic.items():
                for group, fields in (entry.get("groupFilterData") or {}).items():
                    data = msgspec.convert(fields, ConsumerFilterData, strict=False)
                    data.dead_time = data.dead_time or max(died, data.born_time)
                    self._put(group, topic, data)
                    unknown = {key: value for key, value in fields.items() if key not in known}
                    if unknown:
                        self._unknown[topic, group] = unknown
        except (AttributeError, msgspec.ValidationError) as error:
            raise ConfigFileError(self._file.path, str(error)) from None

    def unsaved(self) -> bytes | None:
        """Return the new content of the file; None if nothing changed since the last call."""
        self._forget_dead(self._config.filter_data_clean_time_span)
        if not self._dirty:
            return None
        self._dirty = False
        by_topic: dict[str, dict[str, Any]] = {}
        for group, topics in self._groups.items():
            for topic, data in topics.items():
                entry = by_topic.setdefault(topic, {"groupFilterData": {}, "topic": topic})
                unknown = self._unknown.get((topic, group), {})
                entry["groupFilterData"][group] = keep_unknown(data.fields(), unknown)
        return self._file.encode({"filterDataByTopic": by_topic})

    async def save(self) -> None:
        """Write consumerFilter.json in a thread if something changed. Raises OSError."""
        content = self.unsaved()
        if content is not None:
            try:
                await asyncio.to_thread(self._file.write, content)
            except OSError:
                self._dirty = True
                raise

    def _forget_dead(self, age: int) -> None:
        """Remove the expressions that have been dead for `age` ms."""
        now = self._clock()
        for group, topics in list(self._groups.items()):
            for topic, data in list(topics.items()):
                if data.dead and now - data.dead_time >= age:
                    self._forget(group, topic)

    def _put(self, group: str, topic: str, data: ConsumerFilterData) -> None:
        topics = self._groups.setdefault(group, {})
        old = topics.get(topic)
        self._bytes += _weight(data) - (_weight(old) if old is not None else 0)
        topics[topic] = data

    def _forget(self, group: str, topic: str) -> None:
        topics = self._groups[group]
        self._bytes -= _weight(topics.pop(topic))
        if not topics:
            del self._groups[group]
        self._unknown.pop((topic, group), None)
        self._dirty = True

    # --- subscriptions of consumers -----------------------------------------------------------

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], new: NewExpressions
    ) -> None:
        """Set the expressions of a heartbeat's subscriptions; invalid ones, and new ones that are
        not among `new`, are ignored."""
        subscribed = set()
        for subscription in subscriptions:
            subscribed.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription, new)
        for topic, data in self._groups.get(group, {}).items():
            if topic not in subscribed and not data.dead:
                self._bury(data)

    def find_new(
        self, group: str, subscriptions: Iterable[SubscriptionData], new: NewExpressions
    ) -> None:
        """Add the expressions that `register` would compile to those of other groups in `new`."""
        for subscription in subscriptions:
            text = subscription.sub_string
            if text and not is_tag_type(subscription.expression_type):
                old = self.get(group, subscription.topic)
                if old is None or not _stays(old, subscription):
                    new.add(text)

    def unregister(self, group: str) -> None:
        """Mark the expressions of `group` as dead: its last member left."""
        for data in self._groups.get(group, {}).values():
            if not data.dead:
                self._bury(data)

    def get(self, group: str, topic: str) -> ConsumerFilterData | None:
        """Return the last expression of `group` for `topic`, dead or alive."""
        return self._groups.get(group, {}).get(topic)

    def accept_retried(self, group: str, properties: Mapping[str, str]) -> bool:
        """Tell whether a message of the retry topic passes the filter of `group`.

        This uses the group's expression for the topic that the message came from.
        """
        known = self.get(group, properties.get(names.RETRY_TOPIC, ""))
        if known is None:
            return True
        return compile_filter(known.expression, known.expression_type).matches(properties)

    def cost_of(self, group: str) -> int:
        """Return the cost per message of the group's most expensive expression."""
        longest = max(
            (len(data.expression) for data in self._groups.get(group, {}).values()), default=0
        )
        return min(1 + longest // _SHORTEST, MAX_COST)

    def _register(self, group: str, subscription: SubscriptionData, new: NewExpressions) -> None:
        """Register an expression, unless it is new and not among `new`."""
        topic, version = subscription.topic, subscription.sub_version
        old = self.get(group, topic)
        if old is not None and _stays(old, subscription):
            if version >= old.client_version:
                self._dirty |= old.dead or version != old.client_version
                old.client_version = version
                old.dead_time = 0
            return
        if subscription.sub_string not in new:
            self._log.warning(
                "group %s: the SQL92 expression for topic %s is ignored until the next heartbeat: "
                "the new ones before it in this heartbeat have %d characters",
                group,
                topic,
                NEW_CHARACTERS,
            )
            return
        try:
            compile_filter(subscription.sub_string, subscription.expression_type)
        except SqlSyntaxError as error:
            self._log.warning(
                "group %s: bad SQL92 expression for topic %s: %s", group, topic, error
            )
            if old is not None:
                self._forget(group, topic)
            return
        data = ConsumerFilterData(
            group,
            topic,
            subscription.sub_string,
            subscription.expression_type,
            born_time=self._clock(),
            client_version=version,
            bloom_filter_data=self._bloom.generate(f"{group}#{topic}"),
        )
        if self._bytes + _weight(data) > self._max_bytes:
            self._forget_dead(0)
            if self._bytes + _weight(data) > self._max_bytes:
                self._log.warning(
                    "group %s: the filter for topic %s is not kept: there are too many",
                    group,
                    topic,
                )
                return
        self._put(group, topic, data)
        self._dirty = True

    def _bury(self, data: ConsumerFilterData) -> None:
        # If the clock was set back, it must not count as alive.
        data.dead_time = max(self._clock(), data.born_time)
        self._dirty = True


def _stays(old: ConsumerFilterData, new: SubscriptionData) -> bool:
    """Tell whether a group keeps its expression: of two with one version the first stays."""
    return new.sub_version <= old.client_version or (
        (new.sub_string, new.expression_type) == (old.expression, old.expression_type)
    )


def _weight(data: ConsumerFilterData) -> int:
    texts = (data.consumer_group, data.topic, data.expression, data.expression_type)
    return sum(map(text_bytes, texts)) + OVERHEAD


class NotCompiled(Exception):
    """An expression takes too long to compile within a request.

    Attributes:
        text: the expression.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def ready_filter(expression: str, expression_type: str | None) -> SqlFilter:
    """Do as `compile_filter`, but raise NotCompiled for a new expression of some length."""
    if expression_type == SQL92 and takes_long(expression):
        raise NotCompiled(expression)
    return compile_filter(expression, expression_type)


def takes_long(expression: str) -> bool:
    """Tell whether an expression is to be compiled in steps."""
    return len(expression) > AT_ONCE and known_sql(expression) is None


def compile_filter(expression: str, expression_type: str | None) -> SqlFilter:
    """Compile the filter of a subscription that is not by tag. Raises SqlSyntaxError."""
    if expression_type != SQL92:
        raise SqlSyntaxError(1, 1, f"no expression type {expression_type}: TAG or SQL92")
    return compile_sql(expression)
