"""Types of option values: each turns text into a checked value, or raises argparse's usage
error."""

from __future__ import annotations

import argparse
import datetime as dt
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from pocketmq.message.message import MessageQueue
from pocketmq.store.local_path import is_remote

#: Where to start reading: an end of the queues, or a store time.
Start: TypeAlias = Literal["begin", "end"] | dt.datetime

_ENDS: Mapping[str, Literal["begin", "end"]] = {"begin": "begin", "end": "end"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
#: Smaller numbers are more likely seconds than milliseconds: this is in March 1973.
_LEAST_MILLISECONDS = 100_000_000_000
_EXAMPLES = "a time such as -10m or 2026-11-21T08:30:00Z"
_TIMES = f"{_EXAMPLES}, or milliseconds since 1970"


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def offset(text: str) -> int:
    """A whole number of at least 0: an offset, or the id of a queue."""
    if not _digits(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def port(text: str) -> int:
    """A port number; 0 lets the system choose."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def duration(text: str) -> float:
    """Seconds, from a number with or without a unit: 10, 1.5s, 5m, 2h, 1d, 250ms."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration: give seconds, or a number with ms, s, m, h or d"
        )
    return float(match[1]) * _UNITS[match[2] or "s"]


def start(text: str, clock: Callable[[], float] = time.time) -> Start:
    """An end of the queues, or a time: `begin`, `end`, `-10m`, ISO 8601, or ms since 1970.

    A time without a zone is local; `-10m` counts back from `clock()`.
    """
    if text in _ENDS:
        return _ENDS[text]
    return _time(text, clock, f"begin, end, or {_TIMES}")


def moment(text: str, clock: Callable[[], float] = time.time) -> dt.datetime:
    """A time: `-10m`, ISO 8601 (local where it names no zone), or milliseconds since 1970."""
    return _time(text, clock, _TIMES)


def add_time_range(parser: argparse.ArgumentParser) -> None:
    """Add `--from` and `--until`, which become `from_time` and `until_time`."""
    for name, word in (("--from", "at or after"), ("--until", "before")):
        parser.add_argument(
            name,
            dest=name.strip("-") + "_time",
            type=moment,
            metavar="TIME",
            help=f"only messages stored {word} this time: -10m, ISO 8601 (local unless it names a "
            "zone), or ms since 1970",
        )


def _time(text: str, clock: Callable[[], float], wanted: str) -> dt.datetime:
    try:
        if text.startswith("-") and _DURATION.fullmatch(text[1:]) and not text[-1].isdigit():
            return _EPOCH + dt.timedelta(seconds=clock() - duration(text[1:]))
        if _digits(text):
            return _of_milliseconds(text)
        moment = dt.datetime.fromisoformat(text)
        moment.timestamp()  # fails for a local time in the year 1
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is outside the years 1 to 9999") from None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}") from None
    return moment


def _of_milliseconds(text: str) -> dt.datetime:
    if int(text) < _LEAST_MILLISECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is a moment in the first years after 1970: give milliseconds, not seconds"
        )
    return _EPOCH + dt.timedelta(milliseconds=int(text))


def directory(text: str) -> Path:
    """A directory of this machine."""
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a directory of this machine: copy or mount the store first"
        )
    return _expanded(text)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {str(error).rstrip('.')}; set HOME") from None


def store_or_url(text: str) -> Path | str:
    """A directory of this machine, or the URL of archives."""
    return text if is_remote(text) else _expanded(text.removeprefix("file://"))


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE; the value may be empty."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def message_property(text: str) -> tuple[str, str]:
    """NAME=VALUE of a message, neither of them empty."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with both given")
    return name, value


def tag(text: str) -> str:
    """One tag of a message."""
    if not text or text != text.strip() or "|" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one tag: a message has a single tag, without '|' and without blanks "
            "around it ('a || b' is for consumers: pull --tags)"
        )
    return text


def key(text: str) -> str:
    """One index key of a message."""
    if not text or any(character.isspace() for character in text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one key: a key has no blanks; repeat --key for several keys"
        )
    return text


def name_servers(text: str) -> str:
    """Addresses of name servers. A bare number is refused: it is probably meant as a count."""
    if text.isascii() and text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address HOST:PORT: -n names the name servers "
            "(--count limits the number of messages)"
        )
    return text


def queue_offset(text: str) -> tuple[MessageQueue, int]:
    """TOPIC/BROKER/QUEUE/OFFSET: one message of a queue."""
    parts = text.split("/")
    if len(parts) != 4 or not all(parts) or not _digits(parts[2]) or not _digits(parts[3]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TOPIC/BROKER/QUEUE/OFFSET, such as orders/broker-a/3/1024"
        )
    return MessageQueue(parts[0], parts[1], int(parts[2])), int(parts[3])


def position(text: str, clock: Callable[[], float] = time.time) -> Start | int:
    """Where a group continues: as `start`, but a number is a queue offset."""
    if _digits(text):
        return int(text)
    if text in _ENDS:
        return _ENDS[text]
    return _time(text, clock, f"begin, end, a queue offset, or {_EXAMPLES}")


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()
