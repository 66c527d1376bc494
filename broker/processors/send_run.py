"""The sends of one batch, stored as a run: what `SendProcessor.send` does, many times at once.

A child of a batch request passes the same checks as a send that came alone, changes the same
statistics and gets the same answer. What the children share is done once for all: the write into
the commit log, the wait for the disk. Only ordinary messages take part; the run ends before a send
that leaves the straight line of `SendProcessor.send`, which then goes that way itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from broker.processors.send import SEPARATOR, SendProcessor, SendRequest, Target
from message import sysflag
from message.identity import new_unique_id
from message.properties import find
from message.tags import tag_hash
from remoting.codes import RequestCode
from remoting.dispatch import Dispatcher
from remoting.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from remoting.request import Response
from remoting.stored_answer import encode_stored_answer
from store.run_writer import Put

#: Bytes of a record that are not in the request, at most; for the limit of bytes in flight.
_RECORD_OVERHEAD: Final = 512


class RunSendProcessor(SendProcessor):
    """Sends of one broker, also many in one go."""

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the send codes here."""
        for code, header in (
            (RequestCode.SEND_MESSAGE, SendMessageRequestHeader),
            (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2),
            (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2),
        ):
            dispatcher.register(code, self.send, header, run=self.send_run)

    def send_run(self, requests: Sequence[SendRequest]) -> Sequence[Response | bytes | None]:
        """Store the first of these sends, as many as go in one write, and answer each of them.

        All come from one connection. Who waits for the disk is answered later (None).
        """
        if self.unflushed.full or (self._sync_flush and self._near_limits(requests)):
            return ()
        code = requests[0].code
        targets = self._targets
        suffix = self._suffix
        puts: list[Put] = []
        planned: list[tuple[Target, str, bool]] = []
        for request in requests:
            header = request.header
            if request.code != code:
                break
            target = targets.get(header.topic)
            properties: str = header.properties
            body = request.body
            queue_id = header.queue_id
            sys_flag = header.sys_flag
            if (
                target is None
                or header.batch
                or sys_flag & sysflag.TRANSACTION_PREPARED
                or "DELAY" in properties
                or "TIMER_DEL" in properties
                or "TRAN_MSG" in properties
                or "POP_CK" in properties
                or queue_id >= target.queue_limit
                or not body
            ):
                break
            if queue_id < 0:
                queue_id = random.randrange(target.write_queues)
            # What find() does, for the usual case that the first hit is the property itself.
            before, found, after = properties.rpartition("UNIQ_KEY\x01")
            unique_id: str | None = None
            if found:
                unique_id = after.partition(SEPARATOR)[0]
                if not unique_id or (before and before[-1] != SEPARATOR):
                    unique_id = find(properties, "UNIQ_KEY")
            if properties and properties[-1] != SEPARATOR:
                properties += SEPARATOR
            if unique_id is None:
                unique_id = new_unique_id()
                properties = f"{properties}UNIQ_KEY\x01{unique_id}\x02"
            tag = find(properties, "TAGS")
            puts.append(
                (
                    header.topic,
                    queue_id,
                    body,
                    properties + suffix,
                    header.flag,
                    sys_flag | target.sys_flag,
                    header.born_timestamp,
                    header.reconsume_times,
                    0 if tag is None else tag_hash(tag),
                )
            )
            waits = self._sync_flush and find(properties, "WAIT") != "false"
            planned.append((target, unique_id, waits))
        if not puts:
            return ()
        return self._store_run(requests, puts, planned)

    def _near_limits(self, requests: Sequence[SendRequest]) -> bool:
        """Whether a run might pass the limits of what is in flight, which stop single sends."""
        size = sum(len(r.body) + len(r.head) for r in requests) + _RECORD_OVERHEAD * len(requests)
        return self.unflushed.nearly_full(len(requests), size)

    def _store_run(
        self,
        requests: Sequence[SendRequest],
        puts: Sequence[Put],
        planned: Sequence[tuple[Target, str, bool]],
    ) -> Sequence[Response | bytes | None]:
        results = self._store.put_run(puts, requests[0].connection.peer_packed)
        store_host, trace_on = self._store_host, self._trace_text
        answers: list[Response | bytes | None] = []
        waiting: list[tuple[SendRequest, SendMessageResponseHeader]] = []
        total = waiting_size = 0
        for request, put, (target, unique_id, waits), result in zip(
            requests, puts, planned, results, strict=False
        ):
            physical = result.physical_offset
            size = result.end_offset - physical
            total += size
            traffic = target.traffic
            traffic.messages += 1
            traffic.times += 1
            traffic.size += size
            if self._plain and not waits and request.serialize_type == 0:
                answers.append(
                    encode_stored_answer(
                        request.opaque,
                        store_host,
                        physical,
                        put[1],
                        result.queue_offset,
                        unique_id,
                        trace_on,
                    )
                )
                continue
            answer = self._answers.header(
                self._answers.msg_id(physical), put[1], result.queue_offset, unique_id
            )
            if waits:
                waiting.append((request, answer))
                waiting_size += size
                answers.append(None)
            else:
                answers.append(Response(0, None, answer))
        traffic = self._statistics.put
        traffic.messages += len(results)
        traffic.times += len(results)
        traffic.size += total
        if waiting:
            self.unflushed.answer_when_flushed(waiting, results[-1].end_offset, waiting_size)
        return answers
