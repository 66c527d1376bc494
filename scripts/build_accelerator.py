"""Compile the accelerator: into a wheel, or in place for an editable install and by hand.

    python scripts/build_accelerator.py

A build compiles where it can. Where it cannot, it says why in one line, keeps that line in
`pocketmq/_pure_python.txt` for `pocketmq --version`, and goes on without the accelerator.
`POCKETMQ_PURE_PYTHON=1` makes it do so at once, which gives the wheel for all platforms;
`POCKETMQ_ACCELERATOR=1` makes it fail instead.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REQUIRED = "POCKETMQ_ACCELERATOR"
PURE_PYTHON = "POCKETMQ_PURE_PYTHON"
PROJECT = Path(__file__).parent.parent
REASON = "pocketmq/_pure_python.txt"
SOURCES = sorted(str(path.relative_to(PROJECT)) for path in (PROJECT / "pocketmq").rglob("*.pyx"))


class NotCompiled(Exception):
    """Why a build goes on without the accelerator."""


class AcceleratorHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling: nothing where it does not compile."""
        return [] if obstacle() else ["cython>=3.1", "setuptools"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules, for an editable install in place, else into the wheel."""
        if version == "editable":
            build_in_place(self.app.display_warning)
            return
        self._built = tempfile.TemporaryDirectory(prefix="pocketmq-accelerator-")
        target = Path(self._built.name)
        files = build(target, self.app.display_warning)
        for file in files:
            build_data["force_include"][str(file)] = str(file.relative_to(target))
        if files != [target / REASON]:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if hasattr(self, "_built"):
            self._built.cleanup()


def obstacle() -> str:
    """Tell what is in the way of compiling; nothing if it has to be tried to know."""
    if os.environ.get(PURE_PYTHON):
        return f"built with {PURE_PYTHON}"
    if os.environ.get(REQUIRED):
        return ""
    if sys.implementation.name != "cpython":
        return f"not compiled for {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "not compiled for free-threaded Python"
    if os.name == "posix":
        command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
        if shutil.which(shlex.split(command)[0]) is None:
            return "no C compiler at install"
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            return "no C headers of Python at install"
    return ""


def build(target: Path, warn: Callable[[str], None]) -> list[Path]:
    """Compile each module to its place below `target`, or write there why not; return the files.

    Raises:
        NotCompiled: the accelerator is required.
    """
    for name in (*map(_file_name, SOURCES), REASON):  # of a build before
        (target / name).unlink(missing_ok=True)
    try:
        if reason := obstacle():
            raise NotCompiled(reason)
        return _compile(target)
    except NotCompiled as error:
        if os.environ.get(REQUIRED) and not os.environ.get(PURE_PYTHON):
            raise
        warn(f"pocketmq is installed without its compiled modules, and slower: {error}")
        reason_file = target / REASON
        reason_file.parent.mkdir(exist_ok=True)
        reason_file.write_text(f"{error}\n", encoding="utf-8")
        return [reason_file]


def build_in_place(warn: Callable[[str], None]) -> list[Path]:
    """`build` in the checkout, whatever the current directory is."""
    before = Path.cwd()
    os.chdir(PROJECT)
    try:
        return build(PROJECT, warn)
    finally:
        os.chdir(before)


def _compile(target: Path) -> list[Path]:
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.errors import BaseError, CCompilerError
    except ImportError as error:
        raise NotCompiled(f"no {error.name} at install") from error

    with tempfile.TemporaryDirectory(prefix="pocketmq-cython-") as work:
        extensions = cythonize(  # type: ignore[no-untyped-call]
            [
                Extension(_module(source), [source], extra_compile_args=["-g0"])
                for source in SOURCES
            ],
            build_dir=work,
            quiet=True,
        )
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib = str(Path(work, "lib"))
        command.build_temp = work
        command.parallel = True
        command.ensure_finalized()
        try:
            command.run()
        except (BaseError, CCompilerError) as error:
            raise NotCompiled("the C compiler failed at install") from error
        # All of them or none.
        built = []
        for name in map(_file_name, SOURCES):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            built.append(Path(shutil.move(Path(command.build_lib, name), target / name)))
        return built


def _module(source: str) -> str:
    return source.removesuffix(".pyx").replace("/", ".")


def _file_name(source: str) -> str:
    return source.removesuffix(".pyx") + str(sysconfig.get_config_var("EXT_SUFFIX"))


if __name__ == "__main__":
    for file in build_in_place(lambda line: print(line, file=sys.stderr)):
        print(file)
