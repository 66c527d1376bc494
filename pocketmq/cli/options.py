"""Types of option values: text to a checked value, or argparse's usage error."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import TypeAlias

#: What `add_parser` of a command gets.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def port(text: str) -> int:
    """A port number; 0 lets the system choose."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def timestamp(text: str) -> int:
    """Unix milliseconds, from their digits or from ISO 8601 (local time where it has no zone)."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return int(dt.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:  # also a local time in the year 1
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor a time like 2026-11-21T08:30:00Z"
        ) from None
