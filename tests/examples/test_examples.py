"""Every file in examples/ runs as it is shown, and says what it should."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import PROJECT, Running, environment

EXAMPLES = PROJECT / "examples"

TESTED = {"send.py", "pull.py", "serve_embedded.py", "spark_query.py"}


def run(name: str, *arguments: str | Path, namesrv: str | None = None, cwd: Path) -> str:
    """Its output. With ``namesrv``, that address instead of the one in the text."""
    text = (EXAMPLES / name).read_text()
    if namesrv is not None:
        assert "127.0.0.1:9876" in text
        text = text.replace("127.0.0.1:9876", namesrv)
    copy = cwd / name
    copy.write_text(text)
    ended = subprocess.run(
        [sys.executable, str(copy), *map(str, arguments)],
        cwd=cwd, env=environment(PYSPARK_PYTHON=sys.executable), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def namesrv(store: Path) -> Iterator[str]:
    with Running("serve", "--store", store, "--listen-port", "0", "--namesrv-port", "0") as server:
        yield server.wait_for(r"name server listening on (\S+),")[1]


def test_each_example_is_short_and_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TESTED
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 25, path.name


def test_send_then_pull(namesrv: str, tmp_path: Path) -> None:
    sent = run("send.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert sent[0].startswith("SEND_OK ")
    assert sent[1].startswith("1000 more in ")
    (line,) = run("pull.py", namesrv=namesrv, cwd=tmp_path).splitlines()
    assert line.endswith("('o-1',) two coffees")
    assert run("pull.py", namesrv=namesrv, cwd=tmp_path) == ""


def test_serve_embedded(tmp_path: Path) -> None:
    lines = run("serve_embedded.py", cwd=tmp_path).splitlines()
    assert lines[1] == "hello world"


@pytest.mark.spark
def test_spark_query_while_the_broker_runs(namesrv: str, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    run("send.py", namesrv=namesrv, cwd=tmp_path)
    table = run("spark_query.py", store, cwd=tmp_path)
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()]
    assert ["new", "1000"] in cells
    assert ["paid", "1"] in cells
