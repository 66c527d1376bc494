"""How Spark finds the source: by importing every top-level module named pyspark_*."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

PROJECT = Path(__file__).parents[2]

LOOK_UP = """
import sys

for name in {hidden}:
    sys.modules[name] = None  # as if it were not installed
import pyspark_rocketmq
loaded = {{name.partition(".")[0] for name, module in sys.modules.items() if module}}
print(pyspark_rocketmq.DefaultSource.name(), *loaded & {{"pocketmq", "numpy", "pyarrow"}})
pyspark_rocketmq.DefaultSource({{"path": "/none"}}).schema()
"""


def look_up(*hidden: str) -> tuple[str, str]:
    """What the look-up prints with some packages missing, and the last line of its error."""
    program = LOOK_UP.format(hidden=hidden)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    return ended.stdout.strip(), ended.stderr.strip().splitlines()[-1]


def test_the_look_up_loads_nothing_of_ours() -> None:
    found, error = look_up()
    assert found == "rocketmq"
    assert "no store at /none" in error


def test_only_a_use_fails_without_pocketmq() -> None:
    found, error = look_up("pocketmq")
    assert found == "rocketmq"
    assert "needs the package pocketmq" in error
    assert f"{sys.executable} -m pip install 'pocketmq[spark]'" in error


@pytest.mark.parametrize("missing", ["numpy", "pyarrow"])
def test_only_a_use_fails_where_a_package_is_missing(missing: str) -> None:
    found, error = look_up(missing)
    assert found == "rocketmq"
    assert f"the source rocketmq needs the package {missing}" in error
    assert f"{sys.executable} -m pip install {missing}" in error


def test_files_take_no_more_than_these() -> None:
    """The extra has other packages for the driver, or for brokers."""
    found, error = look_up("msgspec", "rich")
    assert found == "rocketmq"
    assert "no store at /none" in error
