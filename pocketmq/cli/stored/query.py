"""`pocketmq query`: Spark SQL over the files of stores, each topic a table."""

from __future__ import annotations

import argparse
import base64
import contextlib
import datetime as dt
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import count, store_or_url
from pocketmq.cli.output import complain, json_line
from pocketmq.cli.standard_files import discard_output
from pocketmq.cli.stored.job_progress import job_progress
from pocketmq.cli.stored.stored_files import exit_code_of, stores_at
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import StoreError

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, Row, SparkSession

    from pocketmq.store.scan.queues.queue_listing import QueueChoice
    from pocketmq.store.scan.scanned_store import ScannedStore

SHOWN_ROWS: Final = 100
_SHOWN_CHARACTERS: Final = 60
# Rows for JSON arrive a partition at a time, and Java holds several copies of it until it is sent:
# with the usual 128 MiB of messages, or a quarter of a shuffle's usual partition, it runs out of
# memory.
JSON_BYTES: Final = 16 * 1024 * 1024
_JSON_SHUFFLED: Final = 64
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

_DESCRIPTION: Final = (
    "Runs Spark SQL over the files of a store or an archive; no broker is needed, and one may be "
    "writing. Each topic is a table; names with characters other than letters, digits and _ need "
    "backquotes: SELECT tags, count(*) FROM `my-topic` GROUP BY tags. Topics whose names differ "
    "only by case are not available. Columns: topic, queueId, brokerName, queueOffset, "
    "physicalOffset, body (binary: CAST(body AS STRING)), tags, keys, properties, flag, "
    "bornTimestamp, storeTimestamp, msgId, reconsumeTimes. Times in the statement are local "
    "unless they name a zone."
)


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser("query", description=_DESCRIPTION)
    parser.add_argument("sql", metavar="SQL", help="one statement")
    parser.add_argument(
        "--store",
        type=store_or_url,
        action="append",
        required=True,
        metavar="DIR",
        help="store of a broker, or URL or directory of archives (repeatable: read as one)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a line instead of a table"
    )
    parser.add_argument(
        "--limit",
        type=count,
        metavar="N",
        help=f"print at most N rows (default: {SHOWN_ROWS} of a table, all of json)",
    )
    parser.add_argument(
        "--metadata",
        action="store_true",
        help="add columns bornHost, storeHost, sysFlag, storeSize, bodyCRC, "
        "preparedTransactionOffset, offsetMsgId",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the rows; return 0 when Spark could answer."""
    from pocketmq.spark import SparkUnavailable, session
    from pocketmq.store.scan.replicas import read_twice

    try:
        # Check the stores before Spark starts, which takes seconds.
        choice = _mentioned(options.sql)
        places = [stores_at(place, choice) for place in dict.fromkeys(options.store)]
        both = read_twice(places)
        if both is not None:
            name, (archive, other) = both[0].broker_name, (str(store.files) for store in both)
            return complain(
                f"{archive} is of the broker {name}, like {other}: each message that both have "
                "would be read twice, so name one of the two",
                ExitCode.USAGE,
            )
        stores = [store for found in places for store in found]
        # Errors are printed here, in one line; Spark would log each with its stack first.
        log_level = "ERROR" if options.verbose else "OFF"
        spark = session("pocketmq query", config={"spark.log.level": log_level})
    except SparkUnavailable as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    except StoreError as error:
        return complain(str(error), exit_code_of(error))
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    # PySpark logs every mistake in a statement with the JVM's whole stack.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        if options.json:
            spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", JSON_BYTES)
            spark.conf.set("spark.sql.shuffle.partitions", _JSON_SHUFFLED)
        frame = answer(spark, options, stores)
        if options.json:
            _print_json(frame, options.limit)
        else:
            _print_table(frame, options.limit or SHOWN_ROWS)
    except _EnoughSeen:
        discard_output()
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return complain(_plain(error), ExitCode.USAGE)
        topics = f"\nTopics in the store: {', '.join(sorted(_topics(stores))) or 'none'}"
        return complain(_plain(error) + topics, ExitCode.UNAVAILABLE)
    # The latter if rows arrive a partition at a time, as for JSON.
    except (PySparkException, Py4JJavaError) as error:
        text = _plain(error)
        corrupt = text.startswith(("StoreCorrupt", "ObjectDamaged"))
        return complain(text, ExitCode.STORE_CORRUPT if corrupt else ExitCode.FAILURE)
    finally:
        spark.stop()
    return ExitCode.OK


def answer(
    spark: SparkSession, options: argparse.Namespace, stores: Sequence[ScannedStore]
) -> DataFrame:
    """Return the rows of the statement, reading only the columns that it needs."""
    from pocketmq.spark.options.needed_columns import needed

    create_views(spark, options, stores)
    frame = spark.sql(options.sql)
    columns = needed(frame)
    if columns is not None:
        create_views(spark, options, stores, columns=columns)
        frame = spark.sql(options.sql)
    return frame


class _EnoughSeen(Exception):
    """Nobody reads the output any more."""


def _mentioned(sql: str) -> QueueChoice:
    """Choose the queues of the topics whose names appear in a statement."""
    from pocketmq.store.scan.queues.queue_listing import QueueChoice

    statement = sql.lower()

    def is_mentioned(topic: str, *_: int) -> bool:
        return topic.lower() in statement

    return QueueChoice(is_mentioned, is_mentioned)


def _topics(stores: Iterable[ScannedStore]) -> set[str]:
    """The topics that have messages."""
    return {topic for store in stores for topic in store.listing.topics()}


def _bytes(stores: Iterable[ScannedStore], topic: str) -> int:
    """The estimated stored size of the messages of a topic."""
    from pocketmq.store.scan.planning.partitioning import Wanted

    total = 0
    for store in stores:
        for queue in store.queues.values():
            if queue.topic == topic:
                with contextlib.suppress(FileNotFoundError):  # expired meanwhile
                    total += Wanted(queue, queue.slice()).bytes()
    return total


def create_views(
    spark: SparkSession,
    options: argparse.Namespace,
    stores: Sequence[ScannedStore],
    *,
    columns: Iterable[str] | None = None,
    json_bytes: int = JSON_BYTES,
) -> None:
    """Create a view for each topic that the statement mentions, or for all if it lists tables.

    Creating a view takes a tenth of a second, and a store may have thousands of topics. Spark's
    names are case-insensitive: topics whose names differ only in case get no view, so that neither
    is taken for the other. A topic without messages only gets a view if it is mentioned, because
    brokers create several for themselves. The views have only `columns`, if given. For JSON,
    partitions have about `json_bytes` of messages.
    """
    from pocketmq.spark.schema import ddl_of

    statement = options.sql.lower()
    everything = statement.lstrip().startswith(("show", "desc"))
    spark.conf.set(_PUSHDOWN, "true")
    named: dict[str, list[str]] = {}
    for topic in sorted(_topics(stores)):
        named.setdefault(topic.lower(), []).append(topic)
    stored = set(named)
    for topic in sorted(set().union(*(store.configured for store in stores))):
        named.setdefault(topic.lower(), [topic])
    for name, alike in named.items():
        mentions = statement.count(name)
        if not mentions and not (everything and name in stored):
            continue
        if len(alike) > 1:
            print(
                f"Topics {', '.join(alike)} are not available as tables: Spark does not tell upper "
                "from lower case in names.",
                file=sys.stderr,
            )
            continue
        # Filters may be pushed only to a view that is read once (see RocketMQDataSource).
        read_once = mentions == 1 and not re.search(r"\bwith\b", statement)
        reader = spark.read.format("rocketmq").option("subscribe", alike[0])
        reader.option("pushFilters", "oneQuery" if read_once else "false")
        reader.option("includeMetadata", str(options.metadata).lower())
        if options.json:
            reader.option("minPartitions", str(1 + _bytes(stores, alike[0]) // json_bytes))
        # As JSON, because a directory name may contain a comma.
        paths = [
            place if isinstance(place, str) else str(place.absolute()) for place in options.store
        ]
        if columns is not None:
            reader.schema(ddl_of(columns))
        reader.option("paths", msgspec.json.encode(paths).decode())
        reader.load().createOrReplaceTempView("`" + alike[0].replace("`", "``") + "`")


def _print_table(frame: DataFrame, limit: int) -> None:
    from rich.console import Console
    from rich.table import Table

    tracker = frame.sparkSession.sparkContext.statusTracker()
    with job_progress(tracker, Console(stderr=True)):
        rows = frame.limit(limit + 1).collect()
    table = Table()
    for name in frame.columns:
        table.add_column(name, overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(_shorter(_text(value)) for value in row))
    # Without a terminal, do not fit the table into a terminal's width.
    console = Console(width=None if sys.stdout.isatty() else 4096, markup=False, highlight=False)
    with console.capture() as printed:
        console.print(table)
    _write(printed.get().encode(console.encoding))
    if len(rows) > limit:
        print(f"There are more than these {limit} rows; see --limit.", file=sys.stderr)


def _print_json(frame: DataFrame, limit: int | None) -> None:
    if limit is not None:
        frame = frame.limit(limit)
    for row in frame.toLocalIterator(prefetchPartitions=True):
        _write(json_line(_object(zip(row.__fields__, row, strict=True))))


def _write(output: bytes) -> None:
    try:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise _EnoughSeen from None


def _object(fields: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return names and values for JSON: bodies as in `pocketmq pull`, in `body`, or in `bodyBase64`
    if they are not UTF-8."""
    found = {}
    for name, value in fields:
        try:
            found[name] = _json(value, bytes.decode)
        except UnicodeDecodeError:
            found[f"{name}Base64"] = _json(value, lambda body: base64.b64encode(body).decode())
    return found


def _json(value: Any, text_of: Callable[[bytes], str]) -> Any:
    """Return a value for JSON, with `text_of` applied to binary parts."""
    if isinstance(value, bytes | bytearray):
        return text_of(bytes(value))
    if isinstance(value, dt.datetime):
        return value.astimezone()  # PySpark gives local times without their zone
    if isinstance(value, Mapping):
        return _object(value.items())
    if isinstance(value, tuple):  # a Row
        return _object(zip(cast("Row", value).__fields__, value, strict=True))
    if isinstance(value, list):
        return [_json(inner, text_of) for inner in value]
    return value


def _text(value: Any) -> str:
    """Return a value as a table cell."""
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, dt.datetime):
        return value.astimezone().isoformat(" ", "milliseconds")
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return str(value)


def _shorter(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _plain(error: PySparkException | Py4JJavaError) -> str:
    """Return Spark's error message in a line or two; for a pocketmq error in a worker, only that
    one."""
    text = str(error)
    ours = re.search(r"^pocketmq\.(?:store|archive)\.[\w.]*?(\w+: .*)$", text, re.MULTILINE)
    if ours:
        return ours[1]
    causes = re.findall(r"^Caused by: [\w.$]+: (.*)$", text, re.MULTILINE)
    if causes:
        return str(causes[-1])
    return text.partition("\n\nJVM stacktrace")[0].partition("\n'")[0].strip()
