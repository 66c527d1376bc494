"""The delayed and timed messages of a broker: put hooks, delivery services, progress files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pocketmq.broker.background import CallLater, PeriodicSave
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delay_offset import DelayOffsets
from pocketmq.broker.delayed.put_hooks import DelayLevelHook, TimerHook
from pocketmq.broker.delayed.schedule import ScheduleService
from pocketmq.broker.delayed.timer import TimerService
from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.message_store import MessageStore


class DelayedDelivery:
    """The delayed and timed messages of one broker.

    The constructor reads delayOffset.json in `directory` and adds its hooks to `put_hooks`.

    Raises:
        ConfigFileError: delayOffset.json is damaged.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        statistics: Statistics,
        directory: Path,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._config = config
        offsets = self.delay_offsets = DelayOffsets(
            directory / "delayOffset.json", clock, config.delay_offset_update_version_step
        )
        offsets.load()
        self.schedule = ScheduleService(store, put_hooks, offsets, statistics, clock, call_later)
        self.timer = TimerService(store, put_hooks, statistics, clock, call_later)
        put_hooks.hooks += (
            TimerHook(config, self.timer.index.congestion, clock),
            DelayLevelHook(store.delay_levels),
        )

    def figures(self) -> dict[str, object]:
        """Return the figures for brokerStatus: `delivered,stored` by level, and the timer's."""
        levels = self.schedule.progress().items()
        return {
            **{
                f"scheduleMessageOffset_{level}": f"{done},{most}" for level, (done, most) in levels
            },
            **self.timer.figures(),
        }

    def follow(self, stack: StopSteps) -> None:
        """Run as a slave until `stack` is closed: deliver nothing, but keep the timer index up to
        date. Raises StoreError."""
        times = PeriodicSave(self._config.timer_flush_interval_ms / 1000, self.timer.save)
        stack.callback(self.timer.close)
        stack.push_step(times.stop)
        stack.push_step(self.timer.stop)
        self.timer.follow()
        times.start()

    def take_over(self, stack: StopSteps) -> None:
        """After `follow`: deliver until `stack` is closed; then follow again."""
        delays = PeriodicSave(self._config.flush_delay_offset_interval / 1000, self.schedule.save)
        stack.push_step(self.timer.retire)
        stack.push_step(delays.stop)
        stack.callback(self.schedule.stop)
        self.schedule.start()
        self.timer.take_over()
        delays.start()

    def was_cut(self) -> None:
        """Continue at the new ends of the queues: they were truncated."""
        self.timer.was_cut()
        self.schedule.was_cut()

    def start(self, stack: StopSteps) -> None:
        """Deliver until `stack` is closed. Raises StoreError."""
        config = self._config
        delays = PeriodicSave(config.flush_delay_offset_interval / 1000, self.schedule.save)
        stack.push_step(delays.stop)
        stack.callback(self.schedule.stop)
        stack.callback(self.timer.close)
        times = PeriodicSave(config.timer_flush_interval_ms / 1000, self.timer.save)
        stack.push_step(times.stop)
        stack.push_step(self.timer.stop)
        self.schedule.start()
        self.timer.start()
        delays.start()
        times.start()
