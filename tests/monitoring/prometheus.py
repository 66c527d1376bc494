"""Prometheus and its promtool: those of the system, or of scripts/ensure-prometheus.sh."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
UNPACKED = PROJECT / ".cache" / "prometheus" / "usr" / "bin"


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip the test without it."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), str(UNPACKED))))
    if path is None:
        pytest.skip(f"{name} is missing: sh scripts/ensure-prometheus.sh")
    return path
