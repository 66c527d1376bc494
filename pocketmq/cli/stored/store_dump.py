"""`pocketmq store dump`: the records of a store as they are stored, one a line."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from pocketmq.cli.command_parser import CommandParser, nearest
from pocketmq.cli.messages.message_text import json_fields
from pocketmq.cli.options import add_time_range, count, offset
from pocketmq.cli.output import complain, json_line
from pocketmq.cli.standard_files import discard_output
from pocketmq.cli.stored.stored_files import exit_code_of, snapshot_of
from pocketmq.limited_log import printable
from pocketmq.message.compression import CompressionError
from pocketmq.message.message import MessageExt
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import StoreError

if TYPE_CHECKING:
    from pocketmq.message.record import Record
    from pocketmq.store.check.log_dump import Span, Unreadable
    from pocketmq.store.config import StoreConfig


def add_options(parser: CommandParser) -> None:
    """The command's own options."""
    parser.add_argument("-t", "--topic", help="the messages of this topic, queue by queue")
    parser.add_argument("--queue", type=offset, metavar="ID", help="only this queue of the topic")
    parser.add_argument(
        "--from-offset",
        type=offset,
        default=0,
        metavar="N",
        help="begin at this physical offset; with --topic, at this queue offset",
    )
    parser.add_argument(
        "--to-offset", type=offset, metavar="N", help="end before this offset (default: the end)"
    )
    add_time_range(parser)
    parser.add_argument("--count", type=count, metavar="N", help="end after N messages")
    parser.add_argument("--body", action="store_true", help="also print the bodies")


def dump(config: StoreConfig, options: argparse.Namespace) -> int:
    """Print the records. Raises OSError."""
    from pocketmq.message.record import Record

    if options.queue is not None and options.topic is None:
        return complain("--queue needs a topic: --topic TOPIC --queue ID", ExitCode.USAGE)
    times = _times(options)
    left = options.count
    missed = False
    try:
        found = _of_topic(config, options) if options.topic else _of_log(config, options, times)
        for each in found:
            if not isinstance(each, Record):
                print(f"{each.where} cannot be read: {each.reason}", file=sys.stderr)
                missed = True
                continue
            if not times.begin <= each.store_timestamp < times.end:
                continue
            line = _json_line(each, options) if options.json else _text_line(each, options)
            sys.stdout.buffer.write(line)
            left = None if left is None else left - 1
            if left == 0:
                break
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()  # the reader has seen enough
        return ExitCode.OK
    except _NotThere as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    except StoreError as error:
        return complain(str(error), exit_code_of(error))
    return ExitCode.FAILURE if missed else ExitCode.OK


def _times(options: argparse.Namespace) -> Span:
    from pocketmq.store.check.log_dump import NO_END, Span

    begin, end = (
        None if time is None else int(time.timestamp() * 1000)
        for time in (options.from_time, options.until_time)
    )
    return Span(begin or 0, NO_END if end is None else end)


def _span(options: argparse.Namespace) -> Span:
    from pocketmq.store.check.log_dump import NO_END, Span

    return Span(options.from_offset, NO_END if options.to_offset is None else options.to_offset)


def _of_log(
    config: StoreConfig, options: argparse.Namespace, times: Span
) -> Iterator[Record | Unreadable]:
    from pocketmq.store.check.dry_files import DryFiles
    from pocketmq.store.check.log_dump import LogDump
    from pocketmq.store.check.store_check import sized
    from pocketmq.store.log.checkpoint import Checkpoint
    from pocketmq.store.store_lock import is_locked

    config = sized(config)
    opened = is_locked(config.root)
    flushed = Checkpoint.flushed_of(DryFiles(), config.root / "checkpoint") or 0
    return iter(
        LogDump(
            config.commit_log_directory, config.mapped_file_size_commit_log, _span(options), times,
            flushed=flushed, open=opened,
        )
    )  # fmt: skip


def _of_topic(config: StoreConfig, options: argparse.Namespace) -> Iterator[Record | Unreadable]:
    from pocketmq.store.check.log_dump import QueueDump
    from pocketmq.store.scan.queues.queue_listing import QueueChoice

    topic: str = options.topic
    choice = QueueChoice(
        lambda name, queue_id: name == topic and options.queue in (None, queue_id),
        lambda name: name == topic,
    )
    store = snapshot_of(config.root, choice)
    ids = store.listing.ids(topic)
    if not ids:
        raise _NotThere(
            f"there are no messages of topic {topic} in {config.root}"
            f"{nearest(topic, store.listing.topics())}"
        )
    if options.queue is not None and options.queue not in ids:
        raise _NotThere(
            f"topic {topic} has no queue {options.queue} in {config.root}; it has "
            f"{', '.join(map(str, sorted(ids)))}"
        )
    # A snapshot may have opened more queues than requested.
    queues = [queue for name, queue in sorted(store.queues.items()) if choice.queue(*name)]
    span = _span(options)
    return chain.from_iterable(QueueDump(store, queue, span) for queue in queues)


class _NotThere(StoreError):
    """The store has no such queue."""


def _text_line(record: Record, options: argparse.Namespace) -> bytes:
    message = _message(record, options)
    fields = [
        str(record.physical_offset),
        str(record.size),
        f"{record.topic}/{record.queue_id}/{record.queue_offset}",
        _time(record.born_timestamp),
        _time(record.store_timestamp),
        message.tags or "-",
        " ".join(message.keys) or "-",
        message.msg_id,
        str(len(message.body)),
    ]
    if options.body:
        fields.append(_body(message.body))
    return "\t".join(map(printable, fields)).encode() + b"\n"


def _json_line(record: Record, options: argparse.Namespace) -> bytes:
    message = _message(record, options)
    fields: dict[str, Any] = {
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        **json_fields(message),
        "sysFlag": record.sys_flag,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyLength": len(message.body),
    }
    del fields["brokerName"]
    if not options.body:
        fields.pop("body", None)
        fields.pop("bodyBase64", None)
    return json_line(fields)


def _message(record: Record, options: argparse.Namespace) -> MessageExt:
    """Return the message; a body that cannot be decompressed stays as it is stored."""
    try:
        return MessageExt.from_record(record)
    except CompressionError as error:
        print(f"physical offset {record.physical_offset}: {error}", file=sys.stderr)
        *head, body, topic, properties, _ = msgspec.structs.astuple(record)
        return MessageExt.from_parts(
            (tuple(head), bytes(body), topic, bytes(properties)), max_body=None
        )


def _time(milliseconds: int) -> str:
    try:
        time = dt.datetime.fromtimestamp(milliseconds / 1000).astimezone()
    except (OverflowError, OSError, ValueError):  # a damaged one
        return str(milliseconds)
    return time.isoformat(timespec="milliseconds")


def _body(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"0x{body.hex()}"
