"""The put hooks of messages that consumers must not read at once: delay levels and delivery times.

A delayed message (property DELAY) waits in SCHEDULE_TOPIC_XXXX, in the queue of its level; a timed
message (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS) waits in rmq_sys_wheel_timer. Both have
their destination in REAL_TOPIC and REAL_QID. Reference: HookUtils.handleScheduleMessage.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Final

from pocketmq.broker.inner_message import InnerMessage
from pocketmq.message import properties as names
from pocketmq.message.limits import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.message.recall_handle import RecallHandle
from pocketmq.message.sysflag import TRANSACTION_PREPARED
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.config import StoreConfig
from pocketmq.store.delay_level import DelayLevels

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_TIMES: Final = (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the property DELAY; 0 if it is missing. Raises RemotingError (MESSAGE_ILLEGAL)."""
    text = properties.get(names.DELAY)
    return 0 if text is None else _integer(names.DELAY, text)


class DelayLevelHook:
    """Moves delayed messages to the schedule topic."""

    def __init__(self, levels: DelayLevels) -> None:
        self._levels = levels

    def __call__(self, inner: InnerMessage) -> None:
        """Move a message with a level. Raises RemotingError (MESSAGE_ILLEGAL) for a level that is
        not a number."""
        properties = inner.properties
        if names.DELAY not in properties or inner.sys_flag & TRANSACTION_PREPARED:
            return
        level, most = delay_level(properties), len(self._levels)
        if level > most:
            level = most
            properties[names.DELAY] = str(most)
        if level > 0:
            _move(inner, SCHEDULE_TOPIC, level - 1)


class TimerHook:
    """Moves timed messages to the timer topic.

    `congestion(time)` is the number of messages that wait for a delivery time (ms); `clock` gives
    milliseconds.
    """

    def __init__(
        self, config: StoreConfig, congestion: Callable[[int], int], clock: Callable[[], int]
    ) -> None:
        self._config = config
        self._congestion = congestion
        self._clock = clock

    def __call__(self, inner: InnerMessage) -> None:
        """Move a message whose time is in the future.

        Raises RemotingError: MESSAGE_ILLEGAL for a time that is not a number or too far away,
        SYSTEM_ERROR if too many messages wait for the same time.
        """
        properties = inner.properties
        if inner.sys_flag & TRANSACTION_PREPARED or not any(name in properties for name in _TIMES):
            return
        if delay_level(properties) > 0:
            # A delay level takes precedence over a time.
            for name in _TIMES:
                properties.pop(name, None)
            return
        if inner.topic == TIMER_TOPIC or names.TIMER_OUT_MS in properties:
            return
        config = self._config
        if not config.timer_wheel_enable:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        now = self._clock()
        deliver = self._deliver_time(properties, now)
        furthest = config.timer_max_delay_sec * 1000
        if deliver - now > furthest:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal: it asks for a delay of {deliver - now} ms, the max delay "
                f"is {furthest} ms",
            )
        if deliver <= now:
            if names.TIMER_DEL_UNIQKEY in properties:
                raise RemotingError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    "timer message illegal: the message to be deleted is due already",
                )
            return
        # The previous slot: its messages are delivered when it has passed, never too early.
        precision = config.timer_precision
        slot = (deliver - 1) // precision * precision
        self._flow_control(self._congestion(slot))
        properties[names.TIMER_OUT_MS] = str(slot)
        _move(inner, TIMER_TOPIC, 0)

    def _deliver_time(self, properties: Mapping[str, str], now: int) -> int:
        for name, factor in ((names.TIMER_DELAY_SEC, 1000), (names.TIMER_DELAY_MS, 1)):
            text = properties.get(name)
            if text is not None:
                return now + _integer(name, text) * factor
        return _integer(names.TIMER_DELIVER_MS, properties[names.TIMER_DELIVER_MS])

    def _flow_control(self, waiting: int) -> None:
        limit = self._config.timer_congest_num_each_slot
        # Between the limit and twice the limit, refuse a growing share of the messages.
        if waiting > limit and random.random() < (waiting - limit) / (limit + 0.1):
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: {waiting} messages wait for this time, "
                f"timerCongestNumEachSlot is {limit}",
            )


def recall_handle(inner: InnerMessage, topic: str, broker_name: str) -> str | None:
    """Return the handle that recalls a message sent to `topic`; None unless it is timed."""
    if inner.topic != TIMER_TOPIC or topic == TIMER_TOPIC or topic.startswith(RETRY_PREFIX):
        return None
    properties = inner.properties
    time = int(properties[names.TIMER_OUT_MS]) + 1  # rounded up, this gives the same slot again
    return RecallHandle(
        properties[names.REAL_TOPIC], broker_name, str(time), properties[names.UNIQ_KEY]
    ).encode()


def _move(inner: InnerMessage, topic: str, queue_id: int) -> None:
    inner.properties[names.REAL_TOPIC] = inner.topic
    inner.properties[names.REAL_QID] = str(inner.queue_id)
    inner.topic = topic
    inner.queue_id = queue_id


def _integer(name: str, text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL, f"property {name} is not a number: {text[:40]!r}"
        )
    return int(text)
