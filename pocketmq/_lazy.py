"""Public names that are loaded when they are first used.

The stub `__init__.pyi` of a package is the only list of its public names. Type checkers read it,
and this module uses it to find the module of each name. It is read once, when the first name is
used, so that importing the package costs nothing.

    __getattr__, __dir__ = attach(__name__, extras={"telemetry": "otel"})
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from pocketmq._extras import is_installed, require


class _Home(NamedTuple):
    """Where a name is defined: `attribute` of `module`, or the module itself."""

    module: str
    attribute: str | None


def attach(
    package: str, extras: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package from its stub.

    `extras` maps names to the extras they need. While an extra is not installed, its names are left
    out of `dir()` and `__all__`, and using one raises ImportError with the `pip install` to run.
    Sub-modules are in `dir()` but not in `__all__`: `from pocketmq import *` must not hide the
    standard library's `types`.
    """
    extras = extras or {}

    @cache
    def homes() -> dict[str, _Home]:
        return _read_stub(package)

    def installed(name: str) -> bool:
        return name not in extras or is_installed(extras[name])

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(
                name for name, home in homes().items() if home.attribute and installed(name)
            )
        home = homes().get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(home.module)
        except ModuleNotFoundError:
            if name in extras:
                require(extras[name], f"{package}.{name}")
            raise
        value = getattr(module, home.attribute) if home.attribute else module
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        public = (name for name in homes() if installed(name))
        return sorted({*vars(sys.modules[package]), *public})

    return load, names


def _read_stub(package: str) -> dict[str, _Home]:
    """Return the names that the stub imports, in its order."""
    import ast  # using any public name imports it anyway; importing the package does not

    module = sys.modules[package]
    assert module.__spec__ is not None
    # The loader reads from zip files as well.
    loader: Any = module.__spec__.loader
    source = loader.get_data(f"{module.__path__[0]}/__init__.pyi")
    found: dict[str, _Home] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.level:
                    found[alias.name] = _Home(f"{package}.{alias.name}", None)
                else:
                    found[alias.name] = _Home(node.module or "", alias.name)
    return found
