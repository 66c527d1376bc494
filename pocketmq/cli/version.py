"""The version of this pocketmq."""

from __future__ import annotations

from pocketmq._accelerator import accelerator_state
from pocketmq._version import __version__


def version() -> str:
    """Return the version and whether its compiled modules run: `pocketmq 1.0.0 (compiled)`."""
    return f"pocketmq {__version__} ({accelerator_state()})"
