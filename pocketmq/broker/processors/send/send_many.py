"""Sends of one batch request or one read, stored together: `SendProcessor.send` for many at once.

Each of them passes the same checks as a single send, changes the same statistics and gets the same
answer. They share one write into the commit log and one wait.
Only ordinary messages take part: `send_many` stops before a send that leaves the straight line of
`SendProcessor.send`, and the dispatcher passes that one to `SendProcessor.send`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from pocketmq.broker.message_types import LARGE, SMALL
from pocketmq.broker.processors.send.checks import leaves_the_line
from pocketmq.broker.processors.send.context import SEPARATOR, SendContext, Target, line_type
from pocketmq.broker.statistics import Statistics
from pocketmq.message.identity import new_unique_id
from pocketmq.message.properties import SHARDING_KEY, find
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.headers import SendMessageResponseHeader
from pocketmq.remoting.request import Request, Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.writer import Put, Stored

#: The most bytes of a record that are not in the request; for the limit of bytes in flight.
_RECORD_OVERHEAD: Final = 512


SendRequest = Request[Any]  # header: SendHeader

#: A send to store, its topic, its queue id and its unique id.
Planned = tuple[SendRequest, Target, int, str]


class SendMany:
    """Stores several sends of one connection with one write."""

    def __init__(self, store: MessageStore, statistics: Statistics, context: SendContext) -> None:
        self._store = store
        self._statistics = statistics
        self._context = context

    def send_many(self, requests: Sequence[SendRequest]) -> Sequence[Response | bytes | None]:
        """Store the first of these sends, as many as fit in one write, and answer each of them.

        All requests are from one connection. The answer of a send that waits for the disk is None:
        it follows later.
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
            # Most of them differ only in their unique ids. The properties around the unique id are
            # examined once for all equal neighbours, which saves a tenth of a send's time.
            before, found, after = properties.rpartition("UNIQ_KEY\x01")
            unique_id, _, rest = after.partition(SEPARATOR)
            if before != known_before or rest != known_rest or not (found and unique_id):
                if leaves_the_line(properties):
                    break
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
                    tags_code,
                )
            )
            planned.append((request, target, queue_id, unique_id))
        if not puts:
            return ()
        stored = self._store.put_many(puts)
        self._count(planned, stored)
        if self._statistics.detailed:
            self._count_types(planned, puts, stored)
        if context.plain and not context.safety.waits:
            return self._answers_at_once(planned, stored)
        return self._answers_or_waits(planned, puts, stored)

    def _near_limits(self, requests: Sequence[SendRequest]) -> bool:
        """Tell whether these sends might pass the limits of sends in flight."""
        size = sum(len(r.body) + len(r.head) for r in requests) + _RECORD_OVERHEAD * len(requests)
        return self._context.unflushed.nearly_full(len(requests), size)

    def _count(self, planned: Sequence[Planned], stored: Sequence[Stored]) -> None:
        if not stored:
            return
        count = len(stored)
        last, last_size, _ = stored[-1]
        total = last + last_size - stored[0][0]  # one write: the records are adjacent
        self._statistics.put.add(count, count, total)
        if len({row[1] for row in planned}) == 1:
            planned[0][1].traffic.add(count, count, total)
            return
        for (_, target, _, _), (_, size, _) in zip(planned, stored, strict=False):
            target.traffic.add(1, 1, size)

    @staticmethod
    def _count_types(
        planned: Sequence[Planned], puts: Sequence[Put], stored: Sequence[Stored]
    ) -> None:
        # Most are normal and all of them in one bucket: that costs a tenth of a look at each.
        sizes = [size for _, size, _ in stored]
        if SHARDING_KEY not in "".join([put[3] for put in puts]):
            largest = max(sizes, default=0)
            if largest <= SMALL:
                return
            if min(sizes) > SMALL and largest <= LARGE and len({row[1] for row in planned}) == 1:
                planned[0][1].types.large[0] += len(sizes)
                return
        for (_, target, _, _), put, size in zip(planned, puts, sizes, strict=False):
            target.types.add(line_type(put[3]), size)

    def _answers_at_once(
        self, planned: Sequence[Planned], stored: Sequence[Stored]
    ) -> list[Response | bytes | None]:
        """Return the answers if no send waits for the disk."""
        self._context.unwritten.add_all(row[0] for row in planned[: len(stored)])
        prepared = self._context.stored_message.encode
        return [
            prepared(
                request.serialize_type, request.opaque, physical, queue_id, queue_offset, unique_id
            )
            for (request, _, queue_id, unique_id), (physical, _, queue_offset) in zip(
                planned, stored, strict=False
            )
        ]

    def _answers_or_waits(
        self, planned: Sequence[Planned], puts: Sequence[Put], stored: Sequence[Stored]
    ) -> list[Response | bytes | None]:
        """Return the answers of sends that need not wait, and None for the others."""
        answers: list[Response | bytes | None] = []
        waiting: list[tuple[SendRequest, SendMessageResponseHeader]] = []
        waiting_size = 0
        for (request, _, queue_id, unique_id), put, (physical, size, queue_offset) in zip(
            planned, puts, stored, strict=False
        ):
            answer = self._header(physical, queue_id, queue_offset, unique_id)
            if self._context.safety.waits and find(put[3], "WAIT") != "false":
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
