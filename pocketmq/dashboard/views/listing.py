"""Pages of long lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

PAGE_SIZE: Final = 50


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The entries of page `page`, which counts from 1, out of `total`."""

    entries: Sequence[T]
    page: int
    pages: int
    total: int

    @property
    def previous(self) -> int | None:
        """The previous page; None if this is the first."""
        return self.page - 1 if self.page > 1 else None

    @property
    def next(self) -> int | None:
        """The next page; None if this is the last."""
        return self.page + 1 if self.page < self.pages else None


def page_of(entries: Sequence[T], page: int, size: int = PAGE_SIZE) -> Listing[T]:
    """Return a page of a list; if it does not exist, the nearest one."""
    pages = max(-(-len(entries) // size), 1)
    page = min(max(page, 1), pages)
    return Listing(
        entries=entries[(page - 1) * size : page * size], page=page, pages=pages, total=len(entries)
    )


def matching(names: Sequence[str], text: str) -> list[str]:
    """Return the names that contain a text, ignoring case."""
    wanted = text.strip().lower()
    return [name for name in names if wanted in name.lower()]
