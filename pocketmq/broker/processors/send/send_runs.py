"""Sends executed directly from the bytes that were read, by compiled code if it is installed.

`_send_run` is part of the accelerator, which is optional and included in most wheels. With it, a
send that arrives with others in one read takes a quarter of the time. It executes the requests that
`SendMany` would store together, with the same checks, records and answers; the tests of sends run
with and without it. Sends whose topic and queue id were refused before, and codes that were unknown
before, are refused here, too. A run ends at any other request, which is executed in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from pocketmq._accelerator import accelerator_wanted
from pocketmq.broker.processors.send.checks import leaves_the_line
from pocketmq.broker.processors.send.context import SendContext
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.message.buffers import Buffer
from pocketmq.message.checksum import crc32
from pocketmq.message.properties import SHARDING_KEY, TAGS, find
from pocketmq.message.sysflag import HOST_MASK, INNER_BATCH, TRANSACTION_PREPARED
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.answers.batch import SUCCESS_REMARK
from pocketmq.remoting.answers.batch_answers import AnsweredParent
from pocketmq.remoting.codes import VERSION, LanguageCode, RequestCode, ResponseCode
from pocketmq.remoting.serving.dispatch import Dispatcher, ExecutedRead, ReadGuard
from pocketmq.remoting.serving.request import RequestConnection, Response
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT, iter_entries
from pocketmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pocketmq.broker.processors.send._send_run import SendRun
    from pocketmq.remoting.frames._compiled_sends import SendAnswers

_IPV4_HOST: Final = 8  # bytes of a packed address and port
_FRAME_LENGTH: Final = 4
_FRAME_WORDS: Final = 8  # the lengths of the frame and of the header

#: The requests that are executed here, and the first bytes of their headers.
CODES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.COMMON_BATCH_REQUEST,
)
_JSON: Final = frozenset((b'{"code":%d,' % code)[:11] for code in CODES)
_BINARY: Final = frozenset(code.to_bytes(2) for code in CODES)

_PARENT: Final = Response.repeatable(ResponseCode.SUCCESS, SUCCESS_REMARK)


def compiled_types() -> tuple[type[SendRun], type[SendAnswers]] | None:
    """Return the compiled classes; None if they are not installed."""
    if not accelerator_wanted():
        return None
    try:
        from pocketmq.broker.processors.send._send_run import SendRun
        from pocketmq.remoting.frames._compiled_sends import SendAnswers
    except ImportError:
        return None
    return SendRun, SendAnswers


def examine(properties: str) -> int | None:
    """Return the tags code of a message; None if it needs the slow path."""
    if leaves_the_line(properties):
        return None
    tag = find(properties, TAGS)
    return 0 if tag is None else tag_hash(tag)


def examine_normal(properties: str) -> int | None:
    """Like `examine`, when messages are counted by type: only normal messages are accepted."""
    return None if SHARDING_KEY in properties else examine(properties)


class SendRuns:
    """Executes runs of sends for one broker."""

    def __init__(
        self,
        send_run: type[SendRun],
        send_answers: type[SendAnswers],
        store: MessageStore,
        statistics: Statistics,
        context: SendContext,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._statistics = statistics
        self._context = context
        answer = context.stored_message
        compiled = send_run(
            context.targets,
            examine_normal if statistics.detailed else examine,
            crc32,
            send_answers(
                msg_id=store_host.hex().upper().encode(),
                json=answer.json_parts,
                binary=answer.binary_parts,
                language=LanguageCode.PYTHON.value,
                version=VERSION,
            ),
            _PARENT,
            most_children=context.most_children,
            suffix=context.suffix.encode(),
            store_host=store_host,
            special=TRANSACTION_PREPARED | INNER_BATCH,
            kept=~HOST_MASK,
        )
        self._encode = compiled.encode
        self._refuse = compiled.refuse

    @classmethod
    def find(
        cls, store: MessageStore, statistics: Statistics, context: SendContext, store_host: bytes
    ) -> SendRuns | None:
        """Return the runs of a broker; None if the accelerator is not installed or does not support
        the broker's answers."""
        compiled = compiled_types()
        if compiled is None or not context.plain or len(store_host) != _IPV4_HOST:
            return None
        return cls(*compiled, store, statistics, context, store_host)

    def register(self, dispatcher: Dispatcher) -> None:
        """Execute the sends of every read, and refuse unknown codes."""
        dispatcher.serve_reads(partial(self.execute, dispatcher.unsupported), CODES)

    def execute(
        self,
        unsupported: Mapping[int, Response],
        connection: RequestConnection,
        data: Buffer,
        start: int,
        most: int,
        longest: int,
        *,
        guard: ReadGuard | None = None,
    ) -> ExecutedRead | None:
        """A `GuardedReadHandler` for sends and parents of sends; without a guard also for sends
        with cached refusals, and `unsupported` codes."""
        context = self._context
        head = start + _FRAME_WORDS
        first_bytes = bytes(data[head : head + 11])
        if first_bytes not in _JSON and first_bytes[:2] not in _BINARY:
            if not unsupported or guard is not None:
                return None
            return self._refused(data, start, most, longest, unsupported)
        if context.safety.waits or context.unflushed.full:
            return None
        # The requests of one read have similar sizes, and a record is smaller than its request.
        first = int.from_bytes(bytes(data[start : start + _FRAME_LENGTH])) + _FRAME_LENGTH
        run = self._store.put_run(
            partial(
                self._encode, data, start, most, longest,
                guard, connection.peer[0], connection.peer_packed,
            ),
            min(len(data) - start, most * first),
        )  # fmt: skip
        if run is None:
            if not context.refusals or guard is not None:
                return None
            return self._refused(data, start, most, longest, unsupported)
        if run.signer is not None:
            connection.owner = run.signer.name
        self._statistics.put.add(run.messages, run.messages, run.size)
        for _, target, _, entries, size in run.queues:
            messages = len(entries) // CONSUME_QUEUE_UNIT
            target.traffic.add(messages, messages, size)
            if self._statistics.detailed:
                target.types.add_normal(record for _, record, _ in iter_entries(entries))
        if run.opaques:
            context.unwritten.add_run(connection, run.opaques)
        for parent, opaques in run.parents:
            context.unwritten.add_run(AnsweredParent(connection, parent), opaques)
        return ExecutedRead(
            run.stopped, run.answers, run.code, run.messages, parents=len(run.parents)
        )

    def _refused(
        self,
        data: Buffer,
        start: int,
        most: int,
        longest: int,
        unsupported: Mapping[int, Response],
    ) -> ExecutedRead | None:
        refusals = self._context.refusals
        refused = self._refuse(data, start, most, longest, refusals, unsupported)
        return None if refused is None else ExecutedRead(*refused)
