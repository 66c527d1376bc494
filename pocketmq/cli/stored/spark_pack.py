"""`pocketmq spark-pack`: the file that `spark-submit` sends to executors without pocketmq."""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import complain
from pocketmq.remoting.serving.service import ExitCode

_SOURCES: Final = frozenset({".py", ".pyi"})
#: Not packed, since executors have them; Spark's package is 500 MB.
_LEFT_OUT: Final = frozenset({"__pycache__", "pyspark", "pip", "setuptools"})


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "spark-pack",
        description="Packs pocketmq for spark-submit. FILE.zip is for --py-files; the executors' "
        "Python then needs numpy and pyarrow, and msgspec to read from running brokers or to "
        "write. FILE.tar.gz is for --archives: this virtual environment without PySpark; the "
        "executors need the same Python at the same path.",
    )
    parser.add_argument(
        "file", type=_file, metavar="FILE", help="file to write, ending with .zip or .tar.gz"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the file atomically."""
    file: Path = options.file
    if file.suffix == ".zip":
        write = _write_zip
    elif sys.prefix == sys.base_prefix:
        return complain(
            f"{sys.executable} is not in a virtual environment: run pocketmq from the one that is "
            "to be sent, or write a .zip",
            ExitCode.USAGE,
        )
    else:
        write = _write_environment
    try:
        _whole(file, write)
    except OSError as error:
        return complain(f"cannot write {file}: {error.strerror or error}", ExitCode.FAILURE)
    return ExitCode.OK


def _file(text: str) -> Path:
    if not text.endswith((".zip", ".tar.gz")):
        raise argparse.ArgumentTypeError(f"{text!r} ends neither with .zip nor with .tar.gz")
    return Path(text)


def _whole(file: Path, write: Callable[[Path], None]) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _write_zip(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in _ours():
            archive.write(path, name)


def _write_environment(file: Path) -> None:
    prefix = Path(sys.prefix)
    packages = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        archive.add(prefix, ".", filter=_kept)
        # An editable installation keeps them elsewhere.
        for path, name in _ours():
            if not (prefix / packages / name).exists():
                archive.add(path, str(packages / name))


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.intersection(Path(member.name).parts) else member


def _ours() -> Iterator[tuple[Path, str]]:
    """Return the files of pocketmq's packages, and their names relative to site-packages."""
    package = Path(__file__).parents[2]
    yield package.with_name("pyspark_rocketmq.py"), "pyspark_rocketmq.py"
    for path in sorted(package.rglob("*")):
        if path.suffix in _SOURCES:
            yield path, str(path.relative_to(package.parent))
