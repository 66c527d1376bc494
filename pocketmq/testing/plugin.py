"""The fixtures of the pytest plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from pocketmq.testing.server import RocketMQ

__all__ = ["rocketmq", "rocketmq_properties"]

F = TypeVar("F", bound=Callable[..., Any])


def _async_fixture(function: F) -> F:
    make: Any = pytest.fixture
    try:
        import pytest_asyncio
    except ImportError:  # pytest loads this module wherever pocketmq is installed, used or not
        pass
    else:
        make = pytest_asyncio.fixture
    decorated: F = make(function)
    return decorated


@pytest.fixture
def rocketmq_properties() -> Mapping[str, str]:
    """Settings of the broker, by their official names; none."""
    return {}


@_async_fixture
async def rocketmq(rocketmq_properties: Mapping[str, str]) -> AsyncIterator[RocketMQ]:
    """A running `RocketMQ` with an empty store."""
    # Imported on use: pytest loads this plugin in every run, also of those who do not use it.
    from pocketmq.testing.server import RocketMQ

    async with RocketMQ(properties=rocketmq_properties) as server:
        yield server
