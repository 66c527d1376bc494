"""The common parts of answers to sends: message ids, the region, why a message was not stored."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.headers import SendMessageResponseHeader
from pocketmq.remoting.serving.request import Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult, PutStatus
from pocketmq.store.writer import TOO_FEW

#: Why a put was not stored: the code, and the beginning of the remark.
NOT_STORED: Final = {
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now",
    ),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.LMQ_QUOTA_EXCEEDED,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded.",
    ),
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
        ResponseCode.SYSTEM_ERROR,
        "in-sync replicas not enough",
    ),
}


def why_not_stored(result: PutResult) -> tuple[ResponseCode, str]:
    """Return the code and remark for a message that the store refused."""
    code, remark = NOT_STORED[result.status]
    # Too few replicas: in exactly the official broker's words.
    if not result.remark or result.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
        return code, remark
    return code, f"{remark}: {result.remark}"


def not_flushed(store: MessageStore) -> tuple[ResponseCode, str | None]:
    """Return the code and remark for a message that was put, but may not be on the disk."""
    # With too few replicas, later messages are refused, but this one is stored.
    if store.refusal and store.refusal != TOO_FEW:
        code, remark = NOT_STORED[PutStatus.SERVICE_NOT_AVAILABLE]
        return code, f"{remark}: {store.told_refusal}"
    return ResponseCode.FLUSH_DISK_TIMEOUT, None


class SendAnswers:
    """Answers of one broker; `store_host` is its packed address, the beginning of message ids."""

    def __init__(self, config: BrokerConfig, store_host: bytes) -> None:
        self._msg_id_prefix = store_host.hex().upper()
        self._region = config.region_id
        self._trace_on = config.trace_on

    def header(
        self,
        msg_id: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        transaction_id: str | None = None,
    ) -> SendMessageResponseHeader:
        """Return the extFields of an answer.

        A refusal has them too, because clients expect the map.
        """
        return SendMessageResponseHeader(
            msg_id, queue_id, queue_offset, transaction_id, None, None, self._region, self._trace_on
        )

    def msg_id(self, physical_offset: int) -> str:
        """Return the offset message id."""
        return f"{self._msg_id_prefix}{physical_offset:016X}"

    def msg_ids(self, physical_offsets: Sequence[int]) -> str:
        """Return the offset message ids of a batch, joined by commas, with a few calls into C."""
        packed = struct.pack(f">{len(physical_offsets)}q", *physical_offsets)
        prefix = self._msg_id_prefix
        return prefix + packed.hex(",", 8).upper().replace(",", f",{prefix}")

    def refusal(self, code: int, remark: str | None) -> Response:
        """Return the answer to a message that was not stored."""
        return Response(code, remark, self.header())

    def not_stored(self, result: PutResult) -> Response:
        """Return the answer to a message that the store refused."""
        return self.refusal(*why_not_stored(result))

    def not_available(self, reason: str) -> Response:
        """Return the answer to a message that the store accepted, but could not write."""
        code, remark = NOT_STORED[PutStatus.SERVICE_NOT_AVAILABLE]
        return self.refusal(code, f"{remark}: {reason}")
