from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping

import pytest

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every test with a loop runs on asyncio's own and on uvloop's: their transports differ."""
    return LOOPS
