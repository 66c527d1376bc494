"""What README, CONTRIBUTING, CHANGELOG and docs/ name is there: files, headings, commands."""

from __future__ import annotations

import ast
import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from pocketmq.broker.live_config import LIVE
from pocketmq.cli import COMMANDS
from pocketmq.client import log_fields
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.serving.service import ExitCode

PROJECT = Path(__file__).parents[2]
PAGES = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((PROJECT / "docs").glob("*.md")),
    *sorted((PROJECT / "docs" / "guide").glob("*.md")),
]
#: Made by who uses the project, not part of it.
OF_USERS = {"conftest.py", "config/*.json", "bench/results", ".cache/peers"}

#: The files that readers of the guide write, which test_guide runs.
OF_GUIDE = {
    name
    for page in (PROJECT / "docs" / "guide").glob("*.md")
    for name in re.findall(r"```(?:python|properties)\n# (\S+)\n", page.read_text())
}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    """In backquotes: paths from the top or in the package, and modules, which may be anywhere."""
    wrong = []
    for name in re.findall(r"`([\w.*-]+(?:/[\w.*-]+)*/?)`", page.read_text()):
        top, slash, _ = name.partition("/")
        if name in OF_USERS | OF_GUIDE or not (
            name.endswith(".py") or (slash and (PROJECT / top).is_dir())
        ):
            continue
        places = [
            *PROJECT.glob(name),
            *(PROJECT / "pocketmq").glob(name if slash else f"**/{name}"),
        ]
        if not places and (slash or not any(PROJECT.glob(f"[!.]*/**/{name}"))):
            wrong.append(name)
    assert wrong == []


@every_page
def test_commands_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    named = re.findall(r"`pocketmq ([a-z-]+)", text) + re.findall(r"\bpocketmq ([a-z-]+)", shell)
    assert {*named} <= {*COMMANDS}
    for module in re.findall(r"python -m ([a-z_.]*[a-z_])|`(bench\.[a-z_]+)`", text):
        name = "".join(module)
        found = find_spec(name)
        assert found is not None, name
        assert found.origin is not None
        source = Path(found.origin)
        if source.name == "__init__.py":
            assert source.with_name("__main__.py").exists(), name
        else:
            assert 'if __name__ == "__main__":' in source.read_text(), name


@every_page
def test_snippets_import_what_there_is(page: Path) -> None:
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        tree = compile(
            snippet, page.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                if f"{node.module}.py" in OF_GUIDE:
                    continue
                if node.module.startswith("pyspark"):
                    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), snippet


def test_the_exit_codes_are_those_of_the_commands() -> None:
    table = (PROJECT / "docs/servers.md").read_text().partition("| exit code | |")[2]
    told = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert [int(code) for code in told] == [int(code) for code in ExitCode]


def test_the_fields_of_log_records_are_those_that_are_told() -> None:
    told = set(re.findall(r"`(mq_\w+)`", (PROJECT / "docs/consumer.md").read_text()))
    assert told == set(re.findall(r"`(mq_\w+)`", log_fields.__doc__ or ""))


def test_the_default_files_of_a_name_server_are_those_that_are_told() -> None:
    config = NamesrvConfig()
    told = (PROJECT / "docs/servers.md").read_text()
    for path in (config.kv_config_path, config.config_store_path):
        assert f"`~/{Path(path).relative_to(Path.home())}`" in told
    assert "~/namesrv/kvConfig.json" in (PROJECT / "docs/cli.md").read_text()


#: About the construction of pocketmq, for those who have its source.
OF_THE_SOURCE = {
    "CONTRIBUTING.md", "CHANGELOG.md", "architecture.md", "batch-protocol.md", "benchmarks.md",
    "compatibility.md", "releasing.md",
}  # fmt: skip


@every_page
def test_who_has_the_wheel_alone_needs_no_source(page: Path) -> None:
    if page.name not in OF_THE_SOURCE:
        assert re.findall(r"[(`/]pocketmq/[\w/]+\.py\b", page.read_text()) == []


def test_the_settings_that_may_change_are_those_that_are_told() -> None:
    section = (PROJECT / "docs" / "servers.md").read_text().split("while a broker runs\n")[1]
    assert set(re.findall(r"`(\w+)`", section.partition("\n## ")[0])) == LIVE


@every_page
def test_files_that_are_quoted_are_quoted_as_they_are(page: Path) -> None:
    quoted = re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```\n", page.read_text(), re.DOTALL)
    assert len(quoted) == page.read_text().count("<!-- file: ")
    for name, text in quoted:
        assert text == (PROJECT / name).read_text(), name


def test_every_recipe_is_quoted() -> None:
    text = (PROJECT / "docs" / "recipes.md").read_text()
    for path in (PROJECT / "examples" / "recipes").glob("*.py"):
        assert f"<!-- file: examples/recipes/{path.name} -->" in text
