"""Transactions: messages that consumers see only if a local transaction was committed.

    async def check(message: MessageExt) -> TransactionState:       # called by a check-back
        return COMMIT if await orders.exists(message.keys[0]) else ROLLBACK

    async with TransactionProducer("orders", check=check, namesrv=…) as producer:
        async with producer.transaction(Message("orders", b"…", keys=["o-1"])) as transaction:
            await orders.insert("o-1")          # the local transaction

Entering the context sends a half message, which no consumer sees; leaving it tells the broker to
commit it. If the broker does not learn the state (the process died, the one-way request was lost,
the state was UNKNOWN), it later asks any producer of the group. `check` must find the answer where
the local transaction was made. Reference: TransactionMQProducer, TransactionListener.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from pocketmq.client.errors import InvalidMessage, RemotingError, TransactionNotPrepared
from pocketmq.client.log_fields import fields
from pocketmq.client.observation.send_hooks import SendKind
from pocketmq.client.observation.trace import store_host
from pocketmq.client.observation.trace_record import EndTransactionRecord
from pocketmq.client.parameters import function, instance, shown
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.queue_choice import ShardingKey
from pocketmq.client.producer.send_envelope import check_target
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.client.validation import check_type, is_delayed
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message import sysflag
from pocketmq.message.compression import CompressionError
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.remoting.codes import Code, RequestCode
from pocketmq.remoting.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from pocketmq.remoting.serving.request import Request

log = logging.getLogger(__name__)

#: The most concurrent checks; further ones are ignored, and the broker repeats them.
MAX_CHECKS = 256


class TransactionState(Code):
    """The state of a local transaction, with the codes of END_TRANSACTION."""

    COMMIT = sysflag.TRANSACTION_COMMIT
    ROLLBACK = sysflag.TRANSACTION_ROLLBACK
    UNKNOWN = sysflag.TRANSACTION_NONE

    @property
    def word(self) -> str:
        """The reference's name of the state."""
        return "UNKNOW" if self is TransactionState.UNKNOWN else f"{self.name}_MESSAGE"


class TransactionResult(NamedTuple):
    """Result of `send_in_transaction`: where the half message is stored, and the final state."""

    half: SendResult
    state: TransactionState


Check = Callable[[MessageExt], "TransactionState | Awaitable[TransactionState]"]
LocalTransaction = Callable[
    [Message, SendResult], "TransactionState | Awaitable[TransactionState | None] | None"
]


class Transaction:
    """One transaction, from its half message to its end; made by `TransactionProducer.transaction`.

    Leaving the context sends COMMIT to the broker, or the state of the last call of `commit`,
    `rollback` or `unknown`. After an exception it sends UNKNOWN, unless `rollback` was called: the
    exception may come from a commit that did take effect, which only the check-back can find out.
    """

    def __init__(
        self,
        producer: TransactionProducer,
        message: Message,
        queue: MessageQueue | None,
        key: ShardingKey | None,
    ) -> None:
        self.message = message
        self.state: TransactionState | None = None
        self._producer = producer
        self._queue = queue
        self._key = key
        self._half: SendResult | None = None

    def __repr__(self) -> str:
        return f"Transaction({self.message!r}, state={self.state})"

    @property
    def half(self) -> SendResult:
        """Where the half message is stored; only inside `async with`."""
        if self._half is None:
            raise RuntimeError("the transaction has not begun")
        return self._half

    def commit(self) -> None:
        """Deliver the message."""
        self.state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Drop the message."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Let the check-back decide."""
        self.state = TransactionState.UNKNOWN

    async def __aenter__(self) -> Self:
        """Send the half message; raises the errors of `send`, and TransactionNotPrepared."""
        self._half = await self._producer._send_half(self.message, self._queue, self._key)
        if self._half.status is not SendStatus.SEND_OK:
            await self._producer._end(self.message, self._half, TransactionState.ROLLBACK)
            raise TransactionNotPrepared(self._half)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self.state is not TransactionState.ROLLBACK:
            self.state = TransactionState.UNKNOWN
        elif self.state is None:
            self.state = TransactionState.COMMIT
        await self._producer._end(self.message, self.half, self.state)


class TransactionProducer(Producer):
    """A producer for transactional messages; it sends ordinary messages too.

    `check(message)`, a function or a coroutine function, returns the state of the local transaction
    of a half message. After UNKNOWN or an exception, the broker asks again (by default every 30 s,
    15 times; then it drops the message). The other options are those of Producer.
    """

    def __init__(self, group: str, *, check: Check, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(group, **options)
        self._check = function("check", check)
        self._checks = 0
        self._log = LimitedLog(log)
        self._instance.dispatcher.register(
            RequestCode.CHECK_TRANSACTION_STATE,
            self._checked_by_broker,
            CheckTransactionStateRequestHeader,
        )

    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
    ) -> Transaction:
        """Return a transaction for this message, to be used with `async with`.

        Raises:
            TypeError, ValueError: an argument is wrong.
        """
        check_type(message)
        check_target(queue, key)
        return Transaction(self, message, queue, key)

    async def send_in_transaction(
        self,
        message: Message,
        local: LocalTransaction,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
    ) -> TransactionResult:
        """Send a half message, run `local(message, half)`, and send the state that it returns.

        None means UNKNOWN. Raises the errors of `send`, TransactionNotPrepared, the errors of
        `local`, and TypeError if `local` returns neither a TransactionState nor None. After an
        error of `local`, and after that TypeError, the state is UNKNOWN.
        """
        function("local", local)
        async with self.transaction(message, queue=queue, key=key) as transaction:
            state = local(message, transaction.half)
            if inspect.isawaitable(state):
                state = await state
            if state is None:
                state = TransactionState.UNKNOWN
            elif not isinstance(state, TransactionState):
                raise TypeError(
                    f"local must return a TransactionState or None, not {shown(state)}: "
                    f"the transaction is UNKNOWN now, and the broker will ask for it"
                )
            transaction.state = state
        return TransactionResult(transaction.half, transaction.state)

    async def _send_half(
        self, message: Message, queue: MessageQueue | None, key: ShardingKey | None
    ) -> SendResult:
        """Send a message that no consumer sees until its transaction is committed."""
        check_type(message)
        check_target(queue, key)
        if is_delayed(message):
            raise InvalidMessage("a message in a transaction cannot have a delay or a timer")
        return await self._calls.send_one(
            SendKind.HALF,
            message,
            queue=queue,
            key=key,
            extra=f"{names.TRAN_MSG}\x01true\x02{names.PGROUP}\x01{self._sender.group}\x02",
            sys_flag=sysflag.TRANSACTION_PREPARED,
        )

    async def _end(self, message: Message, half: SendResult, state: TransactionState) -> None:
        """Send the state to the broker one-way: if it is lost, the broker checks back."""
        check_type(message)
        instance("half", half, SendResult)
        instance("state", state, TransactionState)
        header = EndTransactionRequestHeader(
            producer_group=self._sender.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=decode_offset_msg_id(half.offset_msg_id).physical_offset,
            commit_or_rollback=state,
            msg_id=half.msg_id,
            topic=self._namespace.wrap(message.topic),
            transaction_id=half.transaction_id,
            bname=half.queue.broker_name,
        )
        try:
            self._instance.check_running()
            deadline = self._calls.deadline(None)
            await self._sender.tell(half.queue, RequestCode.END_TRANSACTION, header, deadline)
            # Frames are written at the end of a turn of the loop: yield, so that this one is.
            await asyncio.sleep(0)
        except RemotingError as error:
            log.warning(
                "transaction %s: its state %s could not be sent, so the broker will check back: %s",
                half.msg_id,
                state.name,
                error,
                extra=fields(error, msg_id=half.msg_id, topic=message.topic, group=self.group),
            )
        if self._trace is not None:
            keys = names.KEY_SEPARATOR.join(message.keys)
            self._record_end(header, message.topic, message.tags, keys, store_host(half))

    def _record_end(
        self,
        header: EndTransactionRequestHeader,
        topic: str,
        tags: str | None,
        keys: str,
        host: str,
    ) -> None:
        assert self._trace is not None
        self._trace.append(
            EndTransactionRecord(
                time=time.time_ns() // 1_000_000,
                group=self.group,
                topic=topic,
                msg_id=header.msg_id,
                tags=tags or "",
                keys=keys,
                store_host=host,
                transaction_id=header.transaction_id or "",
                state=TransactionState(header.commit_or_rollback).word,
                from_check=header.from_transaction_check,
            )
        )

    def _checked_by_broker(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        """CHECK_TRANSACTION_STATE: start the check; its answer is a later END_TRANSACTION."""
        try:
            record = decode(request.body, check_crc=False)
            message = MessageExt.from_record(record, request.header.bname or "")
        except (RecordError, CompressionError) as error:
            self._log.warning("a half message to check cannot be read: %s", error)
            return
        group = message.properties.get(names.PGROUP)
        if group != self._sender.group:
            self._log.warning(
                "a check of group %s came to group %s",
                group,
                self._sender.group,
                extra=fields(msg_id=message.msg_id, group=self.group),
            )
        elif self._checks >= MAX_CHECKS:
            self._log.warning(
                "%d transaction checks are running: that of message %s has to wait",
                self._checks,
                message.msg_id,
            )
        else:
            self._checks += 1
            message.topic = self._namespace.unwrap(message.topic)
            host, port = request.connection.peer
            peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self._instance.spawn(self._answer(message, request.header, peer), "check")

    async def _answer(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, peer: str
    ) -> None:
        try:
            try:
                state = self._check(message)
                if inspect.isawaitable(state):
                    state = await state
                state = TransactionState(state)  # raises ValueError for None, for example
            except Exception:
                told = fields(msg_id=message.msg_id, topic=message.topic, group=self.group)
                self._log.exception("checking transaction %s failed", message.msg_id, extra=told)
                state = TransactionState.UNKNOWN
            end = EndTransactionRequestHeader(
                producer_group=self._sender.group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=state,
                msg_id=message.msg_id,
                topic=header.topic,
                from_transaction_check=True,
                transaction_id=header.transaction_id,
                bname=header.bname,
            )
            if self._trace is not None:
                keys = message.properties.get(names.KEYS, "")
                self._record_end(end, message.topic, message.tags, keys, message.store_host)
            known = header.bname is not None and self._routes.brokers.get(header.bname)
            address = self._routes.address(header.bname) if known and header.bname else peer
            await self._pool.send_oneway(
                address, RequestCode.END_TRANSACTION, end, timeout=self.timeout
            )
        except RemotingError as error:
            told = fields(error, msg_id=message.msg_id, topic=message.topic, group=self.group)
            self._log.warning(
                "transaction %s: its state could not be sent to the broker: %s",
                message.msg_id,
                error,
                extra=told,
            )
        finally:
            self._checks -= 1
