"""The notebook in examples/ runs, and draws what it says.

`jupyter execute --inplace examples/messages.ipynb` renews its plots.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from pocketmq.spark.sessions.java import SparkUnavailable, find_java
from tests.cli.running import PROJECT, environment

nbformat = pytest.importorskip("nbformat", reason="pip install nbclient")
nbclient = pytest.importorskip("nbclient", reason="pip install nbclient")
pytest.importorskip("ipykernel", reason="pip install ipykernel")
pytest.importorskip("matplotlib", reason="pip install matplotlib")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

NOTEBOOK = PROJECT / "examples" / "messages.ipynb"


def pictures(notebook: Any) -> list[bytes]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    data = [output["data"] for output in outputs if "data" in output]
    return [base64.b64decode(each["image/png"]) for each in data if "image/png" in each]


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_client.manager import KernelManager

    try:
        find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    monkeypatch.chdir(tmp_path)  # where the sockets of the kernel lie
    notebook = nbformat.read(NOTEBOOK, 4)
    kernel = KernelManager(kernel_name="python3", transport="ipc")
    client = nbclient.NotebookClient(notebook, km=kernel, timeout=180)
    client.execute(env=environment())
    text = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())
    )
    assert "|   orders|     600|" in text
    drawn = pictures(notebook)
    assert len(drawn) == 4
    assert min(map(len, drawn)) > 5000


def test_it_is_shown_with_its_plots() -> None:
    notebook = nbformat.read(NOTEBOOK, 4)
    assert len(pictures(notebook)) == 4
    assert str(PROJECT) not in NOTEBOOK.read_text()
