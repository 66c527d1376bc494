"""Sends of one batch request or one read, stored together: `SendProcessor.send` for many sends.

Each passes the same checks as a single send, changes the same statistics and gets the same answer.
They share one write to the commit log and one wait.
A message that must wait first (delayed, timed, a half message) is included as changed by its put
hook. `send_many` stops before a send that is refused, or that needs a check besides those that its
topic has passed; the dispatcher passes that send to `SendProcessor.send`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pocketmq.broker.acknowledge.group_commit import Waiting
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.put_hooks import recall_handle
from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.processors.send.checks import leaves_the_line, queue_by_priority
from pocketmq.broker.processors.send.context import SEPARATOR, SendContext, Target, line_type
from pocketmq.broker.statistics.message_types import LARGE, SMALL, MessageTypes, message_type
from pocketmq.broker.statistics.statistics import Statistics, Traffic
from pocketmq.message.identity import new_unique_id
from pocketmq.message.limits import HALF_TOPIC
from pocketmq.message.properties import SHARDING_KEY, UNIQ_KEY, decode, find
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import SendMessageResponseHeader
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.writer import Put, Stored

#: The most messages of one call that put hooks move; each takes 90 µs, and another one 13 µs.
MOST_MOVED: Final = 64

#: The most bytes of a record that are not in the request, for the limit on bytes in flight.
_RECORD_OVERHEAD: Final = 512


SendRequest = Request[Any]  # header: SendHeader


class Moved(NamedTuple):
    """Counters for a topic to which put hooks move messages."""

    traffic: Traffic
    types: MessageTypes


#: A send to store, its counters, its queue id, its unique id, and the message if the put hooks were
#: called.
Planned = tuple[SendRequest, Target | Moved, int, str, InnerMessage | None]


class SendMany:
    """Stores several sends of one connection with one write."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        statistics: Statistics,
        context: SendContext,
    ) -> None:
        self._config = config
        self._store = store
        self._put_hooks = put_hooks
        self._statistics = statistics
        self._context = context

    def send_many(self, requests: Sequence[SendRequest]) -> Sequence[Response | bytes | None]:
        """Store the first of these sends, as many as fit into one write and into a few
        milliseconds, and return their answers.

        All requests are from one connection. For a send that waits for the disk, the result is
        None: its answer follows later.
        """
        context = self._context
        if context.unflushed.full or (context.safety.waits and self._near_limits(requests)):
            return ()
        code = requests[0].code
        born_host = requests[0].connection.peer_packed
        targets = context.targets
        suffix = context.suffix
        puts: list[Put] = []
        planned: list[Planned] = []
        known_before: str | None = None
        known_rest = ""
        tags_code = 0
        moved: dict[str, Moved] = {}
        hooked = 0
        for request in requests:
            header = request.header
            if request.code != code:
                break
            target = targets.get(header.topic)
            properties: str = header.properties
            body = request.body
            queue_id = header.queue_id
            sys_flag = header.sys_flag
            if target is None or header.batch or queue_id >= target.queue_limit or not body:
                break
            if queue_id < 0:
                queue_id = random.randrange(target.write_queues)
            # Most properties differ only in their unique ids. Consecutive sends whose other
            # properties are equal are examined once, which saves a tenth of a send's time.
            before, found, after = properties.rpartition("UNIQ_KEY\x01")
            unique_id, _, rest = after.partition(SEPARATOR)
            if before != known_before or rest != known_rest or not (found and unique_id):
                if leaves_the_line(properties):
                    known_before = None
                    if hooked == MOST_MOVED:
                        break
                    hooked += 1
                    row = self._after_hooks(request, target, queue_id, moved)
                    if row is None:
                        break
                    puts.append(row[0])
                    planned.append(row[1])
                    continue
                tag = find(properties, "TAGS")
                tags_code = 0 if tag is None else tag_hash(tag)
                if found and unique_id and (not before or before[-1] == SEPARATOR):
                    known_before, known_rest = before, rest
                else:
                    known_before = None
                    unique_id = find(properties, "UNIQ_KEY") or ""
            if properties and properties[-1] != SEPARATOR:
                properties += SEPARATOR
            if not unique_id:
                unique_id = new_unique_id()
                properties = f"{properties}UNIQ_KEY\x01{unique_id}\x02"
            puts.append(
                (
                    header.topic,
                    queue_id,
                    body,
                    properties + suffix,
                    header.flag,
                    sys_flag | target.sys_flag,
                    header.born_timestamp,
                    born_host,
                    header.reconsume_times,
                    0,
                    tags_code,
                )
            )
            planned.append((request, target, queue_id, unique_id, None))
        if not puts:
            return ()
        stored = self._store.put_many(puts)
        self._count(planned, stored)
        if HALF_TOPIC in moved:
            self._begin_transactions(planned, stored)
        if self._statistics.detailed:
            self._count_types(planned, puts, stored)
        if not context.plain or context.safety.waits:
            return self._answers_or_waits(planned, puts, stored)
        answers = self._answers_at_once(planned, stored)
        if moved:
            self._add_recall_handles(answers, planned, stored)
        return answers

    def _after_hooks(
        self, request: SendRequest, target: Target, queue_id: int, moved: dict[str, Moved]
    ) -> tuple[Put, Planned] | None:
        """Return the put and plan of a message that may have to wait first; None if it is for
        `SendProcessor.send`."""
        topic = request.header.topic
        properties = decode(request.header.properties)
        queue_id = queue_by_priority(properties, queue_id, target.write_queues)
        try:
            inner = self._context.inner_message(request, topic, queue_id, properties)
            inner.sys_flag |= target.sys_flag
            put = self._put_hooks.prepare(inner)
        except RemotingError:
            return None
        if put is None:
            return None
        counts: Target | Moved = target
        if inner.topic != topic:
            if inner.topic not in moved:
                statistics = self._statistics
                moved[inner.topic] = Moved(
                    statistics.put_of(inner.topic), statistics.types_of(inner.topic)
                )
            counts = moved[inner.topic]
        return put, (request, counts, queue_id, properties[UNIQ_KEY], inner)

    def _near_limits(self, requests: Sequence[SendRequest]) -> bool:
        """Tell whether these sends could exceed the limits on sends in flight."""
        size = sum(len(r.body) + len(r.head) for r in requests) + _RECORD_OVERHEAD * len(requests)
        return self._context.unflushed.nearly_full(len(requests), size)

    def _count(self, planned: Sequence[Planned], stored: Sequence[Stored]) -> None:
        if not stored:
            return
        count = len(stored)
        last, last_size, _ = stored[-1]
        total = last + last_size - stored[0][0]  # the records of one write are adjacent
        self._statistics.put.add(count, count, total)
        if len({row[1] for row in planned}) == 1:
            planned[0][1].traffic.add(count, count, total)
            return
        for (_, target, _, _, _), (_, size, _) in zip(planned, stored, strict=False):
            target.traffic.add(1, 1, size)

    def _begin_transactions(self, planned: Sequence[Planned], stored: Sequence[Stored]) -> None:
        for (request, _, _, _, inner), _ in zip(planned, stored, strict=False):
            if inner is not None and inner.topic == HALF_TOPIC:
                self._statistics.transactions.begin(request.header.topic)

    @staticmethod
    def _count_types(
        planned: Sequence[Planned], puts: Sequence[Put], stored: Sequence[Stored]
    ) -> None:
        # Usually all are normal and in one bucket: checking that takes a tenth of counting each.
        sizes = [size for _, size, _ in stored]
        is_plain = not any(row[4] for row in planned)
        if is_plain and SHARDING_KEY not in "".join([put[3] for put in puts]):
            largest = max(sizes, default=0)
            if largest <= SMALL:
                return
            if min(sizes) > SMALL and largest <= LARGE and len({row[1] for row in planned}) == 1:
                planned[0][1].types.large[0] += len(sizes)
                return
        for (_, target, _, _, inner), put, size in zip(planned, puts, sizes, strict=False):
            kind = line_type(put[3]) if inner is None else message_type(inner.properties)
            target.types.add(kind, size)

    def _add_recall_handles(
        self,
        answers: list[Response | bytes | None],
        planned: Sequence[Planned],
        stored: Sequence[Stored],
    ) -> None:
        """Replace the answers to timed messages by answers with their recall handles."""
        rows = zip(planned, stored, strict=False)
        for at, ((request, _, queue_id, unique_id, inner), (physical, _, offset)) in enumerate(
            rows
        ):
            handle = self._recall_handle(request, inner)
            if handle is not None:
                header = self._header(physical, queue_id, offset, unique_id)
                header.recall_handle = handle
                answers[at] = Response(0, None, header)

    def _recall_handle(self, request: SendRequest, inner: InnerMessage | None) -> str | None:
        if inner is None:
            return None
        return recall_handle(inner, request.header.topic, self._config.broker_name)

    def _answers_at_once(
        self, planned: Sequence[Planned], stored: Sequence[Stored]
    ) -> list[Response | bytes | None]:
        """Return the answers when no send waits for the disk."""
        # All are of one connection, or of one batch.
        opaques = [row[0].opaque for row in planned[: len(stored)]]
        self._context.unwritten.add_run(planned[0][0].channel, opaques)
        prepared = self._context.stored_message.encode
        return [
            prepared(
                request.serialize_type, request.opaque, physical, queue_id, queue_offset, unique_id
            )
            for (request, _, queue_id, unique_id, _), (physical, _, queue_offset) in zip(
                planned, stored, strict=False
            )
        ]

    def _answers_or_waits(
        self, planned: Sequence[Planned], puts: Sequence[Put], stored: Sequence[Stored]
    ) -> list[Response | bytes | None]:
        """Return the answers of sends that do not wait, and None for the others."""
        answers: list[Response | bytes | None] = []
        waiting: list[Waiting] = []
        waiting_size = 0
        # All are of one connection, or of one batch.
        frames = self._context.plain and planned[0][0].takes_frames
        prepared = self._context.stored_message.encode
        for (request, _, queue_id, unique_id, inner), put, (physical, size, queue_offset) in zip(
            planned, puts, stored, strict=False
        ):
            waits = self._context.safety.waits and not (
                "WAIT\x01false" in put[3] and find(put[3], "WAIT") == "false"
            )
            handle = self._recall_handle(request, inner)
            if waits and frames and handle is None:
                frame = prepared(
                    request.serialize_type, request.opaque, physical, queue_id, queue_offset,
                    unique_id,
                )  # fmt: skip
                waiting.append((request, frame))
                waiting_size += size
                answers.append(None)
                continue
            answer = self._header(physical, queue_id, queue_offset, unique_id)
            answer.recall_handle = handle
            if waits:
                waiting.append((request, answer))
                waiting_size += size
                answers.append(None)
            else:
                self._context.unwritten.add(request)
                answers.append(Response(0, None, answer))
        if waiting:
            physical, size, _ = stored[-1]
            self._context.unflushed.answer_when_safe(waiting, physical + size, waiting_size)
        return answers

    def _header(
        self, physical: int, queue_id: int, queue_offset: int, unique_id: str
    ) -> SendMessageResponseHeader:
        answers = self._context.answers
        return answers.header(answers.msg_id(physical), queue_id, queue_offset, unique_id)
