"""Checks of the arguments that users pass, shared by producers, consumers and the admin client.

Each function returns the value in the form the client works with. Each raises `TypeError` for a
value of the wrong type and `ValueError` for one out of range; the text names the argument, the
value and what is allowed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

from pocketmq.message.message import MessageQueue

#: A duration: seconds, or a `timedelta`.
Seconds = float | timedelta
#: A duration: milliseconds, or a `timedelta`.
Milliseconds = float | timedelta

#: The longest duration that is accepted, seconds: 100 years. A larger one is a wrong unit.
LONGEST = 100 * 365.25 * 86_400.0
#: Points in time before this one (2000-01-01 UTC, Unix ms) are seconds taken for milliseconds.
EARLIEST_MS = 946_684_800_000
#: Points in time after this one (2200-01-01 UTC, Unix ms) are a wrong unit as well.
LATEST_MS = 7_258_118_400_000
#: Brokers keep offsets in eight bytes, and ids and counts in four.
MOST_OFFSET = 2**63 - 1
MOST_INT = 2**31 - 1

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def seconds(name: str, value: Seconds, *, above_zero: bool = False) -> float:
    """Check a duration; return it in seconds.

    `above_zero` refuses 0 as well.
    """
    # A fast path: this may be called for every send.
    if type(value) is float and 0.0 < value <= LONGEST:
        return value
    return _duration(name, value, "seconds", 1.0, above_zero=above_zero)


def milliseconds(name: str, value: Milliseconds, *, above_zero: bool = False) -> float:
    """Check a duration; return it in milliseconds.

    `above_zero` refuses 0 as well.
    """
    return _duration(name, value, "milliseconds", 1000.0, above_zero=above_zero)


def _duration(
    name: str, value: float | timedelta, unit: str, per_second: float, *, above_zero: bool
) -> float:
    allowed = f"{unit} (a number or a timedelta)"
    if isinstance(value, timedelta):
        result = value.total_seconds() * per_second
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be {allowed}, not {shown(value)}")
    else:
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
    bound = "above 0" if above_zero else "0 or more"
    if math.isnan(result) or result < 0 or (above_zero and result == 0):
        raise ValueError(f"{name} must be {bound} {allowed}, not {shown(value)}")
    if result > LONGEST * per_second:
        raise ValueError(f"{name} must be at most 100 years in {allowed}, not {shown(value)}")
    return result


def seconds_or_none(name: str, value: Seconds | None, *, above_zero: bool = False) -> float | None:
    """Check a duration that may be None; return it in seconds."""
    return None if value is None else seconds(name, value, above_zero=above_zero)


def unix_seconds(at: float) -> float:
    """Convert a time of the monotonic clock to Unix seconds."""
    return time.time() - (time.monotonic() - at)


def point_in_time(name: str, value: int | datetime) -> int:
    """Check a point in time: a `datetime` (without a time zone: local time), or Unix ms.

    Return Unix ms. Refuses seconds given as milliseconds.
    """
    if isinstance(value, datetime):
        try:
            result = round(value.timestamp() * 1000)
        except (OverflowError, ValueError, OSError) as error:
            raise ValueError(f"{name} {value!r} is out of range: {error}") from None
    elif isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a datetime or whole Unix milliseconds, not {shown(value)}")
    else:
        result = value
    if EARLIEST_MS <= result <= LATEST_MS:
        return result
    hint = ""
    if not isinstance(value, datetime) and EARLIEST_MS <= result * 1000 <= LATEST_MS:
        meant = datetime.fromtimestamp(result, UTC)
        hint = f"; as seconds this is {meant:%Y-%m-%d %H:%M:%S} UTC: multiply by 1000"
    raise ValueError(
        f"{name} must be a datetime or Unix milliseconds between the years 2000 and 2200, "
        f"not {shown(value)}{hint}"
    )


def store_time(name: str, value: datetime) -> int:
    """Check a `datetime` from 1970 on (without a time zone: local time); return Unix ms."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {shown(value)}")
    try:
        result = int(value.timestamp() * 1000)
    except (OverflowError, ValueError, OSError) as error:
        raise ValueError(f"{name} {value!r} is out of range: {error}") from None
    # Brokers take the number -1 for "the end".
    if result < 0:
        raise ValueError(f"{name} must be a datetime from 1970 on, not {shown(value)}")
    return result


def whole(name: str, value: int, low: int = 0, high: int | None = None) -> int:
    """Check a whole number from `low` to `high`, both included; no upper bound if None."""
    allowed = f"a whole number from {low} to {high}" if high is not None else f"{low} or more"
    if isinstance(value, bool) or not isinstance(value, int):
        what = allowed if high is not None else f"a whole number, {allowed}"
        raise TypeError(f"{name} must be {what}, not {shown(value)}")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {allowed}, not {shown(value)}")
    return value


def flag(name: str, value: bool) -> bool:
    """Check a value that must be True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return value


def text(name: str, value: str, *, empty: bool = False) -> str:
    """Check a text; it may be empty only with `empty`."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text (str), not {shown(value)}")
    if not value and not empty:
        raise ValueError(f"{name} must not be empty")
    return value


def text_or_none(name: str, value: str | None) -> str | None:
    """Check a text that is not empty, or None."""
    return None if value is None else text(name, value)


def texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Check a list, tuple or set of texts, none of them empty."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of str, not {shown(values)}")
    return tuple(text(f"each of {name}", value) for value in values)


def texts_by_name(name: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """Check a mapping of texts to texts; a value may be empty."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping of texts, not {shown(values)}")
    for key, value in values.items():
        text(f"each key of {name}", key)
        text(f"{name}[{shown(key)}]", value, empty=True)
    return values


def each_milliseconds(name: str, values: Sequence[Milliseconds]) -> list[float]:
    """Check a list of durations; return them in milliseconds."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a list of milliseconds, not {shown(values)}")
    return [milliseconds(f"each of {name}", value) for value in values]


def instance(name: str, value: T, kind: type[T]) -> T:
    """Check that the value is an object of a class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {shown(value)}")
    return value


def message_queue(name: str, value: MessageQueue) -> MessageQueue:
    """Check a MessageQueue, and that its fields have values that a queue can have."""
    if (
        not isinstance(value, MessageQueue)
        or not isinstance(value.topic, str)
        or not isinstance(value.broker_name, str)
        or isinstance(value.queue_id, bool)
        or not isinstance(value.queue_id, int)
    ):
        raise TypeError(
            f"{name} must be a MessageQueue(topic, broker_name, queue_id), not {shown(value)}"
        )
    whole(f"the queue id of {name}", value.queue_id, 0, MOST_INT)
    text(f"the topic of {name}", value.topic)
    return value


def one_of(name: str, value: T, allowed: Sequence[T]) -> T:
    """Check that the value is one of those allowed."""
    # By type as well: True is 1, and 1.0 is 1.
    if any(value == known and type(value) is type(known) for known in allowed):
        return value
    known = ", ".join(repr(each) for each in allowed)
    raise ValueError(f"{name} must be one of {known}, not {shown(value)}{_nearest(value, allowed)}")


def function(name: str, value: F) -> F:
    """Check that the value can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {shown(value)}")
    return value


def functions(name: str, values: Sequence[F]) -> Sequence[F]:
    """Check a list of callables."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a list of functions, not {shown(values)}")
    for value in values:
        function(f"each of {name}", value)
    return values


def unknown_option(what: str, given: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword that `what` does not have; it names the nearest one."""
    return TypeError(f"{what} has no option {given!r}{_nearest(given, sorted(known))}")


def shown(value: object) -> str:
    """Return the value as errors show it: short, with its type if that is not obvious."""
    try:
        told = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    if len(told) > 80:
        told = f"{told[:77]}..."
    if value is None or isinstance(value, str | bytes | int | float | timedelta | datetime):
        return told
    if told.startswith(f"{type(value).__name__}("):
        return told
    return f"{told} ({type(value).__name__})"


def _nearest(given: object, known: Sequence[object]) -> str:
    names = [each for each in known if isinstance(each, str)]
    near = get_close_matches(given, names, n=1) if isinstance(given, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""
