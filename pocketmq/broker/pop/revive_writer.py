"""Writes checkpoints and acknowledgements to the revive log, through the timer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.pop.check_point import (
    ACK_INTERVAL_MS,
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    AckMessage,
    BatchAckMessage,
    CheckPoint,
    ReviveRecord,
    revive_topic,
    unique_key,
)
from pocketmq.broker.statistics.pop_counts import ACK, CHECK_POINT, PopCounts
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.remoting.errors import RemotingError

log = logging.getLogger(__name__)

NOT_WRITTEN: Final = "the revive log of POP takes no records: %s"


class ReviveWriter:
    """Writes to the revive log of one broker; `store_host` is its packed address.

    Attributes:
        topic: the topic of the revive log.
    """

    def __init__(
        self,
        config: BrokerConfig,
        put_hooks: PutHooks,
        counts: PopCounts,
        store_host: bytes,
        clock: Callable[[], int],
    ) -> None:
        self.topic = revive_topic(config.broker_cluster_name)
        self._broker_name = config.broker_name
        self._put_hooks = put_hooks
        self._counts = counts
        self._store_host = store_host
        self._clock = clock
        self._log = LimitedLog(log)

    def check_point(self, point: CheckPoint, queue_id: int) -> bool:
        """Write a checkpoint; return False if the store refuses it. Do not wait for the disk."""
        due = point.revive_time - ACK_INTERVAL_MS
        return self._put(point, CHECK_POINT_TAG, queue_id, due)

    def ack(self, ack: AckMessage, queue_id: int, due: int) -> bool:
        """Write the acknowledgement of messages that would become visible again at `due` (Unix ms);
        return False if the store refuses it. Do not wait for the disk."""
        tag = BATCH_ACK_TAG if isinstance(ack, BatchAckMessage) else ACK_TAG
        return self._put(ack, tag, queue_id, due)

    def _put(self, record: ReviveRecord, tag: str, queue_id: int, due: int) -> bool:
        inner = InnerMessage(
            self.topic,
            queue_id,
            record.encode(),
            {
                names.TIMER_DELIVER_MS: str(due),
                # 5.3.3 uses the tag ack in the key of a batch, too.
                names.UNIQ_KEY: unique_key(
                    record, ACK_TAG if tag == BATCH_ACK_TAG else tag, self._broker_name
                ),
                names.TAGS: tag,
            },
            self._clock(),
            self._store_host,
        )
        try:
            result = self._put_hooks.put(inner)
        except RemotingError as error:
            self._log.error(NOT_WRITTEN, error.remark)
            return False
        kind = CHECK_POINT if tag == CHECK_POINT_TAG else ACK
        self._counts.written[record.topic, record.group, kind, result.status.value] += 1
        if not result.ok:
            self._log.error(NOT_WRITTEN, result.remark)
        return result.ok
