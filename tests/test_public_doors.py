"""Tests use the code as others do: by its public names, with clocks and delays as arguments.

A test that looks at `thing._part`, or patches a constant of a module, holds the code to how it is
written today. Test through the public door; or let what the test needs be an argument, or an
attribute that a user or an operator would look at as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

#: Names that begin with an underscore and are no private parts of ours, and why.
PUBLIC = {
    "_asdict": "of named tuples",
    "_replace": "of named tuples",
    "_exit": "of os: how a forked process ends without what pytest does at the end",
}

#: What may still be patched or looked at, as "file: name", and why.
EXCEPTIONS: dict[str, str] = {
    "dst/engine/scheduler.py: _set_running_loop": "of asyncio: each strand has a loop of its own",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def is_own(node: ast.expr) -> bool:
    """Whether the test's own classes speak of themselves, or of what they are derived from."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def texts(nodes: list[ast.expr]) -> Iterator[str]:
    """The last names of those that are texts, as in `setattr("package.module.NAME", ...)`."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.rpartition(".")[2]


def reached(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the name of each private part that is looked at, and each constant or private
    part that is replaced."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            stored = isinstance(node.ctx, ast.Store) and node.attr.isupper()
            if (is_private(node.attr) or stored) and not is_own(node.value):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, each.name) for each in node.names if is_private(each.name))
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            if called in ("setattr", "delattr", "getattr", "patch"):
                for name in texts(node.args[:2]):
                    if is_private(name) or (name.isupper() and called != "getattr"):
                        yield node.lineno, name


def test_tests_reach_into_nothing_private() -> None:
    wrong = []
    excused = set()
    for path in sorted(TESTS.rglob("*.py")):
        where = path.relative_to(TESTS)
        for line, name in reached(ast.parse(path.read_text(), str(path))):
            if f"{where}: {name}" in EXCEPTIONS:
                excused.add(f"{where}: {name}")
            else:
                wrong.append(f"tests/{where}:{line} reaches for {name}")
    assert not wrong
    assert excused == set(EXCEPTIONS), "an exception that is not needed any more"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("store._worker.pid", ["_worker"]),
        ("self._worker.pid = self._own + super()._theirs", []),
        ("self.store._worker", ["_worker"]),
        ("cls._made; x.__class__; row._replace(a=1)", []),
        ("from pocketmq.module import _function", ["_function"]),
        ("module.LIMIT = 3; self.LIMIT = 3; print(module.LIMIT)", ["LIMIT"]),
        ("monkeypatch.setattr(module, 'MAX_SIZE', 1)", ["MAX_SIZE"]),
        ("monkeypatch.setattr('package.module.MAX_SIZE', 1)", ["MAX_SIZE"]),
        ("monkeypatch.setattr('package.module._hidden', 1)", ["_hidden"]),
        ("setattr(store, '_hidden', 1); getattr(store, '_hidden')", ["_hidden", "_hidden"]),
        ("monkeypatch.setattr(os, 'fsync', noted); monkeypatch.setenv('HOME', '/')", []),
    ],
)
def test_what_counts(code: str, names: list[str]) -> None:
    assert [name for _, name in sorted(reached(ast.parse(code)))] == names
