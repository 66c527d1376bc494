"""Which records of a slice are wanted, decided before their bodies are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE, Rows

_INT32: Final = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class Range:
    """A half-open range of integers; None is without bound."""

    start: int | None = None
    stop: int | None = None

    def __and__(self, other: Range) -> Range:
        starts = [start for start in (self.start, other.start) if start is not None]
        stops = [stop for stop in (self.stop, other.stop) if stop is not None]
        return Range(max(starts, default=None), min(stops, default=None))

    def __contains__(self, value: int) -> bool:
        return (self.start is None or self.start <= value) and (
            self.stop is None or value < self.stop
        )

    def mask(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
        """Return which values are in it; None when all must be."""
        mask = None
        if self.start is not None:
            mask = values >= self.start
        if self.stop is not None:
            below = values < self.stop
            mask = below if mask is None else mask & below
        return mask


EVERYTHING: Final = Range()


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions on records, all of which must hold.

    Attributes:
        queue_offset, physical_offset: ranges of offsets.
        store_timestamp, born_timestamp: ranges of times in ms.
        tag_codes: hashes of the tags that are wanted, None for all. Only narrows: different tags
            may share a hash, and some records are not in a consume queue.
    """

    queue_offset: Range = EVERYTHING
    physical_offset: Range = EVERYTHING
    store_timestamp: Range = EVERYTHING
    born_timestamp: Range = EVERYTHING
    tag_codes: frozenset[int] | None = None

    def __and__(self, other: Selection) -> Selection:
        codes = [codes for codes in (self.tag_codes, other.tag_codes) if codes is not None]
        return replace(
            self,
            queue_offset=self.queue_offset & other.queue_offset,
            physical_offset=self.physical_offset & other.physical_offset,
            store_timestamp=self.store_timestamp & other.store_timestamp,
            born_timestamp=self.born_timestamp & other.born_timestamp,
            tag_codes=frozenset.intersection(*codes) if codes else None,
        )

    @property
    def needs_heads(self) -> bool:
        """Whether the decision needs the head of a record."""
        return (self.store_timestamp, self.born_timestamp) != (EVERYTHING, EVERYTHING)

    def rows(self, rows: Rows, topic: str) -> Rows:
        """Return those of `rows` that may be wanted, by the consume queue alone."""
        masks = [self.offsets(rows), self._tag_mask(rows, topic)]
        if (rows.size == FILLER_SIZE).any():  # no record
            masks.append(rows.size != FILLER_SIZE)
        mask = _all(masks)
        return rows if mask is None else rows.take(mask)

    def offsets(self, rows: Rows) -> npt.NDArray[np.bool_] | None:
        """Return which of `rows` are wanted by their offsets; None for all."""
        return _all([self.queue_offset.mask(rows.offset), self.physical_offset.mask(rows.physical)])

    def heads(self, fields: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
        """Return which records are wanted by their heads; None for all."""
        return _all(
            [
                self.store_timestamp.mask(fields["store_timestamp"]),
                self.born_timestamp.mask(fields["born_timestamp"]),
            ]
        )

    def _tag_mask(self, rows: Rows, topic: str) -> npt.NDArray[np.bool_] | None:
        code = rows.tags_code
        # Entries of delayed messages hold the time they are due in place of the hash.
        if self.tag_codes is None or code is None or topic == SCHEDULE_TOPIC:
            return None
        # Beyond 32 bits it is not a hash but the address of an extension.
        return np.isin(code, list(self.tag_codes)) | (code < _INT32.min) | (code > _INT32.max)


ALL_RECORDS: Final = Selection()


def _all(masks: list[npt.NDArray[np.bool_] | None]) -> npt.NDArray[np.bool_] | None:
    given = [mask for mask in masks if mask is not None]
    return np.logical_and.reduce(given) if given else None
