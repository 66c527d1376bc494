"""A pytest plugin: a RocketMQ of its own for each test, in the test's process.

    pytest_plugins = ["pocketmq.testing"]  # in conftest.py; not needed where pocketmq is installed

    async def test_orders(rocketmq):
        await rocketmq.create_topic("orders", queues=1)
        async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            await producer.send(Message("orders", b"1"))
        assert [message.body for message in await rocketmq.drain("orders")] == [b"1"]

The fixture `rocketmq` is a `RocketMQ` (pocketmq.testing.server): a name server and a broker on
free ports with a temporary store, which creates topics, drains them, restarts its broker, makes
chosen requests fail or wait, and moves the broker's clock for delayed and timed messages.
`rocketmq_properties` gives the broker's settings by their official names; override it in a module
or a conftest.py to change them. Both need pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from pocketmq.testing.clock import MovableClock
    from pocketmq.testing.faults import Held
    from pocketmq.testing.server import RocketMQ

__all__ = ["Held", "MovableClock", "RocketMQ", "rocketmq", "rocketmq_properties"]

_HOMES = {
    "Held": "pocketmq.testing.faults",
    "MovableClock": "pocketmq.testing.clock",
    "RocketMQ": "pocketmq.testing.server",
}

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


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'pocketmq.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
