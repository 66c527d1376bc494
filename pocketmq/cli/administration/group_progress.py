"""The progress of a consumer group in its topics."""

from __future__ import annotations

from typing import Any

from pocketmq.client.admin import Admin
from pocketmq.remoting.bodies.consumer import ConsumeStats


async def progress_by_topic(admin: Admin, group: str) -> list[dict[str, Any]]:
    """A row for each topic in which the group has offsets: its queues, messages consumed, lag."""
    stats = await admin.consume_stats(group)
    rows: dict[str, dict[str, Any]] = {}
    for row in progress_by_queue(stats):
        total = rows.setdefault(row["topic"], {"topic": row["topic"], "queues": 0, "lag": 0})
        total["queues"] += 1
        total["lag"] += row["lag"]
    return [rows[topic] for topic in sorted(rows)]


def progress_by_queue(stats: ConsumeStats) -> list[dict[str, Any]]:
    """Return a row for each queue: the end of the queue, the group's offset, the lag between them,
    and when the message before the group's offset was stored (Unix ms)."""
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "end": progress.broker_offset,
            "consumed": progress.consumer_offset,
            "lag": progress.lag,
            "storeTimestamp": progress.last_timestamp or None,
        }
        for queue, progress in sorted(stats.offset_table.items())
    ]
