"""The broker's state for GET_BROKER_RUNTIME_INFO, with the names and formats of the reference.

All values are text. Rates are three numbers over 10, 60 and 600 s. This broker has no thread
pools: sends that wait for the disk, and held pulls, are shown as the official broker's thread pool
queues; the other queues are 0. Reference: AdminBrokerProcessor.prepareRuntimeInfo,
StoreStatsService.getRuntimeInfo.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Final

from pocketmq.broker.acknowledge.put_times import PutTimes
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.controller.group_replication import GroupReplication
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.health import MemberHealth, MemberRole
from pocketmq.broker.health_check import HealthCheck, existing
from pocketmq.broker.processors.pull import PullProcessor
from pocketmq.broker.processors.send.send import SendProcessor
from pocketmq.broker.replication.replication import Replication
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.message.record_layout import MIN_RECORD
from pocketmq.remoting.codes import VERSION, release_of
from pocketmq.remoting.monotonic import MonotonicClock
from pocketmq.store.message_store import MessageStore

VERSION_TEXT: Final = f"V{release_of(VERSION).replace('.', '_')}"
SEPARATOR: Final = "; "
"""Separates the problems in one figure."""
_UNLIMITED: Final = 2**31 - 1  # the reference's value when it has no such buffers
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class RuntimeInfo:
    """Collects the figures; `clock` gives Unix milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        statistics: Statistics,
        sends: SendProcessor,
        pulls: PullProcessor,
        put_times: PutTimes,
        delayed: DelayedDelivery,
        replication: Replication | GroupReplication,
        health: HealthCheck,
        clock: Callable[[], int],
        monotonic: MonotonicClock,
    ) -> None:
        self._config = config
        self._store = store
        self._statistics = statistics
        self._sends = sends
        self._pulls = pulls
        self._put_times = put_times
        self._delayed = delayed
        self._replication = replication
        self._health = health
        self._boot = clock()
        self._monotonic = monotonic
        self._started = monotonic()

    def table(self) -> dict[str, str]:
        """Return all figures by name."""
        health = self._health.now()
        values: dict[str, object] = {
            **_health(health),
            **self._process(),
            **self._traffic(),
            **self._queues(),
            **self._disk(health.disk.used_percent / 100),
            **self._put_times.figures(),
            **self._delayed.figures(),
            **self._replication.figures(),
        }
        return {
            name: ("true" if value else "false") if isinstance(value, bool) else str(value)
            for name, value in sorted(values.items())
        }

    def _process(self) -> dict[str, object]:
        up = (self._monotonic() - self._started) // 1000
        days, hours, minutes, seconds = up // 86_400, up // 3600 % 24, up // 60 % 60, up % 60
        return {
            "brokerActive": True,
            "brokerVersion": VERSION,
            "brokerVersionDesc": VERSION_TEXT,
            "isSupportBatchProtocol": True,
            "bootTimestamp": self._boot,
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "startAcceptSendRequestTimeStamp": self._config.start_accept_send_request_time_stamp,
        }

    def _traffic(self) -> dict[str, object]:
        statistics = self._statistics
        put, got = statistics.put, statistics.get
        return {
            "putTps": statistics.put_rate.text(),
            "getFoundTps": statistics.get_found_rate.text(),
            "getMissTps": statistics.get_miss_rate.text(),
            "getTotalTps": statistics.get_total_rate.text(),
            "getTransferredTps": statistics.get_transferred_rate.text(),
            "putMessageTimesTotal": put.messages,
            "putMessageSizeTotal": put.size,
            "putMessageAverageSize": put.size / put.messages if put.messages else 0.0,
            "putMessageFailedTimes": self._store.counters.puts_refused,
            "damagedEntriesRebuilt": self._store.counters.entries_rebuilt,
            "damagedMessagesPassedOver": self._store.counters.messages_passed_over,
            "getMessageEntireTimeMax": statistics.longest_get // 1_000_000,
            "msgPutTotalTodayNow": put.messages,
            "msgPutTotalTodayMorning": statistics.put_totals.today_morning,
            "msgPutTotalYesterdayMorning": statistics.put_totals.yesterday_morning,
            "msgGetTotalTodayNow": got.messages,
            "msgGetTotalTodayMorning": statistics.get_totals.today_morning,
            "msgGetTotalYesterdayMorning": statistics.get_totals.yesterday_morning,
            "timerEnqueueTps": statistics.timer_enqueue_rate.rate(10),
            "timerDequeueTps": statistics.timer_dequeue_rate.rate(10),
        }

    def _queues(self) -> dict[str, object]:
        config = self._config
        return {
            "sendThreadPoolQueueSize": self._sends.unflushed.count,
            "sendThreadPoolQueueCapacity": config.send_thread_pool_queue_capacity,
            "pullThreadPoolQueueSize": 0,
            "pullThreadPoolQueueCapacity": config.max_held_pulls,
            "litePullThreadPoolQueueSize": 0,
            "litePullThreadPoolQueueCapacity": config.max_held_pulls,
            "heldPullRequests": len(self._pulls.holds),
            **dict.fromkeys(_IDLE_QUEUES, 0),
        }

    def _disk(self, ratio: float) -> dict[str, object]:
        log = self._store.commit_log
        directory = self._config.commit_log_directory
        usage = shutil.disk_usage(existing(directory))
        behind = log.end - self._store.flushed_offset
        return {
            "commitLogMinOffset": log.min_offset,
            "commitLogMaxOffset": log.end,
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{directory}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {_size(usage.total)}, "
            f"Free : {_size(usage.total - usage.used)}.",
            "remainHowManyDataToFlush": _size(behind),
            "remainHowManyDataToCommit": _size(0),
            "remainTransientStoreBufferNumbs": _UNLIMITED,
            "dispatchBehindBytes": self._store.dispatch_behind,
            "dispatchMaxBuffer": 0,
            "pageCacheLockTimeMills": 0,
            "earliestMessageTimeStamp": self._earliest(),
        }

    def _earliest(self) -> int:
        """Store time (ms) of the oldest message; -1 without one."""
        log = self._store.commit_log
        return log.store_timestamp_at(log.min_offset, MIN_RECORD)


def _health(health: MemberHealth) -> dict[str, object]:
    """Return the figures that `pocketmq status` reads, under keys that RocketMQ does not have."""
    figures: dict[str, object] = {
        "memberReady": health.ready,
        "memberAcceptsSends": health.accepts_sends,
        "memberPermission": health.permission,
        "memberProblems": SEPARATOR.join(health.problems),
        "memberRemarks": SEPARATOR.join(health.remarks),
    }
    link = health.link
    if link is not None:
        figures["haMaster"] = link.master
        figures["haInSync"] = not link.problem
        if link.lag is not None:
            figures["haLag"] = link.lag
    elif health.role is MemberRole.MASTER:
        figures["haCopies"] = health.copies
        figures["haCopiesNeeded"] = health.copies_needed
    return figures


_IDLE_QUEUES: Final = (
    "ackThreadPoolQueueSize",
    "queryThreadPoolQueueSize",
    "EndTransactionQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueCapacity",
    "queryThreadPoolQueueCapacity",
    "EndTransactionThreadPoolQueueCapacity",
)


def _size(count: float) -> str:
    """Return a size in bytes as text, such as `"1.5 GiB"`."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
