"""The package as an installation has it: compiled."""

from __future__ import annotations

import compileall
from functools import cache

from tests.interop.harness.official import PROJECT

__all__ = ["compile_package"]


@cache
def compile_package() -> None:
    """Compile what has changed in the package, as pip compiles all of it when it installs it.

    Where PYTHONDONTWRITEBYTECODE is set, every start in a source tree would compile 330 modules
    again, which takes 0.2 s.
    """
    compileall.compile_dir(PROJECT / "pocketmq", quiet=2)
