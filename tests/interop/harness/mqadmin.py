"""One mqadmin command on two clusters, and their outputs made comparable."""

from __future__ import annotations

import re
from collections.abc import Callable

from .cluster import Cluster
from .official import VERSION_NAME, JavaPeer

Both = Callable[..., tuple[str, str]]
"""Runs one command on the official cluster and on ours, and gives both outputs. In the arguments
BROKER stands for the broker's address."""


def both_of(java: JavaPeer, official: Cluster, ours: Cluster) -> Both:
    def run(*args: str) -> tuple[str, str]:
        first, second = (
            java.mqadmin(
                *(cluster.broker.address if arg == "BROKER" else arg for arg in args),
                "-n",
                cluster.address,
            )
            for cluster in (official, ours)
        )
        return first, second

    return run


_DIFFERENT = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (rf"\b{VERSION_NAME}\b", "V5_5_0"),  # what ours reports
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "TIME"),
    (r"(?m)^\tat .*\n?|^\t\.\.\. \d+ more\n?|^For more information.*\n?", ""),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"(?m)[ \t]+$", ""),
    (r"(?m)^\d\d:\d\d:\d\d,\d{3} \|-.*\n\n?", ""),  # of logback, with the first command
)


def normal(text: str) -> str:
    """Without what legitimately differs: ports, ids, times, stack traces, blanks at line ends."""
    for pattern, replacement in _DIFFERENT:
        text = re.sub(pattern, replacement, text)
    return text


def failure(text: str) -> str | None:
    """The last error in an output: `CODE: 17  DESC: ...`, or the exception; None without one."""
    causes = re.findall(r"(?m)^(?:Caused by: )?[\w.]+(?:Exception|Error): (.*)", normal(text))
    return causes[-1].strip() if causes else None
