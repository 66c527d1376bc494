"""Whether the compiled modules are used, where they are installed: together, the accelerator."""

import os
from typing import Final

PURE_PYTHON: Final = "POCKETMQ_PURE_PYTHON"
"""Environment variable: if it is set, they are not."""


def accelerator_wanted() -> bool:
    """Tell whether a compiled module is to be imported."""
    return not os.environ.get(PURE_PYTHON)
