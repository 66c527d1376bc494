"""Runs programs in a Python that seems to have few packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]

EXECUTOR = ("numpy", "pyarrow", "pyspark", "py4j")
"""What an executor has for sure if it is to read."""

_HIDE = """
import sys
from importlib.metadata import packages_distributions

class Hidden:
    names = packages_distributions().keys() - {kept!r}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.names:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Hidden)
"""


def run_with(
    packages: tuple[str, ...], program: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run a program that finds our own packages, the standard library, and no more than these."""
    kept = {*packages, "pocketmq", "pyspark_rocketmq"}
    return subprocess.run(
        [sys.executable, "-c", _HIDE.format(kept=kept) + program, *map(str, arguments)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
