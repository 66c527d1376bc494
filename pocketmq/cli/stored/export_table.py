"""`pocketmq export --to`: a table that is kept up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketmq.cli.command_parser import CommandParser
from pocketmq.cli.output import complain, counted, print_json
from pocketmq.cli.progress_bar import progress_bar
from pocketmq.remoting.serving.service import ExitCode

if TYPE_CHECKING:
    from pocketmq.tables.body_decoder import BodyDecoder
    from pocketmq.tables.exports import Exported

_MEGABYTE = 1024 * 1024


def add_table_options(parser: CommandParser) -> None:
    """The options that go with --to."""
    table = parser.add_argument_group("tables")
    table.add_argument(
        "--format",
        choices=("parquet", "delta"),
        help="format of the table: a directory of Parquet files (default), or a Delta table",
    )
    table.add_argument(
        "--decode",
        choices=("json", "avro", "msgpack"),
        help="format of the bodies; the column body then has their fields",
    )
    table.add_argument(
        "--schema",
        type=Path,
        metavar="PATH",
        help="file with the fields of the bodies: 'id bigint NOT NULL, name string', or an Avro "
        "schema",
    )
    table.add_argument(
        "--on-error",
        choices=("dead-letter", "skip", "fail"),
        help="for bodies that cannot be decoded: write a row to DIR/_dead_letters (default), skip "
        "the message, or stop the export",
    )
    table.add_argument(
        "--file-size",
        type=_megabytes,
        metavar="MB",
        help="commit after this many megabytes of Parquet (default 128); also the target of "
        "--compact",
    )
    table.add_argument(
        "--compact",
        action="store_true",
        help="merge small files of the table at the end; without --store only that",
    )
    table.add_argument(
        "--skip-lost",
        action="store_true",
        help="continue after messages that expired or were damaged before they were exported",
    )
    table.add_argument("--json", action="store_true", help="print the result as a JSON object")


def wrong_use(options: argparse.Namespace) -> str:
    """Return the error for options that cannot be combined; empty if there is none."""
    if (options.file is None) == (options.to is None):
        return "need either FILE or --to DIR"
    if options.to is None and not options.stores:
        return "need --store DIR, the store to read"
    if options.to is None:
        given = [
            "--" + name.replace("_", "-")
            for name in (
                "format", "decode", "schema", "on_error", "file_size", "compact", "skip_lost",
                "json",
            )
            if getattr(options, name)
        ]  # fmt: skip
        if given:
            return f"{given[0]} is for tables: give --to DIR in place of FILE"
        if len(options.stores) > 1:
            return "several stores need --to DIR in place of FILE"
        return ""
    if not options.stores:
        return _wrong_without_store(options)
    if options.from_time or options.until_time:
        return "a table takes all messages: --from and --until go with FILE only"
    if (options.decode is None) != (options.schema is None):
        return "--decode and --schema go together"
    if options.on_error and options.decode is None:
        return "--on-error goes with --decode"
    return ""


def _wrong_without_store(options: argparse.Namespace) -> str:
    if not options.compact:
        return "need --store DIR, the store to read; only --compact goes without"
    reads = ("topics", "columns", "from_time", "until_time", "decode", "schema", "on_error")
    for name in (*reads, "skip_lost"):
        if getattr(options, name):
            option = {"topics": "topic", "from_time": "from", "until_time": "until"}.get(name, name)
            return f"--{option.replace('_', '-')} needs --store DIR, the store to read"
    return ""


def compact_table(options: argparse.Namespace) -> int:
    """Merge small files of the table, and print how many. Raises TableError, MissingExtra,
    OSError."""
    from pocketmq.tables.exports import FILE_BYTES
    from pocketmq.tables.table import is_table, open_table

    if not is_table(options.to):
        return complain(f"there is no table in {options.to}", ExitCode.UNAVAILABLE)
    with closing(open_table(options.to, options.format or "parquet")) as table:
        compacted = table.compact(options.file_size or FILE_BYTES)
    if options.json:
        print_json({"table": str(options.to), "compacted": compacted})
    else:
        print(f"joined {counted(compacted, 'file')} of {options.to}", file=sys.stderr)
    return ExitCode.OK


def export_to_table(options: argparse.Namespace, columns: Sequence[str]) -> int:
    """Bring the table up to date, and print a summary.

    Raises StoreError, TableError, UndecodableBody, MissingExtra, OSError.
    """
    from pocketmq.tables.errors import BodySchemaError
    from pocketmq.tables.exports import FILE_BYTES, export
    from pocketmq.tables.table import open_table

    if options.decode and "body" not in columns:
        return complain("--decode needs the column body in --columns", ExitCode.USAGE)
    try:
        decoder = _decoder(options)
    except BodySchemaError as error:
        return complain(f"{options.schema}: {error}", ExitCode.USAGE)
    except OSError as error:
        return complain(f"cannot read {options.schema}: {error.strerror}", ExitCode.USAGE)
    except UnicodeDecodeError:
        return complain(f"{options.schema} is not UTF-8", ExitCode.USAGE)
    size = options.file_size or FILE_BYTES
    with closing(open_table(options.to, options.format or "parquet")) as table:
        with progress_bar("exporting", "messages") as (planned, advanced):
            done = export(
                table,
                options.stores,
                topics=options.topics,
                columns=tuple(columns),
                decoder=decoder,
                on_error=options.on_error or "dead-letter",
                compression=options.compression,
                file_bytes=size,
                skip_lost=options.skip_lost,
                planned=planned,
                advanced=advanced,
            )
        compacted = table.compact(size) if options.compact else 0
        offsets = table.last.offsets
    if options.json:
        print_json(_as_json(done, compacted, options.to, offsets))
    else:
        _summarize(done, compacted, options.to)
    return ExitCode.OK


def _decoder(options: argparse.Namespace) -> BodyDecoder | None:
    from pocketmq.tables.body_decoder import BodyDecoder

    if options.decode is None:
        return None
    return BodyDecoder(options.decode, options.schema.read_text("utf-8"))


def _summarize(done: Exported, compacted: int, target: Path) -> None:
    parts = [f"wrote {counted(done.messages, 'message')} to {target}"]
    if done.dead_letters:
        parts.append(f"{counted(done.dead_letters, 'dead letter')} to {target / '_dead_letters'}")
    if done.skipped:
        parts.append(f"left out {done.skipped} that cannot be decoded")
    if done.lost:
        parts.append(f"{done.lost} were lost before")
    if done.replaced:
        parts.append(f"{counted(done.replaced, 'queue')} recreated or deleted")
    if compacted:
        parts.append(f"joined {compacted} files")
    print("; ".join(parts), file=sys.stderr)


def _as_json(done: Exported, compacted: int, target: Path, offsets: Any) -> dict[str, Any]:
    from pocketmq.store.scan.stream_offsets import Position, offsets_of, to_json

    names = {"dead_letters": "deadLetters"}
    plain = {queue: Position(offset) for queue, offset in offsets_of(offsets).items()}
    counts = {names.get(name, name): count for name, count in asdict(done).items()}
    return {"table": str(target), **counts, "compacted": compacted, "offsets": to_json(plain)}


def _megabytes(text: str) -> int:
    try:
        size = float(text)
    except ValueError:
        size = 0
    if not 0.001 <= size <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size from 0.001 to 10000 megabytes")
    return int(size * _MEGABYTE)
