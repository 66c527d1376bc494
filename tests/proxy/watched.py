"""A proxy in front of a broker in this process, whose requests the test sees first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.local import LocalBroker, LocalPort
from pocketmq.proxy.server import Proxy
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.dispatch import Answer, Handler
from pocketmq.remoting.serving.request import Request


@asynccontextmanager
async def watched_proxy(
    broker: Broker, wrappers: Mapping[RequestCode, Callable[[Handler], Handler]]
) -> AsyncIterator[int]:
    """Its port. The broker's handlers of these request codes are wrapped."""
    components = broker.components
    dispatcher = components.dispatcher(guarded=False)
    for code, wrapper in wrappers.items():
        dispatcher.wrap(code, wrapper)
    port = LocalPort(
        LocalBroker(
            name=broker.config.broker_name,
            cluster=broker.config.broker_cluster_name,
            address=broker.address,
            dispatcher=dispatcher,
            before_answers=components.unwritten.settle,
            after_answers=components.pulls.holds.woken.run,
            withdraw=components.pops.polling.cancel,
        )
    )
    proxy = Proxy(ProxyConfig(bind_address="127.0.0.1", grpc_server_port=0), port)
    await proxy.start()
    try:
        yield proxy.port
    finally:
        await proxy.stop()
        await port.stop()


class Held:
    """Holds the requests of a code between `hold` and `release`.

    Attributes:
        reached: set when one is held.
    """

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    def wrap(self, handler: Handler) -> Handler:
        async def later(request: Request[Any]) -> Any:
            self.reached.set()
            await self._released.wait()
            answer = handler(request)
            return await answer if isinstance(answer, Awaitable) else answer

        def held(request: Request[Any]) -> Answer:
            return handler(request) if self._released.is_set() else later(request)

        return held
