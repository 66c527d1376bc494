"""Searches the properties of many messages at once for texts that a filter needs.

A separate module, because importing numpy costs an idle broker 16 MB: only reads with a filter come
here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pocketmq.message.record_layout import HEAD_SIZE, SYS_FLAG_AT
from pocketmq.store.encoding.entry_array import EntryArray

_V6_MORE: Final = 12  # bytes that an IPv6 host has more than an IPv4 one
_MOST_BYTES: Final = 512 * 1024  # that are searched at once
_LENGTH: Final = 2  # bytes before the properties


class Searched(NamedTuple):
    """The number of messages searched, from the first on, and the indexes of those that may have
    what was searched for."""

    searched: int
    matches: list[int]


def may_have(
    view: memoryview, base: int, topic_size: int, entries: EntryArray, needles: Sequence[bytes]
) -> Searched:
    """Search the messages of consume-queue `entries`, as far as they lie in the commit-log file
    `view`, whose first byte has the physical offset `base`. Their heads have been compared.

    A message may have one of the `needles` if its properties do, or if it cannot be said where
    these are. `topic_size` are the bytes of the topic in each record, with its length.
    """
    begin = entries["physical"].astype(np.int64) - base
    end = begin + entries["size"]
    count = int(end.searchsorted(len(view), "right"))
    begin, end = begin[:count], end[:count]
    # The four bytes from each byte on, as a number.
    words = np.ndarray((len(view) - 3,), ">i4", view, strides=(1,))
    flags = words[begin + SYS_FLAG_AT]
    body = begin + HEAD_SIZE + _V6_MORE * ((flags >> 4 & 1) + (flags >> 5 & 1))
    body = np.minimum(body, end)
    text = body + words[body - 4] + topic_size + _LENGTH
    is_there = (text > begin) & (text <= end)
    text = np.where(is_there, text, end)
    is_there &= words[text - 4] & 0xFFFF == end - text
    text = np.where(is_there, text, end)
    # Properties are short, but they may have 32 KB.
    count = max(1, int((end - text).cumsum().searchsorted(_MOST_BYTES, "right")))
    text, end, is_there = text[:count], end[:count], is_there[:count]
    joined = b"".join([view[a:b] for a, b in zip(text.tolist(), end.tolist(), strict=True)])
    ends = (end - text).cumsum().tolist()
    matches = set(np.flatnonzero(~is_there).tolist())
    for needle in needles:
        at = joined.find(needle)
        while at >= 0:
            # A hit that crosses into the next message is false, but harmless.
            number = bisect_right(ends, at)
            matches.add(number)
            at = joined.find(needle, ends[number])
    return Searched(count, sorted(matches))
