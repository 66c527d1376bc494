"""The state that a push consumer reports to operators (GET_CONSUMER_RUNNING_INFO)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from types import CoroutineType

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.consume_service import Queue
from pocketmq.client.consumer.dispatch.consumption import ConsumeOptions, Consumption
from pocketmq.client.consumer.dispatch.eager_start import begun_coroutine
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.instance import ClientInstance
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo

MIB = 1024 * 1024
#: The most stacks of tasks in the answer.
MAX_STACKS = 100


class RunningInfo:
    """Collects the answer; `started_at`: when the consumer started, Unix ms."""

    def __init__(
        self,
        instance: ClientInstance,
        options: ConsumeOptions,
        assignment: Assignment[ConsumedMessage],
        consumption: Consumption,
    ) -> None:
        self.started_at = 0
        self.orderly = options.orderly
        self._instance = instance
        self._options = options
        self._assignment = assignment
        self._consumption = consumption

    def collect(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Return the current state; `with_stacks`: including the stack of each worker."""
        assignment = self._assignment
        return ConsumerRunningInfo(
            jstack=_stacks(self._consumption.workers.tasks) if with_stacks else None,
            mq_table={pq.queue: self._queue_info(pq) for pq in assignment.queues},
            properties=self._properties(),
            status_table={
                topic: self._consumption.stats.status(topic) for topic in assignment.subscriptions
            },
            subscription_set=assignment.subscription_data(),
        )

    def _properties(self) -> dict[str, str]:
        options = self._options
        return {
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.name_servers.addresses),
            "PROP_THREADPOOL_CORE_SIZE": str(len(self._consumption.workers)),
            "PROP_CONSUMEORDERLY": str(options.orderly).lower(),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": str(self.started_at),
            "consumerGroup": options.group,
            "messageModel": "BROADCASTING" if options.broadcast else "CLUSTERING",
        }

    def _queue_info(self, pq: Queue) -> ProcessQueueInfo:
        cached = [*pq.unfinished.values(), *pq.buffer]
        in_order = list(pq.unfinished.values()) if self.orderly else []
        return ProcessQueueInfo(
            cached_msg_count=len(cached),
            cached_msg_min_offset=_offset(cached, 0),
            cached_msg_max_offset=_offset(cached, -1),
            cached_msg_size_in_mib=pq.size // MIB,
            commit_offset=pq.safe_offset or 0,
            droped=pq.dropped,
            last_consume_timestamp=_unix_time(pq.consumed_at),
            last_pull_timestamp=_unix_time(pq.pulled_at),
            locked=self.orderly and pq.locked_until > 0,
            transaction_msg_count=len(in_order),
            transaction_msg_min_offset=_offset(in_order, 0),
            transaction_msg_max_offset=_offset(in_order, -1),
        )


def _offset(messages: list[ConsumedMessage], index: int) -> int:
    return messages[index].queue_offset if messages else 0


def _unix_time(at: float | None) -> int:
    """Convert a time of the monotonic clock to Unix milliseconds; 0 for None."""
    return 0 if at is None else int((time.time() - (time.monotonic() - at)) * 1000)


def _stacks(tasks: Iterable[asyncio.Task[None]]) -> str:
    """Format the stack of each task, from the worker to what its handler awaits."""
    return "\n\n".join(
        "\n".join([task.get_name(), *_frames(task.get_coro())]) for task in list(tasks)[:MAX_STACKS]
    )


def _frames(awaited: object) -> Iterator[str]:
    # Task.get_stack has only the outermost coroutine: follow what each one awaits.
    while isinstance(awaited, CoroutineType):
        if awaited.cr_frame is not None:
            code = awaited.cr_frame.f_code
            yield f"  {code.co_qualname} ({code.co_filename}:{awaited.cr_frame.f_lineno})"
        awaited = begun_coroutine(awaited.cr_await) or awaited.cr_await
