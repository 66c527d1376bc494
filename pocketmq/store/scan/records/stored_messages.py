"""The messages of stores, as a Python program reads them: tables, frames, or batches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from pocketmq.store.errors import StoreClosed
from pocketmq.store.scan.query import (
    Query,
    QueryOptions,
    Scan,
    TakeStores,
    application_topics,
)
from pocketmq.store.scan.queues.queue_listing import NO_QUEUE
from pocketmq.store.scan.queues.segments import undisturbed


class StoredMessages:
    """The messages of a store or of archives; make it with `pocketmq.open_store`.

    Each call sees the messages that are stored when it is made. `batches`, `to_arrow`, `to_pandas`
    and `to_polars` take the same options:

    Args:
        topic: one topic, or several. Default: all but internal, retry and dead-letter topics.
        columns: the columns to read, in this order. Default: topic, queueId, brokerName,
            queueOffset, physicalOffset, body, tags, keys, properties, flag, bornTimestamp,
            storeTimestamp, msgId, reconsumeTimes. There are also bornHost, storeHost, sysFlag,
            storeSize, bodyCRC, preparedTransactionOffset and offsetMsgId. Columns that you leave
            out are not read.
        tags: one tag, or several. Default: any, or none.
        start_time, end_time: the time of storing, as a `datetime` (local time if it has no zone) or
            in ms since 1970. `start_time` is included, `end_time` is not.
        start_offsets, end_offsets: queue offsets by topic and queue id, such as
            `{"orders": {0: 23, 1: -2}}`; -2 stands for the oldest message of the queue, -1 for its
            end. The end offset is not included. Other queues are read from beginning to end.
        include_system_topics: read internal, retry and dead-letter topics as well.
        decompress: decompress bodies.
        fail_on_data_loss: raise when records are corrupt or gone. When False, such records are
            left out, and a warning is logged.

    Raises:
        NoTopic: the store has no such topic.
        TypeError, ValueError: an argument is wrong.
        StoreCorrupt, RecordsLost: records are corrupt or gone.
        StoreClosed: `close` was called.
    """

    def __init__(self, directory: Path | str, take: TakeStores) -> None:
        """`directory`, or a URL, is where the stores lie that `take` returns as they are now."""
        self.directory = directory
        self._take = take
        self._closed = False

    def __enter__(self) -> StoredMessages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further calls. Batches that are being read stay readable."""
        self._closed = True

    @property
    def topics(self) -> list[str]:
        """The topics of the store, in order, without internal, retry and dead-letter topics.

        A topic that the broker knows is listed even if it has no message yet, unless it is one of
        the two that bear the names of the broker and its cluster.
        """
        self._check_open()
        stores = undisturbed(lambda: self._take(NO_QUEUE, None))
        return sorted(set().union(*map(application_topics, stores)))

    def batches(
        self, topic: str | Iterable[str] | None = None, **options: Unpack[QueryOptions]
    ) -> Any:
        """Return a `pyarrow.RecordBatchReader` over the messages, queue by queue.

        Iterate over it to get `pyarrow.RecordBatch`es of up to 16 384 messages and about 4 MiB, so
        that memory stays bounded. DuckDB and other tools read it as it is. See the class for
        options and errors.
        """
        scan = self._scan(topic, **options)
        return pa.RecordBatchReader.from_batches(scan.schema, iter(scan))

    def to_arrow(
        self, topic: str | Iterable[str] | None = None, **options: Unpack[QueryOptions]
    ) -> Any:
        """Return the messages as a `pyarrow.Table`. See the class for options and errors."""
        scan = self._scan(topic, **options)
        return pa.Table.from_batches(scan, schema=scan.schema)

    def to_pandas(
        self, topic: str | Iterable[str] | None = None, **options: Unpack[QueryOptions]
    ) -> Any:
        """Return the messages as a `pandas.DataFrame`, with properties as dictionaries.

        See the class for options and errors.
        """
        _need("pandas")
        return self.to_arrow(topic, **options).to_pandas(maps_as_pydicts="lossy")

    def to_polars(
        self, topic: str | Iterable[str] | None = None, **options: Unpack[QueryOptions]
    ) -> Any:
        """Return the messages as a `polars.DataFrame`.

        The properties are an Arrow map; versions of polars differ in how they show one. See the
        class for options and errors.
        """
        _need("polars")
        import polars

        return polars.from_arrow(self.to_arrow(topic, **options))

    def _scan(self, topic: str | Iterable[str] | None, **options: Unpack[QueryOptions]) -> Scan:
        self._check_open()
        return Query(topic, **options).scan(self._take)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self.directory} was closed; open it again")


def _need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"{package} is not installed; type: pip install {package}", name=package
        )
