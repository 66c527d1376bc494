"""Compiles the accelerator: into wheels that are built with POCKETMQ_ACCELERATOR=1, or in place by
`make accelerator`.

Without the variable a wheel is pure Python and needs no compiler. With it, a missing compiler is an
error, and does not make a wheel without the accelerator.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "POCKETMQ_ACCELERATOR"
PROJECT = Path(__file__).parent.parent
SOURCES = (
    "pocketmq/message/_alike_records.pyx",
    "pocketmq/broker/processors/send/_send_run.pyx",
    "pocketmq/store/_compiled_read.pyx",
    "pocketmq/store/encoding/_compiled_batch.pyx",
    "pocketmq/store/log/_compiled_blocks.pyx",
    "pocketmq/store/scan/_compiled_records.pyx",
)


class AcceleratorHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        return ["cython>=3.1", "setuptools"] if self._wanted else []

    @property
    def _wanted(self) -> bool:
        return self.target_name == "wheel" and bool(os.environ.get(WANTED))

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules, for an editable install in place, else into the wheel."""
        if not self._wanted:
            return
        if version == "editable":
            compile_modules(PROJECT)
            return
        self._built = tempfile.TemporaryDirectory(prefix="pocketmq-accelerator-")
        for module in compile_modules(Path(self._built.name)):
            build_data["force_include"][str(module)] = str(module.relative_to(self._built.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if hasattr(self, "_built"):
            self._built.cleanup()


def compile_modules(target: Path) -> list[Path]:
    """Compile each module to its place in the package below `target`; return the files."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

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
        command.build_lib = str(target)
        command.build_temp = work
        command.ensure_finalized()
        command.run()
        return [target / command.get_ext_filename(_module(source)) for source in SOURCES]


def _module(source: str) -> str:
    return source.removesuffix(".pyx").replace("/", ".")


if __name__ == "__main__":
    os.chdir(PROJECT)
    for built in compile_modules(PROJECT):
        print(built)
