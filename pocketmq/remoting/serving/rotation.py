"""What waits for its turn, by owner."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Rotation(Generic[T]):
    """Queues of several owners, such as users, addresses or groups, who alternate: what waits for
    one owner waits for one item of each other owner, and not for all that they have."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[T]] = {}  # the next owner first

    def __bool__(self) -> bool:
        return bool(self._queues)

    def has(self, owner: Hashable) -> bool:
        """Whether an owner has an item."""
        return owner in self._queues

    def first_of(self, owner: Hashable) -> T | None:
        """Return the first item of an owner; None if it has none."""
        queue = self._queues.get(owner)
        return queue[0] if queue else None

    def firsts(self) -> Iterator[T]:
        """Yield the first item of each owner."""
        return (queue[0] for queue in self._queues.values())

    def add(self, owner: Hashable, item: T, *, first: bool = False) -> None:
        """Add an item to those of its owner, as the last or the first one."""
        queue = self._queues.setdefault(owner, deque())
        (queue.appendleft if first else queue.append)(item)

    def __iter__(self) -> Iterator[T]:
        """Take the items in their turn, until none is left."""
        while self._queues:
            yield self.take()

    @property
    def next(self) -> T | None:
        """The item that `take` takes; None if there is none."""
        return next(iter(self._queues.values()))[0] if self._queues else None

    def take(self) -> T:
        """Remove and return the next item; the turn goes to the next owner. Raises StopIteration
        if there is none."""
        owner = next(iter(self._queues))
        queue = self._queues.pop(owner)
        item = queue.popleft()
        if queue:
            self._queues[owner] = queue
        return item
