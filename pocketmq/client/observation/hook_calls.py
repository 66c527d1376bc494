"""Calls hooks: their errors are logged and have no effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from pocketmq.client.log_fields import fields

log = logging.getLogger(__name__)

H = TypeVar("H")


def call_each(hooks: Iterable[H], call: Callable[[H], object], when: str, group: str) -> None:
    """`call` each of the current hooks; `when` and the client's `group` are for the log."""
    for hook in tuple(hooks):
        try:
            call(hook)
        except Exception:
            log.exception("hook %r failed %s", hook, when, extra=fields(group=group))
