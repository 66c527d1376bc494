"""What type checkers are told of pocketmq.sync (scripts/write_sync_stub.py)."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from pocketmq import sync

PROJECT = Path(__file__).parents[2]
STUB = PROJECT / "pocketmq" / "sync.pyi"


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    path = PROJECT / "scripts" / "write_sync_stub.py"
    spec = importlib.util.spec_from_file_location("write_sync_stub", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_up_to_date(writer: ModuleType) -> None:
    expected, found = ast.parse(writer.stub_text()), ast.parse(STUB.read_text())
    assert ast.dump(found) == ast.dump(expected), "run scripts/write_sync_stub.py"


def test_it_names_what_the_module_has() -> None:
    assert sync.__all__ == sorted(
        ast.literal_eval(re.findall(r"__all__ = (\[.*?\])", STUB.read_text(), re.DOTALL)[0])
    )
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            made = getattr(sync, node.name)
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                    real = inspect.signature(getattr(made, member.name))
                    if "args" not in real.parameters and not member.name.startswith("__"):
                        declared = [a.arg for a in (*member.args.args, *member.args.kwonlyargs)]
                        assert declared == [
                            name for name, p in real.parameters.items() if p.kind != p.VAR_KEYWORD
                        ], f"{node.name}.{member.name}"
