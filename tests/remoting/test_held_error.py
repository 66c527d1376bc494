"""An error that is raised later: the function that raised it is in no cycle with it."""

from __future__ import annotations

import gc
import weakref

from pocketmq.remoting.errors import RemotingClosed
from pocketmq.remoting.held_error import HeldError


def attempts() -> None:
    last: HeldError[RemotingClosed] | None = None
    for address in ("a", "b"):
        try:
            raise RemotingClosed("the connection was closed", address)
        except RemotingClosed as error:
            last = HeldError(error)
    assert last is not None
    raise last.take()


def test_the_last_error_is_raised_and_gone_without_a_collection() -> None:
    gc.disable()
    try:
        try:
            attempts()
        except RemotingClosed as error:
            broker = error.broker
            last = weakref.ref(error)
        assert (broker, last()) == ("b", None)
    finally:
        gc.enable()
