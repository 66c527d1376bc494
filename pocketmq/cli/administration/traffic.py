"""Rows with the rates of topics and consumer groups, from two samples of their offsets."""

from __future__ import annotations

from typing import Any

from pocketmq.client.admin.traffic import Look, rate, speed


def topic_rows(before: Look, now: Look) -> list[dict[str, Any]]:
    """Return a row for each topic, the fastest first: messages in per second, and in total."""
    seconds = now.time - before.time
    rows = [
        {
            "topic": topic,
            "inPerSecond": rate(before.topics.get(topic, end), end, seconds),
            "end": end,
        }
        for topic, end in now.topics.items()
    ]
    return sorted(rows, key=lambda row: (-row["inPerSecond"], row["topic"]))


def group_rows(before: Look, now: Look) -> list[dict[str, Any]]:
    """Return a row for each group, the largest lag first.

    `secondsToCatchUp` is how long the lag takes to disappear at these rates: 0 without lag, None if
    it does not shrink.
    """
    seconds = now.time - before.time
    rows = []
    for group, progress in now.groups.items():
        moved = speed(before.groups.get(group, progress), progress, seconds)
        rows.append(
            {
                "group": group,
                "lag": progress.lag,
                "inPerSecond": moved.arriving,
                "outPerSecond": moved.consuming,
                "secondsToCatchUp": moved.seconds_to_catch_up,
            }
        )
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))
