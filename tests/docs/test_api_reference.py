"""The API reference is built from the docstrings; mistakes in it and in the pages are found."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pdoc", reason="pip install 'pocketmq[docs]'")
pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
pytest.importorskip("opentelemetry", reason="pip install 'pocketmq[otel]'")

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = PROJECT / "scripts" / "build_docs.py"
    spec = importlib.util.spec_from_file_location("build_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reference")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "scripts/build_docs.py", directory],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory


def test_every_public_name_is_in_the_reference(script: ModuleType, reference: Path) -> None:
    modules = script.public_modules()
    assert {"pocketmq", "pocketmq.errors", "pocketmq.testing", "pocketmq.sync"} <= set(modules)
    missing = [
        f"{module}.{name}"
        for module in modules
        for name in script.public_names(module)
        if f'id="{name}"' not in (reference / f"{module.replace('.', '/')}.html").read_text()
    ]
    assert missing == []
    assert (reference / "index.html").exists()


@pytest.mark.parametrize(
    ("page", "member"),
    [
        ("pocketmq", "Producer.send"),
        ("pocketmq", "PullConsumer.poll"),
        ("pocketmq", "PullConsumer.seek"),
        ("pocketmq/client/consumer/router", "Routing.on"),
        ("pocketmq/client/admin/offsets", "OffsetAdmin.reset_offsets"),
        ("pocketmq/sync", "Producer.send"),
        ("pocketmq/sync", "ConsumedMessage.reconsume"),
        ("pocketmq/embedded", "EmbeddedServer.start"),
        ("pocketmq/sync_client", "SyncClient.shutdown"),
        ("pocketmq/testing", "RocketMQ.advance"),
    ],
)
def test_methods_are_in_the_reference(reference: Path, page: str, member: str) -> None:
    assert f'id="{member}"' in (reference / f"{page}.html").read_text()


def test_names_without_docstring_are_found(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pocketmq_undocumented.py").write_text(
        "class Bare:\n    def method(self): ...\n    @property\n    def size(self): ...\n"
        "def function(): ...\n"
        'class Fine:\n    """Is described."""\n    def method(self):\n        """Does."""\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [*script.undocumented(["pocketmq_undocumented"])] == [
        "pocketmq_undocumented.Bare has no docstring",
        "pocketmq_undocumented.Bare.method has no docstring",
        "pocketmq_undocumented.Bare.size has no docstring",
        "pocketmq_undocumented.function has no docstring",
    ]


@pytest.mark.parametrize(
    ("link", "broken"),
    [
        ("other.md", False),
        ("other.md#a-heading-of-it", False),
        ("#here", False),
        ("page.html#Producer.send", False),
        ("https://example.org/nowhere", False),
        ("missing.md", True),
        ("other.md#missing", True),
        ("#missing", True),
        ("page.html#Producer.sent", True),
    ],
)
def test_broken_links_are_found(
    script: ModuleType, tmp_path: Path, link: str, broken: bool
) -> None:
    (tmp_path / "other.md").write_text("# A heading, of it\n")
    (tmp_path / "page.html").write_text('<p id="Producer.send"></p>')
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n[text]({link})\n")
    html = tmp_path / "linking.html"
    html.write_text(f'<p id="here"><a href="{link}">text</a></p>')
    assert [*script.broken_links([page, html])] == [
        f"{found}: the link {link} leads nowhere" for found in (page, html) if broken
    ]


def test_no_link_of_the_pages_is_broken(script: ModuleType) -> None:
    assert [*script.broken_links(script.markdown_pages())] == []
