"""The files that `pocketmq spark-pack` writes are what executors need to import the source."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode

SOURCES = Path(__file__).parents[2]


def test_the_source_can_be_imported_from_the_zip(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    file = tmp_path / "pocketmq.zip"
    assert main(["spark-pack", str(file)]) == ExitCode.OK
    # In this order: the zip wins over an installation.
    code = (
        "import pocketmq, pyspark_rocketmq\n"
        "from pocketmq.spark import RocketMQDataSource, register\n"
        "from pocketmq.spark.streams.stream_reader import RocketMQStreamReader\n"
        "print(pocketmq.open_store, pocketmq.__file__, pyspark_rocketmq.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(file)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(file)) == 2
    assert list(tmp_path.iterdir()) == [file]


def test_the_archive_is_this_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = tmp_path / "venv"
    packages = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for name in ("bin/tool", f"{packages}/numpy/a.py", f"{packages}/pyspark/b.py"):
        (environment / name).parent.mkdir(parents=True, exist_ok=True)
        (environment / name).touch()
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    file = tmp_path / "environment.tar.gz"
    assert main(["spark-pack", str(file)]) == ExitCode.OK
    with tarfile.open(file) as archive:
        names = {os.path.normpath(name) for name in archive.getnames()}
    assert {"bin/tool", f"{packages}/numpy/a.py", f"{packages}/pyspark_rocketmq.py"} <= names
    assert f"{packages}/pocketmq/spark/source.py" in names
    assert not any("pyspark/" in name for name in names)


def test_mistakes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark-pack", "pocketmq.whl"]) == ExitCode.USAGE
    assert "ends neither with .zip nor with .tar.gz" in capsys.readouterr().err
    missing = tmp_path / "missing" / "pocketmq.zip"
    assert main(["spark-pack", str(missing)]) == ExitCode.FAILURE
    assert f"cannot write {missing}: No such file or directory" in capsys.readouterr().err
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert main(["spark-pack", str(tmp_path / "e.tar.gz")]) == ExitCode.USAGE
    assert "is not in a virtual environment" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
