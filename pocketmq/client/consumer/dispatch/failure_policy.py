"""Decides by the type of the exception what happens to a message that failed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pocketmq.client.parameters import Seconds, seconds, shown
from pocketmq.client.reconsume_later import DEAD_LETTER, ReconsumeLater
from pocketmq.message.limits import DELAY_LEVELS

#: The most delays for one type of exception.
MOST_DELAYS: Final = 1024


class FailurePolicy:
    """The delays before each redelivery, seconds, by the type of the exception. After the last one,
    a message becomes a dead letter.

    The arguments are those of PushConsumer. Raises TypeError, ValueError; the text names the
    argument.
    """

    def __init__(
        self,
        dead_letter_on: Iterable[type[Exception]] = (),
        retry_delays: Mapping[type[Exception], Sequence[Seconds]] | None = None,
    ) -> None:
        self._delays: dict[type[BaseException], tuple[float, ...]] = {}
        if retry_delays is not None and not isinstance(retry_delays, Mapping):
            raise TypeError(
                "retry_delays must be a mapping of types of exceptions to lists of seconds, as "
                f"{{TimeoutError: (1, 5, 30)}}, not {shown(retry_delays)}"
            )
        for kind, delays in (retry_delays or {}).items():
            name = f"retry_delays[{_checked(kind, 'retry_delays').__name__}]"
            if isinstance(delays, str | bytes) or not isinstance(delays, Sequence):
                raise TypeError(f"{name} must be a list of seconds, not {shown(delays)}")
            if len(delays) > MOST_DELAYS:
                raise ValueError(f"{name} has {len(delays)} delays, {MOST_DELAYS} are allowed")
            self._delays[kind] = tuple(_delay(name, delay) for delay in delays)
        if isinstance(dead_letter_on, type) or not isinstance(dead_letter_on, Iterable):
            raise TypeError(
                "dead_letter_on must be a list of types of exceptions, as (PayloadError,), not "
                f"{shown(dead_letter_on)}"
            )
        for kind in dead_letter_on:
            if self._delays.setdefault(_checked(kind, "dead_letter_on"), ()):
                raise ValueError(
                    f"{kind.__name__} is in dead_letter_on and has delays in retry_delays: name it "
                    "in one of them"
                )

    def __bool__(self) -> bool:
        return bool(self._delays)

    def delay(self, error: BaseException | None, failures: int) -> float | None:
        """Return the seconds until the redelivery of a message that failed `failures` times before.

        Below 0: it becomes a dead letter now. None: there is no rule. The rule of the most specific
        class of the exception is used. A ReconsumeLater with a delay level has no rule; for one
        without, only a rule for its own class is used, not one for Exception.
        """
        if not self._delays or (isinstance(error, ReconsumeLater) and error.delay_level):
            return None
        for kind in type(error).__mro__:
            delays = self._delays.get(kind)
            if delays is not None:
                return delays[failures] if failures < len(delays) else DEAD_LETTER
            if kind is ReconsumeLater:
                return None
        return None


def delay_level(delay: float) -> int:
    """Return the level of a broker's shortest delay of at least `delay` seconds."""
    return min(bisect_left(DELAY_LEVELS, delay) + 1, len(DELAY_LEVELS))


def _checked(kind: object, argument: str) -> type[Exception]:
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        raise TypeError(f"{argument} takes types of exceptions, not {shown(kind)}")
    return kind


def _delay(name: str, value: Seconds) -> float:
    delay = seconds(name, value)
    if delay > DELAY_LEVELS[-1]:
        raise ValueError(
            f"{name} must be at most {DELAY_LEVELS[-1]} seconds, the longest delay of a broker, "
            f"not {shown(value)}"
        )
    return delay
