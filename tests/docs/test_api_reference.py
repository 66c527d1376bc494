"""The API reference is built from the docstrings, and nothing public lacks one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pocketmq
from pocketmq.embedded import EmbeddedServer
from pocketmq.testing import RocketMQ

PROJECT = Path(__file__).parents[2]


def public_names() -> list[str]:
    return [name for name in dir(pocketmq) if inspect.isclass(getattr(pocketmq, name))]


def test_every_public_name_is_in_the_reference(tmp_path: Path) -> None:
    pytest.importorskip("pdoc", reason="pip install 'pocketmq[docs]'")
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "scripts/build_docs.py", tmp_path],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "pocketmq.html").read_text()
    assert [name for name in public_names() if f'id="{name}"' not in page] == []
    for path, member in (
        ("pocketmq", "Producer.send"),
        ("pocketmq", "PullConsumer.poll"),
        ("pocketmq", "PullConsumer.seek"),
        ("pocketmq", "PushConsumer.on"),
        ("pocketmq/client/consumer/router", "Router.on"),
        ("pocketmq/client/admin/offsets", "OffsetAdmin.reset_offsets"),
        ("pocketmq/sync", "Producer.send"),
        ("pocketmq/sync", "ConsumedMessage.reconsume"),
        ("pocketmq/sync_client", "SyncClient.shutdown"),
        ("pocketmq/sync_push", "PushClient.run"),
        ("pocketmq/testing/server", "RocketMQ.advance"),
    ):
        assert f'id="{member}"' in (tmp_path / f"{path}.html").read_text()
    assert (
        "Nothing is implemented here a second time" in (tmp_path / "pocketmq/sync.html").read_text()
    )
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_a_docstring(name: str) -> None:
    if name == "RocketMQDataSource":
        pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    assert inspect.getdoc(getattr(pocketmq, name))


@pytest.mark.parametrize("cls", [pocketmq.Admin, pocketmq.Producer, EmbeddedServer, RocketMQ])
def test_every_method_has_a_docstring(cls: type) -> None:
    methods = {
        name: getattr(cls, name)
        for name in dir(cls)
        if not name.startswith("_") and inspect.isfunction(getattr(cls, name))
    }
    assert methods
    assert [name for name, method in methods.items() if not inspect.getdoc(method)] == []
