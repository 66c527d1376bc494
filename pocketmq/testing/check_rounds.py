"""The checks of transactions while a test moves the broker's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.dispatch import Answer, Handler
from pocketmq.remoting.serving.request import Request

#: How long producers have to answer a check, in seconds of the test's own time.
ANSWER_TIMEOUT = 1.0


class CheckRounds:
    """Makes a broker's rounds of checks (every transactionCheckInterval, 30 s) follow the clock.

    `move` moves the clock by seconds. Between two rounds, the producers of the test get time to
    answer.
    """

    def __init__(self, move: Callable[[float], Awaitable[None]]) -> None:
        self._move = move
        self._broker: Broker
        self._left: float | None = None
        self._told = 0
        self._answer = asyncio.Event()

    def attach(self, broker: Broker) -> None:
        """Act on this broker instead of the previous one."""
        self._broker = broker
        self._told = 0
        broker.dispatcher.wrap(RequestCode.END_TRANSACTION, self._counting)

    async def advance(self, seconds: float) -> None:
        """Move the clock ahead, round by round."""
        left = seconds
        patient = True
        while (wait := self._until_round()) <= left:
            await self._move(wait)
            left -= wait
            self._left = None
            patient = await self._round(patient)
        await self._move(left)
        self._left = wait - left

    def _until_round(self) -> float:
        if self._left is None:
            return self._broker.config.transaction_check_interval / 1000
        return self._left

    async def _round(self, patient: bool) -> bool:
        """Run one round; if it waited, return whether all producers answered."""
        checks = self._broker.components.transactions.checks
        asked, told = checks.asked, self._told
        await checks.check()
        expected = told + checks.asked - asked
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT if patient else 0):
                while self._told < expected:
                    self._answer.clear()
                    await self._answer.wait()
        except TimeoutError:
            return False
        return patient

    def _counting(self, serve: Handler) -> Handler:
        def handle(request: Request[Any]) -> Answer:
            answer = serve(request)
            if request.header.from_transaction_check:
                self._told += 1
                self._answer.set()
            return answer

        return handle
