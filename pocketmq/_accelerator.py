"""The accelerator, that is, the compiled modules: whether it is installed and enabled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PURE_PYTHON: Final = "POCKETMQ_PURE_PYTHON"
"""Environment variable: if set, compiled modules are neither used nor built."""

MODULES: Final = (
    "pocketmq.message._alike_records",
    "pocketmq.remoting.frames._compiled_sends",
    "pocketmq.broker.processors.send._send_run",
    "pocketmq.store._compiled_read",
    "pocketmq.store.encoding._compiled_batch",
    "pocketmq.store.log._compiled_blocks",
    "pocketmq.store.scan.records._compiled_records",
)

_REASON: Final = "_pure_python.txt"  # a build without a compiler leaves it


def accelerator_wanted() -> bool:
    """Return whether to import a compiled module."""
    return not os.environ.get(PURE_PYTHON)


def accelerator_state() -> str:
    """Return `compiled`, or `pure Python` with the reason."""
    # Not at the top: Spark executors import this module and do not need it.
    from importlib.util import find_spec

    if not accelerator_wanted():
        return f"pure Python: {PURE_PYTHON} is set"
    if all(find_spec(module) for module in MODULES):
        return "compiled"
    try:
        reason = Path(__file__).with_name(_REASON).read_text(encoding="utf-8").strip()
    except OSError:
        reason = "not compiled"
    return f"pure Python: {reason}"
