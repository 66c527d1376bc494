"""`pocketmq auth`: users and access lists of official brokers, imported."""

from __future__ import annotations

import argparse
import itertools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pocketmq._extras import MissingExtra, require
from pocketmq.auth.official_sources import (
    Imported,
    SourceError,
    of_plain_acl,
    of_rocksdb,
)
from pocketmq.auth.store import AuthFileError, AuthTables, write_secret
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.output import complain, counted, print_json
from pocketmq.limited_log import printable
from pocketmq.remoting.serving.service import ExitCode

if TYPE_CHECKING:
    from rocksdict import Rdict

_YAML: Final = (".yml", ".yaml")
_MOST_FILES: Final = 10_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_VALUES: Final = 1_000_000
"""Values of a file with its aliases written out: a few lines of aliases can stand for billions."""
_MOST_DEPTH: Final = 20
_MOST_TABLE: Final = 4 << 30
_MOST_ROWS: Final = 1_000_000
_MOST_ROW: Final = 16 * 1024 * 1024


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser("auth", description="Users and access lists (docs/security.md).")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    importing = commands.add_parser(
        "import",
        help="take over users and access lists of an official broker",
        description="Imports the users and access lists of an official broker into the file of a "
        "pocketmq broker or name server, which must not be running. Users already in the file "
        "are not changed. Needs pip install 'pocketmq[acl]'.",
        epilog="SOURCE is a plain_acl.yml of ACL 1.0, a directory with several such files "
        "(conf/acl), or the directory STORE/config of a broker of RocketMQ 5.3 with the tables "
        "users and acls, which must be stopped. Admins of ACL 1.0 become super users. The "
        "command lists entries without a counterpart, such as white lists, and skips them. Exit "
        "codes: 6 SOURCE or FILE is damaged, 7 it cannot be read.",
    )
    importing.add_argument(
        "source", type=Path, metavar="SOURCE", help="file or directory of the official broker"
    )
    importing.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="file of users: STORE/config/auth.json of a broker, authFilePath of a name server",
    )
    importing.add_argument(
        "--dry-run", action="store_true", help="print what would be done; write nothing"
    )
    importing.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    """Import the users and access lists. This is the only subcommand."""
    from pocketmq.store.errors import StoreLocked

    try:
        require("acl", "pocketmq auth import")
        found = _read(options.source)
        tables = AuthTables(options.file)
        tables.load()
        _refuse_running(options.file)
        added = _merge(found, tables)
        if not options.dry_run:
            write_secret(options.file, tables.encode())
    except MissingExtra as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    except (SourceError, AuthFileError) as error:
        return complain(str(error), ExitCode.STORE_CORRUPT)
    except StoreLocked as error:
        return complain(str(error), ExitCode.STORE_LOCKED)
    except OSError as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    known = [user.username for user in found.users if user.username not in added]
    if options.json:
        print_json({"imported": added, "known": known, "leftOut": found.left_out})
        return ExitCode.OK
    for line in found.left_out:
        print(printable(f"left out: {line}"))
    for name in known:
        print(f"known already: {name}")
    print(f"{'would import' if options.dry_run else 'imported'} {counted(len(added), 'user')}")
    return ExitCode.OK


def _merge(found: Imported, tables: AuthTables) -> list[str]:
    """Add new entries to the tables in memory, and return the names of the new users."""
    added = []
    for user in found.users:
        if user.username not in tables.users:
            tables.users[user.username] = user
            if user.username in found.acls:
                tables.acls[user.username] = found.acls[user.username]
            added.append(user.username)
    return added


def _refuse_running(file: Path) -> None:
    """Raise StoreLocked while a broker has the store: it would overwrite the imported users."""
    from pocketmq.store.errors import StoreLocked
    from pocketmq.store.store_lock import is_locked

    root = file.resolve().parent.parent
    if is_locked(root):
        raise StoreLocked(root)


def _read(source: Path) -> Imported:
    if (source / "users").is_dir():
        return of_rocksdb(_rows(source / "users"), _rows(source / "acls"))
    files = [source]
    if source.is_dir():
        found_files = (
            Path(directory, name)
            for directory, *names in os.walk(source, onerror=_raise)
            for name in itertools.chain(*names)
            if Path(name).suffix in _YAML
        )
        files = sorted(itertools.islice(found_files, _MOST_FILES + 1))
        if len(files) > _MOST_FILES:
            raise SourceError(f"{source} has more than {_MOST_FILES} .yml files")
        if not files:
            raise SourceError(f"{source} has neither .yml files nor the tables users and acls")
    found = Imported()
    for path in files:
        one = of_plain_acl(_yaml(path), str(path))
        known = {user.username for user in found.users}
        # If two accounts have the same key, the first one counts, as in the official broker.
        found.users += [user for user in one.users if user.username not in known]
        found.acls = one.acls | found.acls
        found.left_out += one.left_out
    return found


def _yaml(path: Path) -> Any:
    import yaml

    _check_regular(path)
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise SourceError(f"{path} has more than {_MOST_BYTES} bytes")
    try:
        # Scalars stay strings: a password of digits is not a number.
        value = yaml.load(content.decode(), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        # Without the error text: it quotes the file, which contains passwords.
        raise SourceError(f"{path} is not YAML") from None
    if _count(value, _MOST_VALUES, _MOST_DEPTH) > _MOST_VALUES:
        raise SourceError(
            f"{path} has more than {_MOST_VALUES} values, or is deeper than {_MOST_DEPTH} levels"
        )
    return value


def _count(value: Any, most: int, depth: int) -> int:
    """Return the number of nested values; more than `most` if they are too many or too deep."""
    count = 1
    inner = (*value, *value.values()) if isinstance(value, dict) else value
    for each in inner if isinstance(value, dict | list) else ():
        if depth == 0 or count > most:
            return most + 1
        count += _count(each, most - count, depth - 1)
    return count


def _rows(directory: Path) -> dict[str, bytes]:
    """All rows of one official table."""
    if not directory.is_dir():
        return {}
    _check_table(directory)
    table = _open_table(directory)
    found: dict[str, bytes] = {}
    try:
        rows: Any = table.items()  # bytes in raw mode
        for key, value in rows:
            if len(found) >= _MOST_ROWS or len(value) > _MOST_ROW:
                raise SourceError(
                    f"{directory} has more than {_MOST_ROWS} rows, or one of more than "
                    f"{_MOST_ROW} bytes"
                )
            found[key.decode()] = value
    except SourceError:
        raise
    except Exception as error:  # rocksdict's own type is Exception
        raise SourceError(f"{directory} cannot be read: {error}") from None
    finally:
        table.close()
    return found


def _raise(error: OSError) -> NoReturn:
    raise error


def _check_table(directory: Path) -> None:
    """Raise SourceError for files that would block RocksDB, or that it would read for hours."""
    size = 0
    for count, path in enumerate(directory.iterdir()):
        _check_regular(path)
        size += path.stat().st_size
        if count > _MOST_FILES or size > _MOST_TABLE:
            raise SourceError(
                f"{directory} has more than {_MOST_FILES} files or {_MOST_TABLE} bytes"
            )


def _check_regular(path: Path) -> None:
    """Raise SourceError for a directory, a pipe or a device; OSError if the file is missing."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise SourceError(f"{path} is not a regular file")


def _open_table(directory: Path) -> Rdict:
    from rocksdict import AccessType, Options, Rdict

    try:
        families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(directory))}
        return Rdict(
            str(directory),
            options=Options(raw_mode=True),
            column_families=families,
            access_type=AccessType.read_only(),
        )
    except Exception as error:  # its own type is Exception
        raise SourceError(f"{directory} cannot be opened: {error}") from None
