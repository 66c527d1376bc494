"""The fixtures of the pytest plugin.

They are synchronous, since their servers run in a thread: tests of any kind and any loop scope can
use them, with pytest-asyncio, with anyio, or with neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pocketmq.testing.server import RocketMQ


@pytest.fixture(scope="session")
def rocketmq_properties() -> Mapping[str, str]:
    """Settings of the broker, by their official names; none unless you override this fixture."""
    return {}


@pytest.fixture
def rocketmq(rocketmq_properties: Mapping[str, str]) -> Iterator[RocketMQ]:
    """A running `RocketMQ` with an empty store, for one test."""
    yield from _running(rocketmq_properties)


@pytest.fixture(scope="module")
def rocketmq_module(rocketmq_properties: Mapping[str, str]) -> Iterator[RocketMQ]:
    """A running `RocketMQ` that the tests of a module share."""
    yield from _running(rocketmq_properties)


@pytest.fixture(scope="session")
def rocketmq_session(rocketmq_properties: Mapping[str, str]) -> Iterator[RocketMQ]:
    """A running `RocketMQ` that all tests share."""
    yield from _running(rocketmq_properties)


def _running(properties: Mapping[str, str]) -> Iterator[RocketMQ]:
    # Imported on use: pytest loads this plugin in every run, also where no test uses it.
    from pocketmq.testing import RocketMQ

    with RocketMQ(properties=properties) as server:
        yield server
