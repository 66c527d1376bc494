"""`pocketmq export`: stored messages as a Parquet file or a table, without a broker or Java."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketmq._extras import MissingExtra
from pocketmq.cli.command_parser import CommandParser, Subparsers, nearest
from pocketmq.cli.options import add_time_range, directory
from pocketmq.cli.output import complain, counted
from pocketmq.cli.progress_bar import progress_bar
from pocketmq.cli.stored.export_table import (
    add_table_options,
    compact_table,
    export_to_table,
    wrong_use,
)
from pocketmq.cli.stored.stored_files import exit_code_of, snapshot_of
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import StoreError
from pocketmq.tables.errors import TableError, UndecodableBody

if TYPE_CHECKING:
    from pocketmq.store.scan.planning.plan import ScanRequest
    from pocketmq.store.scan.planning.snapshot import StoreSnapshot

#: A row group of the file, bytes in memory. A scan returns a few MiB at a time, and less at the end
#: of each queue; readers open large groups faster than many small ones.
_GROUP_BYTES = 64 * 1024 * 1024


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "export",
        description="Writes the messages of a store to a Parquet file, or with --to adds the new "
        "ones to a table, each exactly once, even if an export was killed. It reads the files of "
        "the store: no broker is needed, and one may be writing. FILE is replaced once "
        "everything is written. Needs pip install 'pocketmq[arrow]'; Delta tables and Avro need "
        "'pocketmq[tables]'.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="Parquet file to write")
    parser.add_argument("--to", type=Path, metavar="DIR", help="table to update, instead of FILE")
    parser.add_argument(
        "--store",
        dest="stores",
        type=directory,
        action="append",
        default=[],
        metavar="DIR",
        help="store of a broker; with --to repeatable, for several brokers. Optional only for "
        "--to with --compact",
    )
    parser.add_argument(
        "-t",
        "--topic",
        dest="topics",
        action="append",
        metavar="TOPIC",
        help="only this topic (repeatable; default: all but system, retry, and dead-letter topics)",
    )
    parser.add_argument(
        "--columns",
        type=_columns,
        metavar="NAME,NAME",
        help="only these columns; --columns help lists all",
    )
    add_time_range(parser)
    parser.add_argument(
        "--compression",
        choices=("zstd", "snappy", "gzip", "none"),
        default="zstd",
        help="compression (default zstd)",
    )
    add_table_options(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the file, or bring the table up to date."""
    from pocketmq.store.scan.records.columns import ALL_COLUMNS, COLUMNS

    columns = options.columns or list(COLUMNS)
    if columns == ["help"]:
        print("\n".join(ALL_COLUMNS))
        return ExitCode.OK
    misuse = wrong_use(options)
    if misuse:
        return complain(misuse, ExitCode.USAGE)
    for name in columns:
        if name not in ALL_COLUMNS:
            hint = nearest(name, ALL_COLUMNS) or f"; the columns are {', '.join(ALL_COLUMNS)}"
            return complain(f"there is no column {name}{hint}", ExitCode.USAGE)
    try:
        if not options.stores:
            return compact_table(options)
        if options.to is not None:
            return export_to_table(options, columns)
        return _export(options, columns)
    except StoreError as error:
        return complain(str(error), exit_code_of(error))
    except MissingExtra as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    except BrokenPipeError:
        raise  # the reader of stdout is gone
    except (_NotWritten, TableError, UndecodableBody, OSError) as error:
        return complain(str(error), ExitCode.FAILURE)


class _NotWritten(Exception):
    """The Parquet file cannot be written; the text says why."""

    def __init__(self, file: Path, error: OSError) -> None:
        missing = not file.parent.is_dir()
        reason = f"there is no directory {file.parent}" if missing else error.strerror or error
        super().__init__(f"cannot write {file}: {reason}")


def _columns(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names with commas between")
    return names


def _export(options: argparse.Namespace, columns: Sequence[str]) -> int:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    from pocketmq.store.scan.direct_scan import scan
    from pocketmq.store.scan.query import application_topics, topics_of
    from pocketmq.store.scan.queues.queue_listing import NO_QUEUE
    from pocketmq.store.scan.records.columns import ALL_COLUMNS

    [root] = options.stores
    store = snapshot_of(root, NO_QUEUE)
    stored = topics_of(store)
    for topic in options.topics or ():
        if topic not in stored:
            near = nearest(topic, stored)
            names = ", ".join(application_topics(store))
            return complain(
                f"there is no topic {topic} in {root}{near}; the topics are: {names or 'none'}",
                ExitCode.UNAVAILABLE,
            )
    schema = pyarrow.schema([(name, ALL_COLUMNS[name]) for name in columns])
    rows = 0
    with (
        _replacing(options.file) as path,
        ParquetWriter(path, schema, compression=options.compression) as writer,
        progress_bar("exporting", "messages") as (planned, advanced),
    ):
        batches = scan(root, columns, _request(options, store), planned=planned)
        for batch in _together(batches, schema, advanced):
            writer.write_table(batch)
            rows += batch.num_rows
    print(f"wrote {counted(rows, 'message')} to {options.file}", file=sys.stderr)
    return ExitCode.OK


def _request(options: argparse.Namespace, store: StoreSnapshot) -> ScanRequest:
    from pocketmq.store.scan.planning.plan import ScanRequest
    from pocketmq.store.scan.query import application_topics
    from pocketmq.store.scan.queues.selection import Range, Selection

    times = [
        None if time is None else int(time.timestamp() * 1000)
        for time in (options.from_time, options.until_time)
    ]
    selection = Selection(store_timestamp=Range(*times))
    wanted = frozenset(options.topics or application_topics(store))
    return ScanRequest(wants=lambda topic, queue_id: topic in wanted, selection=selection)


def _together(
    batches: Iterator[Any], schema: Any, advanced: Callable[[int], None]
) -> Iterator[Any]:
    """Yield tables of at least `_GROUP_BYTES`, each for a row group of the file. `advanced` is
    called with the number of rows of each batch."""
    import pyarrow

    waiting: list[Any] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        advanced(batch.num_rows)
        size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield pyarrow.Table.from_batches(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield pyarrow.Table.from_batches(waiting, schema)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Open a new file beside `path` that replaces it at the end, and is removed after an error.

    Raises _NotWritten if it cannot be created, or cannot replace `path`.
    """
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _NotWritten(path, error) from None
    os.close(number)
    temporary = Path(name)
    try:
        yield temporary
        # Files of mkstemp are accessible to their owner only.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        try:
            temporary.replace(path)
        except OSError as error:
            raise _NotWritten(path, error) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
