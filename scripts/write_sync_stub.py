"""Write pocketmq/sync.pyi: what type checkers see of the classes that pocketmq.sync makes.

    python scripts/write_sync_stub.py

The signatures are those of the asyncio classes, read from their source, without the asyncio: what a
coroutine returns is returned, what is iterated over or entered asynchronously is so plainly.
tests/client/test_sync_stub.py says when it has to be written again.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

STUB = Path(__file__).parents[1] / "pocketmq" / "sync.pyi"
CLASSES = {
    "Admin": ("pocketmq.client.admin.admin", "Admin"),
    "Producer": ("pocketmq.client.producer.producer", "Producer"),
    "PullConsumer": ("pocketmq.client.consumer.pull", "PullConsumer"),
    "PushConsumer": ("pocketmq.client.consumer.push", "PushConsumer"),
    "TransactionProducer": ("pocketmq.client.producer.transaction", "TransactionProducer"),
}
#: Types that are others without asyncio, and where the others are.
PLAIN = {
    "Handler": "Callable[[ConsumedMessage], object]",
    "BatchHandler": "Callable[[list[ConsumedMessage]], object]",
    "RoutedHandler": "Callable[[ConsumedMessage], object] | Callable[[Message], object]",
    "RoutedBatchHandler": "Callable[[list[ConsumedMessage]], object] "
    "| Callable[[list[Message]], object]",
    "AsyncIterator": "Iterator",
    "Awaitable": "Later",
}
HERE = {"ConsumedMessage": "pocketmq.sync_push", "Later": "pocketmq.sync_client"}
OURS = {"pocketmq"}
#: No docstring: the API reference would show it in the place of sync.py's.
HEAD = "# Written by scripts/write_sync_stub.py; see sync.py.\n\n"


class Source:
    """The source of one module: where its names come from."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.live = importlib.import_module(module)
        self.tree = ast.parse(inspect.getsource(self.live))
        self.homes: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                self.homes.update({a.asname or a.name: node.module for a in node.names})
            elif isinstance(node, ast.Import):
                self.homes.update({a.asname or a.name: "" for a in node.names})
            elif isinstance(node, ast.ClassDef):
                self.homes[node.name] = module
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.homes[node.targets[0].id] = module
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.homes[node.target.id] = module

    def class_node(self, name: str) -> ast.ClassDef:
        return next(n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == name)


class Stub:
    """The text of the stub, and the imports that it needs."""

    def __init__(self) -> None:
        self._imports: dict[str, set[str]] = {
            "typing": {"Self"},
            "types": {"TracebackType"},
            "collections.abc": {"Callable", "Iterator"},
            **{module: set() for module in HERE.values()},
        }
        self._modules: set[str] = set()
        self._classes: list[str] = []
        self._type_variables: dict[str, str] = {}
        self._source: Source

    def text(self) -> str:
        body = "\n".join([*self._type_variables.values(), *self._classes]) + "\n"
        # What a class overrides needs no imports.
        used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
        lines = [f"import {module}" for module in sorted(self._modules & used)]
        for module in sorted(self._imports, key=lambda m: (m.partition(".")[0] in OURS, m)):
            names = sorted(self._imports[module] & used, key=lambda n: (n.islower(), n.lower()))
            names += [f"{name} as {name}" for name, home in HERE.items() if home == module]
            if names:
                lines.append(f"from {module} import {', '.join(names)}")
        lines.append(f"__all__ = {sorted([*CLASSES, *HERE])!r}")
        return HEAD + "\n".join([*lines, body])

    def add_class(self, name: str, module: str, own_name: str) -> None:
        kind: type = getattr(importlib.import_module(module), own_name)
        members: dict[str, list[str]] = {}
        for base in kind.__mro__:
            if base is object:
                continue
            self._source = Source(base.__module__)
            found: dict[str, list[str]] = {}
            self._overloaded: set[str] = set()
            for node in self._source.class_node(base.__name__).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    if node.name == "__init__":
                        self._attributes(node, found)
                    lines = self._member(node)
                    if lines:
                        found.setdefault(_plain_name(node.name), []).extend(lines)
            for member, lines in found.items():
                members.setdefault(member, lines)
        self._classes.append(f"\nclass {name}:")
        for lines in members.values():
            self._classes += [f"    {line}" for line in lines]

    def _member(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
        """Its declaration; nothing for what is not public, and for what overloads stand for."""
        if node.name == "__aenter__":
            return ["def __enter__(self) -> Self: ..."]
        if node.name == "__aexit__":
            return [
                "def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,"
                " traceback: TracebackType | None) -> None: ..."
            ]
        if node.name == "__anext__":
            return [f"def __iter__(self) -> Iterator[{self._type(node.returns)}]: ..."]
        if node.name.startswith("_") and node.name != "__init__":
            return []
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if "overload" in decorators:
            self._use("overload")
            self._overloaded.add(node.name)
        elif node.name in self._overloaded:
            return []
        result = self._type(node.returns)
        returned = getattr(self._source.live, result, None)
        if hasattr(returned, "__aenter__"):
            self._imports.setdefault("contextlib", set()).add("AbstractContextManager")
            result = f"AbstractContextManager[{result}]"
        return [
            *(f"@{decorator}" for decorator in decorators),
            f"def {node.name}({self._arguments(node.args)}) -> {result}: ...",
        ]

    def _attributes(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, found: dict[str, list[str]]
    ) -> None:
        """What `__init__` assigns to public attributes: an argument, or what a call makes."""
        arguments = {a.arg: a.annotation for a in (*node.args.args, *node.args.kwonlyargs)}
        for statement in ast.walk(node):
            if not isinstance(statement, ast.Assign):
                continue
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
                continue
            if isinstance(value, ast.Name):
                kind = self._type(arguments[value.id])
            else:
                assert isinstance(value, ast.Call), ast.unparse(statement)
                made = getattr(self._source.live, ast.unparse(value.func))
                if inspect.isclass(made):
                    kind = self._type(value.func)
                else:
                    kind = inspect.signature(made).return_annotation
            found[target.attr] = [f"{target.attr}: {kind}"]

    def _arguments(self, arguments: ast.arguments) -> str:
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        for argument in (*every, arguments.kwarg):
            if argument is not None and argument.annotation is not None:
                argument.annotation = ast.parse(self._type(argument.annotation), mode="eval").body
        arguments.defaults = [_shown(value) for value in arguments.defaults]
        arguments.kw_defaults = [value and _shown(value) for value in arguments.kw_defaults]
        return ast.unparse(arguments)

    def _type(self, annotation: ast.expr | None) -> str:
        """A type without asyncio; its names are imported."""
        assert annotation is not None
        tree = ast.parse(_unquoted(annotation), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in PLAIN:
                node.id = PLAIN[node.id]
        text = ast.unparse(tree)
        for node in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(node, ast.Name):
                self._use(node.id)
        return text

    def _use(self, name: str) -> None:
        home = self._source.homes.get(name)
        if home is None or name in HERE:
            return  # of the language, or imported anyway
        made: Any = getattr(self._source.live, name, None)
        if home == "":
            self._modules.add(name)
        elif type(made).__name__ == "TypeVar":
            self._imports["typing"].add("TypeVar")
            bound = next((k for k, v in vars(self._source.live).items() if v is made.__bound__), "")
            more = f", bound={PLAIN[bound]}" if made.__bound__ is not None else ""
            self._type_variables[name] = f'{name} = TypeVar("{name}"{more})'
        else:
            self._imports.setdefault(home, set()).add(name)


def _plain_name(name: str) -> str:
    return {"__aenter__": "__enter__", "__aexit__": "__exit__", "__anext__": "__iter__"}.get(
        name, name
    )


def _shown(value: ast.expr) -> ast.expr:
    """A default: values that are names of the module, or computed, say nothing to a checker."""
    return value if isinstance(value, ast.Constant) else ast.Constant(...)


def _unquoted(annotation: ast.expr) -> str:
    return annotation.value if isinstance(annotation, ast.Constant) and isinstance(
        annotation.value, str
    ) else ast.unparse(annotation)  # fmt: skip


def stub_text() -> str:
    """The stub as it should be, not formatted."""
    stub = Stub()
    for name, (module, own_name) in CLASSES.items():
        stub.add_class(name, module, own_name)
    return stub.text()


if __name__ == "__main__":
    STUB.write_text(stub_text())
    print(f"{STUB.name}: {len(STUB.read_text().splitlines())} lines; format it: ruff format {STUB}",
          file=sys.stderr)  # fmt: skip
