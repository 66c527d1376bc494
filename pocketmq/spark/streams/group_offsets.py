"""Commits the offsets of streams to a consumer group, so that RocketMQ's tools show them.

Spark reports a finished batch to its source only when the next one begins, and never the last one.
A query's progress is reported after each batch, so the offsets are committed from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pocketmq.spark.options.option_error import SECURITY_NAMES, by_proper_name, shown
from pocketmq.spark.streams.stream_lag import read_offsets
from pocketmq.store.scan.stream_offsets import Offsets, StreamQueue

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

log = logging.getLogger(__name__)

_NAMES: Final = (
    "namesrv",
    *SECURITY_NAMES,
    "timeout",
)


class GroupOffsets(StreamingQueryListener):
    """Commits the offsets of finished batches for a consumer group.

        listener = GroupOffsets("orders-to-parquet", namesrv="127.0.0.1:9876", query="orders")
        spark.streams.addListener(listener)

    `mqadmin consumerProgress` and `pocketmq lag` then show how far the query is. The query itself
    continues from its checkpoint and never reads the offsets of the group. The group and its retry
    topic are created if they do not exist. No consumer should use the group.

    Spark calls the listener some time after each batch. An application that ends right after a
    batch calls `commit(query.lastProgress)` first.

    Args:
        group: the consumer group.
        query: the name of the query (`queryName`) or its id; all queries of the session if None.
        options: as for reads from brokers: `namesrv`, credentials, TLS, and `timeout` (10 s).

    Raises:
        OptionError: an option is unknown or has an invalid value.
        InvalidName: the group is not a valid name.
    """

    def __init__(self, group: str, query: str | None = None, **options: str) -> None:
        from pocketmq.client.validation import consumer_group
        from pocketmq.spark.options.connection_options import Connection, seconds

        given = by_proper_name(options, _NAMES, shown)
        self.group = consumer_group(group)
        self._query = query
        self._connection = Connection.parse(given)
        self._timeout = seconds(given, "timeout", 10.0)
        self._committed: Offsets = {}

    def commit(self, progress: StreamingQueryProgress) -> None:
        """Commit the end offsets of the batch of a progress that are not committed yet.

        Raises:
            RemotingError: the brokers could not be reached, or refused.
            OSError: a file of TLS cannot be read.
        """
        ends: Offsets = {}
        for source in progress.sources:
            ends |= read_offsets(source.endOffset)
        news = {queue: at for queue, at in ends.items() if self._committed.get(queue) != at}
        if news:
            # A notebook has an event loop of its own in this thread.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, self._store(news)).result()
            self._committed |= news

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit. If that fails, the reason is logged, and the next batch commits both."""
        progress = event.progress
        if self._query not in (None, progress.name, str(progress.id)):
            return
        try:
            self.commit(progress)
        except Exception as error:
            log.warning("the offsets of the group %s were not committed: %s", self.group, error)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing has been read yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing has been read since."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was read is committed."""

    async def _store(self, offsets: Mapping[StreamQueue, int]) -> None:
        from pocketmq.client.admin import Admin
        from pocketmq.client.errors import TopicNotExist
        from pocketmq.message.limits import RETRY_PREFIX
        from pocketmq.message.message import MessageQueue

        connection = self._connection
        async with Admin(
            namesrv=connection.namesrv, timeout=self._timeout, **connection.client_options()
        ) as admin:
            if not self._committed:
                if self.group not in await admin.groups():
                    await admin.create_group(self.group)
                retry = RETRY_PREFIX + self.group
                try:
                    await admin.topic_route(retry)
                except TopicNotExist:
                    # A consumer creates it with its first heartbeat. mqadmin finds the brokers of a
                    # group through it.
                    await admin.create_topic(retry, queues=1)
            for queue, offset in offsets.items():
                place = MessageQueue(queue.topic, queue.broker, queue.queue_id)
                await admin.set_group_offset(self.group, place, offset)
