"""The messages in the answer to a pop, with the handles to acknowledge them. No I/O.

Reference: MQClientAPIImpl.processPopResponse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.message import properties as names
from pocketmq.message.pop_offsets import (
    QueueKey,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
)
from pocketmq.message.receipt_handle import (
    ReceiptHandle,
    ReceiptHandleError,
    decode_receipt_handle,
)
from pocketmq.message.record import Record, iter_records
from pocketmq.message.retry_topic import TopicKind, kind_of
from pocketmq.remoting.headers.pop import PopMessageResponseHeader


class Popped(NamedTuple):
    """A popped message; `deliveries` is the number of earlier deliveries."""

    record: Record
    handle: ReceiptHandle
    deliveries: int


def popped(header: PopMessageResponseHeader, body: bytes, broker_name: str) -> Iterator[Popped]:
    """Return the messages of an answer.

    Raises PopOffsetsError, RecordError, ReceiptHandleError.
    """
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_message_offsets(header.msg_offset_info)
    counts = parse_order_counts(header.order_count_info)
    for record in iter_records(body):
        text = record.properties.get(names.POP_CK)
        if text is not None:
            # From a retry topic: the broker has set the original topic and the handle.
            handle = decode_receipt_handle(text)
        else:
            kind = kind_of(record.topic)
            key = QueueKey(kind, record.queue_id)
            if record.queue_offset not in offsets.get(key, ()) or key not in starts:
                raise ReceiptHandleError(
                    f"the message at {record.queue_offset} of queue {record.queue_id} is not in "
                    f"msgOffsetInfo {header.msg_offset_info!r:.200}"
                )
            handle = ReceiptHandle(
                starts[key],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                kind,
                broker_name,
                record.queue_id,
                record.queue_offset,
            )
        deliveries = record.reconsume_times
        if header.order_count_info:
            key = QueueKey(TopicKind(handle.kind), record.queue_id)
            count = counts.messages.get(
                (handle.kind, record.queue_id, handle.queue_offset), counts.queues.get(key, 0)
            )
            if count > 0:
                deliveries = count
        yield Popped(record, handle._replace(physical_offset=record.physical_offset), deliveries)
