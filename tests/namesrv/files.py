"""Small files of name servers, for tests that are coroutines."""

from __future__ import annotations

from pathlib import Path


def read(path: str) -> str:
    return Path(path).read_text()


def write(path: str, text: str, encoding: str = "utf-8") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding)


def exists(path: str) -> bool:
    return Path(path).exists()


def make_unwritable(path: str) -> None:
    """Puts a directory where the file is to be."""
    Path(path).mkdir(parents=True)
