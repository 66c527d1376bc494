"""The directories of the stores of `pocketmq serve`: the directory itself for one broker,
`broker-0`, `broker-1`, ... inside it for several.
"""

from __future__ import annotations

import re
from pathlib import Path

from pocketmq.remoting.settings.properties_file import ConfigError

_DIRECTORY = re.compile(r"broker-(\d+)")
_PARTS_OF_A_STORE = ("commitlog", "config", "consumequeue")


def broker_directory(root: Path, number: int) -> Path:
    """The store of one of several brokers."""
    return root / f"broker-{number}"


def brokers_kept_in(root: Path) -> list[int]:
    """The numbers of the brokers whose stores are in `root`; empty if it has none.

    Raises OSError for a directory that cannot be read.
    """
    try:
        # Other directories may be closed: lost+found, at the root of a file system.
        named = [match for each in root.iterdir() if (match := _DIRECTORY.fullmatch(each.name))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for match in named if _is_store(root / match[0]))


def check_layout(root: Path, brokers: int) -> None:
    """Raise ConfigError if `root` was used with the other layout, whose messages would be
    hidden, and OSError for a directory that cannot be read."""
    kept = brokers_kept_in(root)
    if brokers == 1:
        if kept:
            raise _another_layout(
                root,
                f"has the stores of several brokers ({_names(kept)}): add --brokers "
                f"{kept[-1] + 1}, or name another directory with --store",
            )
        return
    if _is_store(root):
        raise _another_layout(
            root,
            f"is the store of a single broker, and --brokers {brokers} would not serve its "
            "messages: leave --brokers out, or name another directory with --store; to keep the "
            f"messages, move all but namesrv to {broker_directory(root, 0)} while no broker runs",
        )
    if kept and kept[-1] >= brokers:
        raise _another_layout(
            root,
            f"has the stores of {_names(kept)}, and --brokers {brokers} would not serve the "
            f"messages of all of them: use --brokers {kept[-1] + 1}",
        )


def _is_store(directory: Path) -> bool:
    return any((directory / part).is_dir() for part in _PARTS_OF_A_STORE)


def _names(numbers: list[int]) -> str:
    return ", ".join(f"broker-{number}" for number in numbers)


def _another_layout(root: Path, problem: str) -> ConfigError:
    allowed = "a directory of the same layout"
    return ConfigError("storePathRootDir", str(root), allowed, text=f"{root} {problem}")
