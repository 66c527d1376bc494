"""END_TRANSACTION (37), and RESUME_CHECK_HALF_MESSAGE (323) for half messages that were given up.

Reference: broker EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.acknowledge.answers import why_not_stored
from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import PutHooks, inner_message_of
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.transactions.half_message import (
    QUEUE_ID,
    committed,
    half_at,
    immunity_ms,
    is_gone,
    number,
    origin_of,
    usual_commit,
)
from pocketmq.broker.transactions.ops import Ops
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message import sysflag
from pocketmq.message.identity import InvalidMessageId, decode_offset_msg_id
from pocketmq.message.limits import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.message.record import Record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.message_store import MessageStore
from pocketmq.store.writer import Put

log = logging.getLogger(__name__)

NOT_RESUMED: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."

_ENDS: Final = (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK)

MOST_BYTES: Final = 256 * 1024
"""Bytes of messages that are committed in one write."""

EndRequest = Request[EndTransactionRequestHeader]


class EndTransactionProcessor:
    """Commits and rollbacks of one broker; `clock` gives milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        ops: Ops,
        statistics: Statistics,
        unwritten: UnwrittenSends,
        safety: PutSafety,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._put_hooks = put_hooks
        self._ops = ops
        self._statistics = statistics
        self._unwritten = unwritten
        self._safety = safety
        self._clock = clock
        self._log = LimitedLog(log)

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the transaction codes here."""
        dispatcher.register(
            RequestCode.END_TRANSACTION,
            self.end,
            EndTransactionRequestHeader,
            many=self.end_many,
        )
        dispatcher.register(
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            self.resume_check,
            ResumeCheckHalfMessageRequestHeader,
        )

    def end(self, request: EndRequest) -> Response | None:
        """Commit or roll back. A producer whose transaction is still pending gets no answer."""
        answers = self.end_many((request,))
        return answers[0] if answers else self._end_with_care(request)

    def end_many(self, requests: Sequence[EndRequest]) -> Sequence[Response | None]:
        """Commit the first of these transactions, as many as fit into one write, and return the
        answers. Stop before a request or message that is unusual: it is for `end`."""
        ops = self._ops
        puts: list[Put] = []
        halves: list[Record] = []
        origins: set[int] = set()
        size = 0
        code = requests[0].code
        for request in requests if not ops.full else ():
            if request.code != code:
                break
            header = request.header
            half = half_at(self._store, header.commit_log_offset)
            if (
                half is None
                or header.commit_or_rollback != sysflag.TRANSACTION_COMMIT
                or half.queue_offset != header.tran_state_table_offset
                or not ops.is_open(half)
                or (origin := origin_of(half)) in origins
                or not self._is_allowed(request, half)
            ):
                break
            put = usual_commit(half, header.producer_group, self._put_hooks.destinations)
            if put is None:
                break
            halves.append(half)
            origins.add(origin)
            puts.append(put)
            size += half.size
            if size >= MOST_BYTES:
                break  # a request of 300 bytes may move 4 MiB
        stored = self._put_hooks.put_accepted(puts) if puts else []
        self._statistics.count_puts(
            (put[0], stored_size, put[3])
            for put, (_, stored_size, _) in zip(puts, stored, strict=False)
        )
        answers = []
        now = self._clock()
        for request, half, put, (physical_offset, stored_size, _) in zip(
            requests, halves, puts, stored, strict=False
        ):
            ops.end(half)
            self._statistics.transactions.commit(put[0], now - half.born_timestamp)
            answers.append(self._answer(request, physical_offset + stored_size))
        return answers

    @staticmethod
    def _is_allowed(request: EndRequest, half: Record) -> bool:
        if request.caller is not None:
            try:
                request.caller.require_topic(half.properties.get(names.REAL_TOPIC, ""), "Pub")
            except RemotingError:
                return False
        return True

    def _end_with_care(self, request: EndRequest) -> Response | None:
        header = request.header
        if header.commit_or_rollback not in _ENDS:
            if header.commit_or_rollback != sysflag.TRANSACTION_NONE:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"commitOrRollback is {header.commit_or_rollback}: 8 commits, 12 rolls back, "
                    "0 leaves the transaction pending",
                )
            self._log.info("transaction %s is still pending: %s", header.msg_id, request.remark)
            return None
        half = half_at(self._store, header.commit_log_offset)
        if half is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
            )
        if request.caller is not None:
            request.caller.require_topic(half.properties.get(names.REAL_TOPIC, ""), "Pub")
        self._check(half, header)
        if self._ops.full:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "too many ended transactions wait, because the store refuses messages",
            )
        transactions = self._statistics.transactions
        if header.commit_or_rollback == sysflag.TRANSACTION_ROLLBACK:
            self._ops.end(half)
            transactions.rollback(half.properties.get(names.REAL_TOPIC, ""))
            return Response()
        if is_gone(half, self._put_hooks.destinations):
            self._ops.end(half)
            topic = half.properties[names.REAL_TOPIC]
            transactions.end(topic)
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] was deleted after the transaction began: its message is dropped",
            )
        inner = committed(half, self._put_hooks.destinations)
        topic = inner.topic  # before a put hook moves it, if it is also delayed
        result = self._put_hooks.put(inner)
        if not result.ok:
            return Response(*why_not_stored(result))
        self._ops.end(half)
        size = result.end_offset - result.physical_offset
        self._statistics.count_put(inner.topic, size, inner.properties)
        transactions.commit(topic, self._clock() - half.born_timestamp)
        return self._answer(request, result.end_offset)

    def _check(self, half: Record, header: EndTransactionRequestHeader) -> None:
        if not header.from_transaction_check and half.properties.get(
            names.CHECK_IMMUNITY_TIME_IN_SECONDS
        ):
            timeout = self._config.transaction_time_out
            immunity = max(immunity_ms(half, timeout) or 0, timeout)
            age = self._clock() - half.born_timestamp
            if age > immunity:
                raise RemotingError(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the transaction began {age} ms ago, it can be ended unasked for {immunity} "
                    "ms: wait for the check",
                )
        if half.properties.get(names.PGROUP) != header.producer_group:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        if not self._ops.is_open(half):
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"The transaction {header.msg_id} has already ended, or was given up: nothing is "
                "stored",
            )

    def _answer(self, request: EndRequest, end_offset: int) -> Response | None:
        if not self._safety.waits:
            self._unwritten.add(request)
            return Response()
        self._safety.when_safe(
            end_offset, lambda code, remark: request.reply(Response(code, remark))
        )
        return None

    async def resume_check(self, request: Request[ResumeCheckHalfMessageRequestHeader]) -> Response:
        """Resume the checks of a message in TRANS_CHECK_MAX_TIME_TOPIC, unless its transaction has
        ended since it was given up."""
        try:
            place = decode_offset_msg_id(request.header.msg_id or "")
            record = self._store.message_at(place.physical_offset)
        except (InvalidMessageId, RecordNotFound) as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} {error}")
        # In another topic, a client may have set these properties.
        if (
            record.topic != TRANS_CHECK_MAX_TIME_TOPIC
            or not {names.REAL_TOPIC, names.REAL_QID, names.PGROUP} <= record.properties.keys()
        ):
            return Response(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} It is not a half message.")
        if is_gone(record, self._put_hooks.destinations):
            return Response(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} Its topic was deleted.")
        # The official broker does not set it in messages that were never checked.
        origin = number(record.properties.get(names.TRAN_PREPARED_QUEUE_OFFSET))
        if origin is not None:
            if await self._ops.was_ended(origin, record.physical_offset):
                return Response(
                    ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} Its transaction has ended."
                )
            if origin in self._ops.checked:
                return Response(
                    ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} It is being checked already."
                )
        inner = inner_message_of(record)
        inner.topic = HALF_TOPIC
        inner.queue_id = QUEUE_ID
        inner.properties[names.TRANSACTION_CHECK_TIMES] = "0"
        result = self._put_hooks.put(inner, direct=True)
        if not result.ok:
            return Response(ResponseCode.SYSTEM_ERROR, f"{NOT_RESUMED} {result.remark}")
        self._ops.resumed(inner.properties)
        self._statistics.transactions.begin(inner.properties[names.REAL_TOPIC])
        self._unwritten.add(request)
        return Response()
